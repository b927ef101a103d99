"""Exams of the curriculum of tiers in training: when they are held, and what is kept of them."""

from __future__ import annotations

import json

import pytest

from turnwise.recipe.schema import load_recipe
from turnwise.runs import Run
from turnwise.runs.metrics import read_metrics

SMOKE = ("preset=smoke", "curriculum.every=2", "trainer.iterations=2")


@pytest.mark.slow
@pytest.mark.timeout(300)
def test_exams_are_held_and_their_tier_is_kept(tmp_path):
    from turnwise.app import lifecycle

    recipe = load_recipe("ant-colony", list(SMOKE), lambda text: None)
    lifecycle.train(recipe, run=tmp_path / "run")
    run = Run.open(tmp_path / "run")
    records = [record for record in read_metrics(run.metrics) if record["phase"] == "train"]
    first, last = records[-2:]
    assert first["curriculum/tier"] == last["curriculum/tier"] == 0.0
    assert first["curriculum/visits_0"] == 2.0
    assert "curriculum/exam_share" not in first and last["curriculum/exam_share"] >= 0.0
    (kept,) = list(run.checkpoints.glob("*train*2/curriculum.json"))
    assert json.loads(kept.read_text(encoding="utf-8"))["tier"] == 0
