"""A run with a pool of earlier versions ends so wherever it was killed."""

from __future__ import annotations

import pytest

pytestmark = pytest.mark.slow

RECIPE = "tic-tac-toe"
SETS = (
    "preset=smoke",
    "policies.main.nano={hidden=32,layers=1,heads=2,kv_heads=1,head_dim=16,intermediate=32}",
    "device=cpu",
    "engine.probe_tokens=64",
    "forest.probe_tokens=64",
    "warmup={steps=60,eval_every=20,optimizer={lr=1e-2}}",
    "opponents.shares={self=0.2,pool=0.6,minimax-1=0.2}",
    "opponents.pool={every=1,versions=2,latest=0.5}",
    "trainer.iterations=4",
    "trainer.group_size=4",
)
KILLS = {
    "after a version joined the pool": {"place": "step", "call": 63},
    "saving a checkpoint": {"place": "sealing", "call": 6},
    "in the test": {"place": "test"},
}


@pytest.fixture(scope="module")
def whole(turnwise, traces, tmp_path_factory):
    """The run that was never interrupted."""
    run = tmp_path_factory.mktemp("whole") / "run"
    ended = turnwise.train(run, sets=SETS, recipe=RECIPE)
    assert ended.code == 0, ended.said
    return traces(run)


def test_the_whole_run_has_something_to_lose(whole):
    played = [record for record in whole["metrics"] if record["phase"] == "train"]
    assert [record["step"] for record in played] == [1, 2, 3, 4]
    assert any(record.get("opponents/pool_version", 1.0) > 1.0 for record in played)
    assert any(not record["train/skipped"] for record in played)
    opponents = whole["scores"]["opponents"]
    assert list(opponents) == ["minimax-1", "random", "minimax-2", "perfect"]
    assert all(set(seats) == {"first", "second"} for seats in opponents.values())


@pytest.mark.parametrize("where", KILLS)
def test_a_run_killed_anywhere_ends_so(turnwise, whole, traces, differences, tmp_path, where):
    run = tmp_path / "run"
    assert turnwise.train(run, KILLS[where], sets=SETS, recipe=RECIPE).code == -9
    ended = turnwise.resume(run)
    assert ended.code == 0, ended.said
    assert differences(traces(run), whole) == []
