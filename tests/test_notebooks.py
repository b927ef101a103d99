"""The notebooks: their format, and that their commands, recipes and settings are there."""

from __future__ import annotations

import ast
import json
import re
import shlex
from itertools import pairwise
from pathlib import Path

import pytest

from turnwise.recipe.schema import load_recipe, recipe_names

from .docs.test_commands import parse, settings_of

NOTEBOOKS = sorted((Path(__file__).parents[1] / "notebooks").glob("*.ipynb"))
VALUES = {"{dtype}": ("float16", "bfloat16")}
"""Python variables in commands, and the values that they may have."""


def cells(path, kind):
    notebook = json.loads(path.read_text(encoding="utf-8"))
    return ["".join(cell["source"]) for cell in notebook["cells"] if cell["cell_type"] == kind]


def commands(path):
    """Return the words of each `turnwise` command, with every value of its variables."""
    found = []
    for line in "\n".join(cells(path, "code")).splitlines():
        if not line.startswith("!turnwise "):
            continue
        name = next((name for name in VALUES if name in line), "")
        for value in VALUES[name] if name else ("",):
            found.append(shlex.split(line.removeprefix("!turnwise ").replace(name, value)))
    return found


def test_there_is_a_notebook():
    assert [path.name for path in NOTEBOOKS] == ["ant_colony_colab.ipynb"]


@pytest.mark.parametrize("path", NOTEBOOKS, ids=lambda path: path.name)
def test_a_notebook_has_the_format_of_nbformat_4_5(path):
    notebook = json.loads(path.read_text(encoding="utf-8"))
    assert (notebook["nbformat"], notebook["nbformat_minor"]) == (4, 5)
    assert notebook["metadata"]["kernelspec"]["name"] == "python3"
    ids = [cell["id"] for cell in notebook["cells"]]
    assert len(set(ids)) == len(ids) and all(re.fullmatch(r"[\w-]{1,64}", each) for each in ids)
    for cell in notebook["cells"]:
        own = {"outputs", "execution_count"} if cell["cell_type"] == "code" else set()
        assert set(cell) == {"cell_type", "id", "metadata", "source"} | own
        assert cell["cell_type"] in ("code", "markdown")
        if own:
            assert cell["outputs"] == [] and cell["execution_count"] is None, (
                "run before it is saved"
            )


@pytest.mark.parametrize("path", NOTEBOOKS, ids=lambda path: path.name)
def test_its_python_parses(path):
    for text in cells(path, "code"):
        ast.parse("\n".join(line for line in text.splitlines() if not line.startswith("!")))


@pytest.mark.parametrize("path", NOTEBOOKS, ids=lambda path: path.name)
def test_its_commands_are_ones_and_its_settings_are_taken(path):
    found = commands(path)
    assert {words[0] for words in found} >= {"train", "eval", "card", "push"}
    for words in found:
        parse(words)
        if words[0] in ("train", "check"):
            assert words[1] in recipe_names()
            load_recipe(words[1], settings_of(words), lambda text: None)
    runs = [b for words in found for a, b in pairwise(words) if a == "--run"]
    others = [words[1] for words in found if words[0] not in ("train", "check")]
    assert set(others) == set(runs), "all commands speak of the run that is trained"


@pytest.mark.parametrize("path", NOTEBOOKS, ids=lambda path: path.name)
def test_its_text_names_presets_that_there_are(path):
    for preset in re.findall(r"preset=(\w+)", "\n".join(cells(path, "markdown"))):
        load_recipe("ant-colony-qwen3-0.6b", [f"preset={preset}"])
