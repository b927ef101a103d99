"""benchmarks/board_games.py: its rows are recipes, a whole small run, and the table."""

from __future__ import annotations

import pytest

from turnwise.recipe.schema import load_recipe

from ..conftest import load_benchmark


@pytest.fixture(scope="module")
def script():
    return load_benchmark("board_games")


def test_rows_are_recipes_that_differ_in_the_baseline_of_the_return(script):
    schemes = {"recipe": "gigpo", "rae": "rae", "reinforce": "reinforce"}
    for env in script.ENVS:
        for name, settings in script.ROWS.items():
            recipe = load_recipe(env, list(settings))
            assert recipe.credit.scheme == schemes[name.removeprefix("self-")]
            alone = recipe.opponents.shares == {"self": 1.0}
            assert alone == name.startswith("self-")


def test_a_row_is_trained_from_a_shared_warm_up_and_told_in_the_table(script, tmp_path):
    from teams_runs import Job

    smoke = ("preset=smoke", "trainer.iterations=1", "trainer.stop_if_failed=never")
    row = script.train(Job("rae", "tic-tac-toe", 0, smoke), tmp_path, "abc")
    assert row["command"].count("turnwise train tic-tac-toe") == 2
    told = script.table([row, row | {"seed": 1}]).splitlines()
    assert len(told) == 3 and told[2].startswith("| tic-tac-toe | rae preset=smoke")
    assert told[2].split(" | ")[2] == "2"
