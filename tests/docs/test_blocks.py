"""Every block of the documents has a language, and its TOML is taken as it stands."""

from __future__ import annotations

import re
import tomllib
from importlib import resources

import pytest

from turnwise.recipe.overrides import with_preset
from turnwise.recipe.schema import make_recipe, recipe_names
from turnwise.sweeps import load_sweep

from .conftest import BLOCK, PAGES, ROOT, in_language

LANGUAGES = {"bash", "python", "toml", "text"}
TOML = [block for block in in_language("toml") if block.page.name != "published-settings.md"]
"""`test_settings` checks those of the papers."""


@pytest.mark.parametrize("path", PAGES, ids=lambda path: path.name)
def test_every_block_is_fenced_and_names_its_language(path):
    text = path.read_text(encoding="utf-8")
    assert {match["language"] for match in BLOCK.finditer(text)} <= LANGUAGES
    rest = BLOCK.sub("", text)
    assert "```" not in rest
    assert "not run:" not in re.sub(r"`[^`]*`", "", rest), "a reason stands right above its block"
    assert not re.search(r"\n\n {4}\S", rest), "an indented block: fence it and name its language"


def overlaid(base, over):
    """Return `base` with the tables of `over` put in."""
    merged = dict(base)
    for key, value in over.items():
        both = isinstance(value, dict) and isinstance(base.get(key), dict)
        merged[key] = overlaid(base[key], value) if both else value
    return merged


def shipped(env):
    """Return the values of a shipped recipe that plays an env."""
    for name in recipe_names():
        data = tomllib.loads((resources.files("turnwise") / "recipes" / f"{name}.toml").read_text())
        if data["env"]["name"] == env:
            data.pop("presets", None)
            return data
    raise AssertionError(f"no recipe plays {env}")


@pytest.mark.parametrize("block", TOML, ids=str)
def test_toml_is_a_recipe_or_a_part_of_one(block, tmp_path, monkeypatch):
    monkeypatch.chdir(tmp_path)
    (tmp_path / "rows.jsonl").write_text('{"prompt": "Say yes."}\n')
    (tmp_path / "my_rewards.py").write_text("def brief(completions):\n    return completions\n")
    if block.page.name == "envs.md":
        files = [each for each in in_language("python") if each.page == block.page]
        for name in ("guide", "walk"):
            begins = f"class {name.capitalize()}(tw.Env"
            file = next(each for each in files if begins in each.text)
            (tmp_path / f"{name}.py").write_text(file.text)
    given = tomllib.loads(block.text)
    if "recipe" in given:
        (tmp_path / "sweep.toml").write_text(block.text)
        sweep = load_sweep(tmp_path / "sweep.toml")
        assert all(sweep.load(cell) for cell in sweep.all_cells)
        return
    presets = given.pop("presets", {})
    if "name" not in given:
        given = overlaid(shipped(given.get("env", {}).get("name", "frozen-lake")), given)
    assert make_recipe(given).name
    for name, preset in presets.items():
        assert make_recipe(with_preset(given, preset, name)) != make_recipe(given)


def test_the_readme_is_short():
    assert (ROOT / "README.md").read_text(encoding="utf-8").count("\n") <= 120
