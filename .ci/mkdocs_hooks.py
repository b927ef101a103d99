"""Hooks of the site: README.md becomes its first page, and links out of docs/ lead to GitHub.

The documents are read in three places: on GitHub, by `turnwise docs NAME`, and on the site. Their
links are those that work on GitHub; the site has docs/ only, so others are rewritten here.
"""

from __future__ import annotations

import re
from pathlib import Path

from mkdocs.config.defaults import MkDocsConfig
from mkdocs.structure.files import File, Files
from mkdocs.structure.pages import Page

ROOT = Path(__file__).parents[1]
LINK = re.compile(r"(?<=\]\()(?![a-z]+:|#)([^)#\s]+)(#[^)\s]*)?(?=\))")
"""The target of a relative link, and its anchor."""


def on_files(files: Files, *, config: MkDocsConfig) -> Files:
    """Add README.md as the first page."""
    text = (ROOT / "README.md").read_text(encoding="utf-8")
    files.append(File.generated(config, "index.md", content=rewritten(text, ROOT, config)))
    return files


def on_page_markdown(markdown: str, *, page: Page, config: MkDocsConfig, files: Files) -> str:
    """Return a page with its links rewritten; the first page's have been already."""
    if page.file.src_uri == "index.md":
        return markdown
    return rewritten(markdown, ROOT / "docs", config)


def rewritten(text: str, folder: Path, config: MkDocsConfig) -> str:
    """Return `text`, a file of `folder`, with its links as the site needs them."""

    def target(found: re.Match[str]) -> str:
        path = (folder / found[1]).resolve()
        if not path.exists():
            return found[0]  # the build fails there
        if path.is_relative_to(ROOT / "docs"):
            return path.relative_to(ROOT / "docs").as_posix() + (found[2] or "")
        kind = "tree" if path.is_dir() else "blob"
        repository = str(config.repo_url).rstrip("/")
        return f"{repository}/{kind}/main/{path.relative_to(ROOT).as_posix()}{found[2] or ''}"

    return LINK.sub(target, text)
