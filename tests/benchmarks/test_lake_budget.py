"""benchmarks/lake_budget.py: its rows play no more episodes than a search, and a small run."""

from __future__ import annotations

import pytest

from turnwise.recipe.schema import load_recipe
from turnwise.search.config import BudgetConfig
from turnwise.trainers.config import GrpoConfig

from ..conftest import load_benchmark


@pytest.fixture(scope="module")
def script():
    return load_benchmark("lake_budget")


def test_rows_play_nearly_as_many_episodes_as_a_search_and_no_more(script):
    budget = BudgetConfig()
    most = budget.iterations * budget.episodes + budget.warmup
    assert most == script.EPISODES
    for name, settings in script.ROWS.items():
        recipe = load_recipe(script.ENVS[0], [*script.LAKE, *settings], lambda note: None)
        trainer = recipe.trainer
        assert isinstance(trainer, GrpoConfig)
        played = trainer.iterations * trainer.tasks_per_iteration * trainer.group_size
        assert 0.97 * most < played <= most
        paid = {part for part, weight in recipe.credit.rewards.items() if weight}
        assert paid == ({"expert"} if name == "expert" else {"goal", "invalid"})
        assert recipe.env.training.get("steps", 100) == (1 if name == "expert" else 100)
        assert recipe.env.options["map"] == ["SFFF", "FHFH", "FFFH", "HFFG"]


def test_a_row_is_trained_from_a_shared_warm_up_and_told_in_the_table(script, tmp_path):
    from teams_runs import Job

    smoke = ("preset=smoke", "trainer.iterations=1", "trainer.stop_if_failed=never")
    smoke += ("trainer.tasks_per_iteration=2", "trainer.group_size=2")
    smoke += ("trainer.minibatches=2", "trainer.epochs=1", "evaluation.exact=1")
    row = script.train(Job("episodes", "frozen-lake-slippery-maps", 0, smoke), tmp_path, "abc")
    assert row["command"].count("turnwise train frozen-lake-slippery-maps") == 2
    exact = row["scores"]["exact"]["trained, greedy"]["success"]
    told = script.table([row, row | {"seed": 1}]).splitlines()
    assert told[2].split(" | ")[2:4] == ["2", f"{exact:.3f} ± 0.000"]
