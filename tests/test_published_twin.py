"""The bench of the published FrozenLake twin: variants are recipes, and it goes on where it was."""

from __future__ import annotations

import json

import pytest

from turnwise.recipe.schema import load_recipe

from .conftest import load_benchmark

SMOKE = (
    "preset=smoke",
    "env.options.prompt=plain",
    "env.options.examples=none",
    "env.options.keep=20",
)


@pytest.fixture(scope="module")
def twin():
    return load_benchmark("published_twin")


def test_the_recipe_has_the_published_numbers(twin):
    recipe = load_recipe(twin.RECIPE)
    assert (recipe.trainer.group_size, recipe.trainer.tasks_per_iteration) == (4, 4)
    assert recipe.trainer.iterations == 5 * 1000 / 4  # epochs, rows, rows in a step
    assert (recipe.optimizer.lr, recipe.optimizer.schedule) == (3e-5, "cosine")
    assert recipe.optimizer.warmup_steps == recipe.trainer.iterations / 10
    assert (recipe.loss.kl, recipe.loss.kl_weight) == ("loss_k3", 0.1)
    assert recipe.credit.rewards == {"format": 0.5, "advantage": 0.5, "bonus": 0.5}
    lora = recipe.policies["main"].lora
    assert (lora.rank, lora.alpha) == (16, 32.0)
    options = recipe.env.make("training").config
    assert (options.prompt, options.examples, options.keep) == ("published", "wrong", 155)
    assert (options.visits, options.steps) == ("expert", 1)


def test_every_variant_is_a_recipe_and_changes_something(twin):
    found = {
        name: load_recipe(twin.RECIPE, sets).to_toml() for name, sets in twin.variants().items()
    }
    assert len(set(found.values())) == len(found)
    for name in twin.REPAIRS:
        repaired = load_recipe(twin.RECIPE, twin.variants()["repaired"])
        less = load_recipe(twin.RECIPE, twin.variants()[f"repaired - {name}"])
        assert less != repaired


@pytest.mark.slow
def test_a_run_is_judged_once_and_bases_are_shared(twin, tmp_path, capsys, monkeypatch):
    monkeypatch.setattr(twin, "MOST_PATHS", 64)  # what was hardly trained says anything
    twin.run_variant("published", SMOKE, 3, tmp_path)
    twin.run_variant("published + rate", (*SMOKE, *twin.REPAIRS["rate"]), 3, tmp_path)
    assert len(list(tmp_path.glob("base-*"))) == 1
    (first,) = tmp_path.glob("published-3/measures.json")
    measures = json.loads(first.read_text())
    assert (measures["variant"], measures["seed"]) == ("published", 3)
    assert 0 <= measures["published"] <= 1
    assert sum(measures[way] for way in ("left", "down", "right", "up")) <= 1 + 1e-9
    before = first.stat().st_mtime_ns
    twin.run_variant("published", SMOKE, 3, tmp_path)
    assert first.stat().st_mtime_ns == before
    twin.print_table(tmp_path)
    said = capsys.readouterr().out
    assert "| *always-down* | | 0.653 | 0.352 |" in said
    assert "| published | 1 |" in said
