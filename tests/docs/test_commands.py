"""Commands in the documents: those of blocks run where that is cheap, all others are checked.

`turnwise` is parsed, and settings must be taken by some shipped recipe, or by the env whose
baselines are scored. Scripts, tests and make targets must exist, and a script must know the options
that it is given.
"""

from __future__ import annotations

import os
import re
import shlex
import subprocess
import sys
import tomllib
from functools import cache
from itertools import pairwise

import pytest
import typer
from typer.testing import CliRunner

from turnwise.cli.main import app
from turnwise.cli.play import options_of
from turnwise.envs import ENVS, make_env
from turnwise.errors import TurnwiseError
from turnwise.recipe.schema import load_recipe, recipe_names
from turnwise.sweeps import parse_values
from turnwise.sweeps.definition import as_override

from ..conftest import TINY
from .conftest import BLOCK, PAGES, ROOT, in_language

CHEAP = {
    "train": [part for each in TINY for part in ("--set", each)],
    "sweep": [part for each in TINY for part in ("--set", each)],
    "eval": ["--tasks", "2"],
    "resume": [],
    "play": [],
    "report": [],
    "recipes": [],
    "envs": [],
    "docs": [],
    "check": [],
    "sandbox": [],
    "search": ["--set", "budget.fresh=2", "--set", "budget.warmup=0"],
}
"""Command of `turnwise` -> what makes it cheap, put behind what the document says."""
HEADS = {"turnwise", "make", "pip", "python", "pytest", "sbatch", ".ci/run"}
ELSEWHERE = {"git", "cd", ".venv/bin/pre-commit"}
"""Other people's commands, which are not checked."""


def commands(text):
    """Return the commands of a shell text as lists of words, comments and variables dropped."""
    found = []
    for line in text.replace("\\\n", " ").splitlines():
        for part in re.split(r";|&&", line.split(" #")[0]):
            words = shlex.split(part, comments=True)
            while words and re.fullmatch(r"[A-Z_]+=.*", words[0]):
                del words[0]
            if words:
                found.append(words)
    return found


def written():
    """Yield every command of the documents with the page it is on, blocks first."""
    for block in in_language("bash"):
        for words in commands(block.text):
            yield block.page.name, words
    for page in PAGES:
        for code in re.findall(r"`([^`]+)`", BLOCK.sub("", page.read_text(encoding="utf-8"))):
            if code.split()[0] in HEADS and len(code.split()) > 1 and "..." not in code:
                yield page.name, commands(" ".join(code.split()))[0]


WRITTEN = sorted({(page, *words) for page, words in written()})


def settings_of(words):
    """Return the values of --set, with placeholders for numbers replaced."""
    pairs = pairwise(words)
    return [re.sub(r"=N$", "=1", value) for option, value in pairs if option == "--set"]


@cache
def takes(recipe, *settings):
    """Return whether a shipped recipe takes all of these settings."""
    try:
        load_recipe(recipe, settings, lambda text: None)
    except TurnwiseError:
        return False
    return True


def parse(words):
    """Parse the words behind `turnwise` as its commands do, without carrying them out.

    What a mention in the prose leaves out may be missing, such as the file of `turnwise data NAME`.
    """
    command, name, rest = typer.main.get_command(app), "turnwise", list(words)
    while rest and hasattr(command, "commands"):
        assert rest[0] in command.commands, f"no command {' '.join(words)}"
        command, name, rest = command.commands[rest[0]], rest[0], rest[1:]
    if not rest:
        return
    try:
        command.make_context(name, rest)
    except typer.BadParameter as error:
        assert type(error).__name__ == "MissingParameter", error


def known_option(script, words):
    """Return the options among `words` that neither a script nor a module beside it has."""
    text = script.read_text(encoding="utf-8")
    for name in re.findall(r"^from (\w+) import", text, re.MULTILINE):
        if (beside := script.with_name(f"{name}.py")).is_file():
            text += beside.read_text(encoding="utf-8")
    return [w for w in words if w.startswith("--") and f'"{w.split("=")[0]}"' not in text]


@pytest.mark.parametrize("found", WRITTEN, ids=" ".join)
def test_a_command_is_one(found, tmp_path, monkeypatch):
    _, head, *rest = found
    if head == "turnwise":
        (tmp_path / "program.py").write_text("")
        monkeypatch.chdir(tmp_path)
        parse(rest)
        settings, recipe = settings_of(rest), rest[1] if len(rest) > 1 else ""
        if rest[0] == "eval" and "--baselines" in rest and recipe in ENVS:
            assert make_env(recipe, **options_of(settings)).name == recipe
        elif rest[0] in ("train", "eval") and settings:
            which = [recipe] if recipe in recipe_names() else recipe_names()
            assert any(takes(name, *settings) for name in which), settings
        if rest[0] == "sweep":
            varied = [parse_values(b) for a, b in pairwise(rest) if a == "--over"]
            each = [as_override(key, value) for key, values in varied for value in values]
            assert "." in recipe or all(takes(recipe, *settings, one) for one in each)
        if rest[0] in ("train", "sweep") and "." not in recipe and recipe and not recipe.isupper():
            assert recipe in recipe_names()
    elif head == "make":
        targets = re.findall(r"^([a-z-]+):", (ROOT / "Makefile").read_text(), re.MULTILINE)
        assert [w for w in rest if "=" not in w and w not in targets] == []
    elif head == "pip":
        project = tomllib.loads((ROOT / "pyproject.toml").read_text())["project"]
        assert rest[0] == "install"
        for extra in re.findall(r"\[([\w,]+)\]", rest[-1]):
            assert set(extra.split(",")) <= set(project["optional-dependencies"])
    elif head == "python":
        assert known_option(ROOT / rest[0], rest[1:]) == []
    elif head == "pytest":
        text = (ROOT / rest[0]).read_text(encoding="utf-8")
        assert all(word in text for word in rest[rest.index("-k") + 1 :]) if "-k" in rest else text
    elif head == "sbatch":
        assert [w for w in rest if w.endswith(".sbatch") and not (ROOT / w).is_file()] == []
    else:
        assert head in ELSEWHERE or (ROOT / head).is_file()


@pytest.mark.parametrize("block", in_language("bash", run=True), ids=str)
def test_a_block_runs(block, tmp_path, monkeypatch, request):
    """Line after line in one folder: `runs/X` is the run that an earlier line trained."""
    monkeypatch.chdir(tmp_path)
    (tmp_path / "program.py").write_text("def area(a, b):\n    return a * b\n")
    for head, *rest in commands(block.text):
        assert head == "turnwise", f"{head}: give the block a reason why it is not run"
        if rest[0] == "sandbox":
            request.getfixturevalue("isolated")  # skips where no program can be isolated
        more = CHEAP[rest[0]]
        if rest[0] == "train" and not (tmp_path / "runs" / "X").exists():
            more = [*more, "--run", "runs/X"]
        result = CliRunner().invoke(app, [*rest, *more])
        assert result.exit_code == 0, f"turnwise {' '.join(rest)}: {result.output}"


def test_the_quick_start_is_what_make_runs():
    """`make quickstart` trains the recipe whose numbers the README shows."""
    done = subprocess.run(
        ["make", "--no-print-directory", "--dry-run", "quickstart"],
        cwd=ROOT,
        env=os.environ | {"VENV": sys.prefix},
        capture_output=True,
        text=True,
    )
    assert done.stdout.splitlines()[-1].endswith("turnwise train frozen-lake"), done.stderr
