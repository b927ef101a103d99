"""A run that climbs tiers ends with the same numbers wherever it was killed."""

from __future__ import annotations

import json

import pytest

CLIMBING = (
    "curriculum={kind='tiers',option='size',first=4,last=5,every=2,tasks=16,baseline='random',"
    "advance=0.01,retreat=0.0}",
    "env.options.map=none",
    "env.options.size=5",
    "env.options.frozen_probability=0.95",
    "episodes.keep=-1",
    "checkpoint.keep=20",
)
"""Lakes of 4x4 cells, and of 5x5 after two exams, which almost any policy passes."""


@pytest.fixture(scope="module")
def climbed(turnwise, traces, tmp_path_factory):
    """The run that was never interrupted, and the tier that each checkpoint holds."""
    run = tmp_path_factory.mktemp("climbed") / "run"
    ended = turnwise.train(run, sets=CLIMBING)
    assert ended.code == 0, ended.said
    return traces(run), tiers(run)


def tiers(run):
    """Return the tier in each checkpoint of training."""
    return [
        json.loads(path.read_text())["tier"]
        for path in sorted((run / "checkpoints").glob("*-train-*/curriculum.json"))
    ]


def test_the_unbroken_run_changes_its_tier(climbed):
    found, held = climbed
    trained = [record for record in found["metrics"] if record["phase"] == "train"]
    assert [record["curriculum/tier"] for record in trained] == [4, 4, 4, 4, 5, 5]
    assert sorted(set(held)) == [4, 5]


@pytest.mark.parametrize(
    "event",
    [
        pytest.param({"place": "step", "call": 109}, id="in the first iteration of a tier"),
        pytest.param({"place": "sealing", "call": 6}, id="saving", marks=pytest.mark.slow),
        pytest.param({"place": "token", "call": 90}, id="playing", marks=pytest.mark.slow),
        pytest.param({"place": "metrics", "call": 4}, id="after an exam", marks=pytest.mark.slow),
    ],
)
def test_a_run_killed_near_a_change_of_tier_ends_so(
    turnwise, climbed, traces, differences, tmp_path, event
):
    run = tmp_path / "run"
    assert turnwise.train(run, event, sets=CLIMBING).code == -9
    ended = turnwise.resume(run)
    assert ended.code == 0, ended.said
    assert differences(traces(run), climbed[0]) == []
    assert tiers(run) == climbed[1]
