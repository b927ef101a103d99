"""Links, anchors and paths in the documents lead to something, and the site holds every page."""

from __future__ import annotations

import importlib.util
import os
import re
import subprocess
import sys
from itertools import pairwise
from pathlib import Path

import pytest
import yaml

from .conftest import PAGES, ROOT

SOURCE = ROOT / "src" / "turnwise"
FENCED = re.compile(r"^```.*?^```$", re.MULTILINE | re.DOTALL)
LINK = re.compile(r"\]\(([^)\s]+)\)")
PATHS = re.compile(r"(?:tests|benchmarks|examples|docs|src)/[\w./-]*\w|[\w/]+/\w+\.py")
"""Paths as the documents name them: from the repository, or modules from `src/turnwise`."""


def prose(path: Path) -> str:
    """Return a page without its code blocks."""
    return FENCED.sub("", path.read_text(encoding="utf-8"))


def anchors(path: Path) -> set[str]:
    """Return the anchors that GitHub and the site make of a page's headings."""
    found: set[str] = set()
    for heading in re.findall(r"^#+ (.*)$", prose(path), re.MULTILINE):
        text = re.sub(r"\[([^]]*)\]\([^)]*\)", r"\1", heading).strip().lower()
        slug = re.sub(r"[^\w\- ]", "", text).replace(" ", "-")
        number = 1
        while slug in found:
            slug, number = f"{slug.removesuffix(f'-{number - 1}')}-{number}", number + 1
        found.add(slug)
    return found


def broken(path: Path) -> list[str]:
    """Return the links of a page that lead nowhere."""
    bare = re.sub(r"`[^`\n]*`", "", prose(path))
    found = []
    for target in LINK.findall(bare):
        if re.match(r"[a-z]+:", target):
            assert target.startswith("https://"), f"{path.name}: {target}"
            continue
        name, _, anchor = target.partition("#")
        meant = (path.parent / name).resolve() if name else path
        if not meant.exists() or (anchor and anchor not in anchors(meant)):
            found.append(target)
    return found


@pytest.mark.parametrize("path", PAGES, ids=lambda path: path.name)
def test_links_and_anchors_lead_somewhere(path):
    assert broken(path) == []


def test_a_broken_link_and_a_broken_anchor_are_seen(tmp_path):
    page = tmp_path / "page.md"
    page.write_text("# One `two`\n\n[a](gone.md) [b](#one-two) [c](page.md#gone) `[d](x)`\n")
    assert broken(page) == ["gone.md", "page.md#gone"]


@pytest.mark.parametrize("path", PAGES, ids=lambda path: path.name)
def test_paths_named_in_code_exist(path):
    named = {
        found
        for code in re.findall(r"`([^`\n]+)`", prose(path))
        if "<" not in code and "://" not in code
        for found in PATHS.findall(code)
    }
    homes = (ROOT, SOURCE, path.parent)
    assert [
        name for name in sorted(named) if not any((home / name).exists() for home in homes)
    ] == []


@pytest.mark.parametrize("path", PAGES, ids=lambda path: path.name)
def test_a_list_after_a_paragraph_has_an_empty_line_before_it(path):
    """Without it the site shows the list as a part of the paragraph, GitHub does not."""
    starts = ("- ", "* ", "1. ")
    lines = prose(path).split("\n")
    for before, line in pairwise(lines):
        inside = not before or before.startswith((*starts, " ", "#")) or re.match(r"\d+\. ", before)
        assert inside or not line.startswith(starts), line


@pytest.mark.parametrize("path", [ROOT / "AGENTS.md", ROOT / "docs" / "architecture.md"])
def test_every_package_is_in_the_layout(path):
    names = {f"{each.parent.name}/" for each in SOURCE.glob("*/__init__.py")}
    names |= {each.name for each in SOURCE.glob("[a-z]*.py")}
    text = prose(path)
    assert [name for name in sorted(names) if f"`{name}`" not in text] == []


def test_the_layers_of_the_architecture_are_those_that_are_checked():
    """The page shows them without the brackets of optional packages that do not exist yet."""
    lines = (ROOT / "pyproject.toml").read_text(encoding="utf-8").split("layers = [")[1]
    declared = re.findall(r'^  "(.*)",$', lines.split("]")[0], re.MULTILINE)
    exists = {each.stem for each in SOURCE.iterdir()}
    wanted = []
    for line in declared:
        names = [part for part in re.split(r" [|:] ", line) if part.strip("()") in exists]
        mark = " : " if " : " in line else " | "
        wanted += [mark.join(name.strip("()") for name in names)] if names else []
    shown = (ROOT / "docs" / "architecture.md").read_text(encoding="utf-8")
    assert "\n".join(["```text", *wanted, "```"]) in shown


def test_the_site_lists_every_document():
    nav = yaml.safe_load((ROOT / "mkdocs.yml").read_text(encoding="utf-8"))["nav"]
    listed = re.findall(r"[\w-]+\.md", str(nav))
    documents = {path.name for path in (ROOT / "docs").glob("*.md")}
    assert sorted(listed) == sorted({*documents, "index.md"})


def test_the_readme_lists_every_document():
    text = (ROOT / "README.md").read_text(encoding="utf-8")
    names = [path.name for path in sorted((ROOT / "docs").glob("*.md"))]
    assert [name for name in names if f"(docs/{name}" not in text] == []


def test_the_site_builds(tmp_path):
    if importlib.util.find_spec("material") is None or importlib.util.find_spec("mkdocs") is None:
        pytest.skip("pip install 'turnwise[docs]'")
    done = subprocess.run(
        [sys.executable, "-m", "mkdocs", "build", "--strict", "--site-dir", str(tmp_path)],
        cwd=ROOT,
        env=os.environ | {"NO_MKDOCS_2_WARNING": "1"},
        capture_output=True,
        text=True,
    )
    assert done.returncode == 0, done.stderr
    first = (tmp_path / "index.html").read_text(encoding="utf-8")
    assert "github.com/turnwise/turnwise/blob/main/CONTRIBUTING.md" in first
    assert 'href="math/"' in first
    assert (tmp_path / "images" / "frozen-lake.png").is_file()
