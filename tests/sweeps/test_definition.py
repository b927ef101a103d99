"""What a sweep trains: its cells, its file, and what is refused."""

from __future__ import annotations

import datetime

import numpy as np
import pytest

from turnwise.errors import ConfigError
from turnwise.recipe.overrides import parse_override
from turnwise.recipe.schema import load_recipe
from turnwise.sweeps import Cell, SweepConfig, load_sweep, parse_values
from turnwise.sweeps.definition import as_override

FILE = """
recipe = "frozen-lake"
measure = "total/episodes"

[settings]
preset = "fast"
trainer.iterations = 7

[grid]
optimizer.lr = [1e-4, "auto"]
seed = [0, 1]

[[cells]]
optimizer.lr = 1.0
loss.clip_low = 0.1
"""


def test_a_grid_gives_every_combination_and_cells_give_more(tmp_path):
    (tmp_path / "rates.toml").write_text(FILE)
    sweep = load_sweep(tmp_path / "rates.toml")
    assert (sweep.name, sweep.measure) == ("rates", "total/episodes")
    assert [cell.label for cell in sweep.all_cells] == [
        "optimizer.lr=0.0001 seed=0",
        "optimizer.lr=0.0001 seed=1",
        "optimizer.lr=auto seed=0",
        "optimizer.lr=auto seed=1",
        "optimizer.lr=1.0 loss.clip_low=0.1",
    ]
    recipe = sweep.load(sweep.all_cells[1])
    assert (recipe.optimizer.lr, recipe.seed, recipe.trainer.iterations) == (1e-4, 1, 7)
    assert sweep.load(sweep.all_cells[2]).optimizer.lr == "auto"
    last = sweep.load(sweep.all_cells[4])
    assert (last.optimizer.lr, last.loss.clip_low, last.seed) == (1.0, 0.1, 0)


def test_a_recipe_beside_the_sweep_is_found(tmp_path, monkeypatch):
    folder = tmp_path / "sweeps"
    folder.mkdir()
    (folder / "own.toml").write_text("[policies.main]\nmodel = 'nano'\n")
    (folder / "s.toml").write_text("recipe = 'own.toml'\ngrid.seed = [0]\n")
    monkeypatch.chdir(tmp_path)
    assert load_sweep(folder / "s.toml").recipe == str(folder / "own.toml")
    assert load_sweep(folder / "s.toml").name == "s"


@pytest.mark.parametrize(
    ("text", "says"),
    [
        ("recipe = 'frozen-lake'", "nothing to vary"),
        ("recipe = 'frozen-lake'\ngrid.seed = []", "grid.seed has no values"),
        ("recipe = 'frozen-lake'\ngrid.seed = 3", "grid"),
        ("recipe = 'frozen-lake'\ngrid.seed = [0]\nsettings.seed = 1", "seed is in settings and"),
        ("recipe = 'frozen-lake'\ngrid.seed = [0, 0]", "equal settings"),
        ("recipe = 'frozen-lake'\ngird.seed = [0]", "did you mean 'grid'"),
        ("grid.seed = [0]", "recipe"),
        ("recipe = [", "is not TOML"),
        ("recipe = 'a'\ngrid.seed = [0]\nname = '../x'", "can end no folder's name: give letters"),
        ("recipe = 'a'\ngrid.seed = [0]\nmeasure = \"a\\u001b\"", "give a number's name, such as"),
        (f"recipe = 'a'\ngrid.a = {list(range(200))}\ngrid.b = {list(range(200))}", "40,000 cells"),
    ],
)
def test_a_wrong_file_is_refused(tmp_path, text, says):
    (tmp_path / "s.toml").write_text(text)
    with pytest.raises(ConfigError, match=says):
        load_sweep(tmp_path / "s.toml")


def test_a_missing_file_is_refused(tmp_path):
    with pytest.raises(ConfigError, match="no such file.*give a .toml file"):
        load_sweep(tmp_path / "none.toml")


@pytest.mark.parametrize("text", ["", "seed", "seed=", "=1", " =1"])
def test_what_varies_has_a_key_and_values(text):
    with pytest.raises(ConfigError, match="section.key=value,value"):
        parse_values(text)


@pytest.mark.parametrize(
    ("text", "values"),
    [
        ("a=1, 2 ,x y", [1, 2, "x y"]),
        ("a={b=1,c=2},3", [{"b": 1, "c": 2}, 3]),
        ("a='x,y',\"z\"", ["x,y", "z"]),
        ("a=true,none", [True, None]),
        ("a=[1,[2,3]]", [[1, [2, 3]]]),
    ],
)
def test_commas_part_values_outside_of_brackets_and_quotes(text, values):
    assert parse_values(text) == ("a", values)


@pytest.mark.parametrize(
    "value",
    [
        1,
        1.5,
        1e-7,
        float("inf"),
        True,
        "auto",
        "1e-3",
        "none",
        'a "b"\n\\',
        [1, "a"],
        None,
        {"a": {"b": [1.5, "x"]}},
        "a\x00b\x1b[2J\x7f\u2028",
        np.float64(0.1),
    ],
)
def test_a_value_is_read_as_it_was_written(value):
    assert parse_override(as_override("key.of", value)) == ("key.of", value)


@pytest.mark.parametrize(
    ("value", "says"),
    [
        (datetime.date(2024, 1, 1), r"seed = datetime.date\(2024, 1, 1\): expected text, a Python"),
        ([1, None], r"seed = \[1, None\]: None is no part of a list"),
        ({"a": {"b": None}}, "None is no part"),
        ({1: 2}, "the keys of a table are text"),
        ("\ud800", "it is not UTF-8 text"),
        (np.int64(1), "convert it"),
    ],
)
def test_a_value_that_cannot_be_written_is_refused(value, says):
    for given in ({"grid": {"seed": [0, value]}}, {"cells": [{"seed": value}]}):
        with pytest.raises(ValueError, match=says):
            SweepConfig(name="s", recipe="frozen-lake", **given)
    with pytest.raises(ValueError, match=says):
        SweepConfig(name="s", recipe="r", settings={"seed": value}, grid={"device": ["cpu"]})


def test_a_number_of_too_many_digits_is_refused(tmp_path):
    digits = "1" * 5000
    assert parse_override(f"seed={digits}") == ("seed", digits)
    for text in (f"recipe = 'r'\ngrid.seed = [{digits}]", f"seed = {digits}"):
        (tmp_path / "s.toml").write_text(text)
        with pytest.raises(ConfigError, match="4300 digits"):
            load_sweep(tmp_path / "s.toml")
    with pytest.raises(ConfigError, match="4300 digits"):
        load_recipe(str(tmp_path / "s.toml"))


def test_names_of_folders_differ_and_are_short():
    cells = [Cell((("a", "x/y"),)), Cell((("a", "x-y"),)), Cell((("a", "/" * 500),))]
    assert len({cell.name for cell in cells}) == 3
    assert all(len(cell.name) < 100 and "/" not in cell.name for cell in cells)
    long = Cell((("a", "\U0001d49c" * 500),)).name
    assert len(f"{long}.log".encode()) < 255
    assert Cell((("a", 1), ("b", 2))).key == Cell((("b", 2), ("a", 1))).key
    assert Cell((("a", 1),)).name != Cell((("a", "1"),)).name


def test_a_wrong_setting_names_its_cell():
    sweep = SweepConfig(name="s", recipe="frozen-lake", grid={"optimizer.lrr": [1, 2]})
    with pytest.raises(ConfigError, match=r"^optimizer.lrr=1: .*did you mean 'optimizer.lr'"):
        sweep.load(sweep.all_cells[0])
