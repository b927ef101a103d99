"""Recipes of gymnasium envs and of tools train from end to end, told beside their baselines."""

from __future__ import annotations

import pytest

from turnwise.app import lifecycle
from turnwise.recipe.schema import load_recipe
from turnwise.runs import Run
from turnwise.runs.metrics import read_metrics

from ..conftest import TINY

RIVALS = {
    "taxi": "optimal",
    "cliff-walking": "optimal",
    "blackjack": "basic-strategy",
    "mountain-car-continuous": "push-with-velocity",
    "treasure": "optimal",
}


@pytest.mark.slow
@pytest.mark.parametrize("name", RIVALS)
def test_a_recipe_trains_from_end_to_end(name, tmp_path):
    outcome = lifecycle.train(load_recipe(name, TINY), run=tmp_path / "run")
    assert outcome.finished and outcome.scores is not None
    assert {"random", "warmup", RIVALS[name]} <= set(outcome.scores.baselines)
    records = read_metrics(Run.open(tmp_path / "run").metrics)
    assert [record["phase"] for record in records] == ["warmup"] * 2 + ["train"] * 2
    assert f"baseline: {RIVALS[name]}" in Run.open(tmp_path / "run").report.read_text()
