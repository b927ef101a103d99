"""benchmarks/ant_twin.py: its rows are changes of the published recipe, a small run, the table."""

from __future__ import annotations

import pytest

from turnwise.recipe.schema import load_recipe

from ..conftest import load_benchmark

SMOKE = ("preset=smoke", "evaluation.test_tasks=2", "trainer.stop_if_failed=never")


@pytest.fixture(scope="module")
def script():
    return load_benchmark("ant_twin")


def test_rows_change_the_published_training_and_nothing_else(script):
    recipes = {
        name: load_recipe(script.RECIPE, [*script.NANO, *script.SMALL, *settings])
        for name, settings in script.ROWS.items()
    }
    twin = recipes["published"]
    assert twin.trainer.iterations * twin.trainer.tasks_per_iteration == 30
    assert (twin.trainer.group_size, twin.optimizer.lr) == (4, 5e-6)
    assert twin.policies["main"].model == "nano" and twin.policies["main"].lora is None
    assert twin.warmup is not None and twin.warmup.player == "heuristic"
    for name, recipe in recipes.items():
        assert recipe.evaluation == twin.evaluation and recipe.warmup == twin.warmup
        assert recipe.env.options == twin.env.options and recipe.curriculum == twin.curriculum
        assert (recipe == twin) == (name == "published")


def test_a_row_is_trained_from_a_shared_warm_up_and_told_in_the_table(script, tmp_path):
    from teams_runs import Job

    row = script.train(Job("rate", "tier-0", 0, SMOKE), tmp_path, "abc")
    assert row["command"].count("turnwise train ant-colony-qwen3-0.6b") == 2
    assert row["tier"] in (0, 1)
    told = script.table([row, row | {"seed": 1}]).splitlines()
    assert len(told) == 3 and told[2].startswith("| tier-0 | rate preset=smoke")
    assert told[2].split(" | ")[3] == f"{row['tier']} {row['tier']}"
