"""Runs with the automatic learning rate: killed and resumed, and with two processes."""

from __future__ import annotations

import pytest

AUTO = ("optimizer.lr='auto'", "optimizer.lr_start=0.3", "trainer.iterations=4")


@pytest.fixture(scope="module")
def unbroken_auto(turnwise, traces, tmp_path_factory):
    """The run that was never interrupted."""
    run = tmp_path_factory.mktemp("auto") / "run"
    ended = turnwise.train(run, sets=AUTO)
    assert ended.code == 0, ended.said
    return traces(run)


def trained(found):
    return [record for record in found["metrics"] if record["phase"] == "train"]


def test_the_unbroken_run_undoes_updates_and_finds_its_rate(unbroken_auto):
    records = trained(unbroken_auto)
    assert len(records) == 4
    assert records[0]["optim/undone"] >= 1
    assert len({record["optim/lr"] for record in records}) == 4
    state = unbroken_auto["checkpoints/train-4/main optimizer"]
    assert state["found"] is not None
    assert state["steps"] == 8


@pytest.mark.parametrize(
    "call",
    [pytest.param(102, id="while an update is undone"), pytest.param(-2, id="in the last update")],
)
def test_a_killed_run_ends_with_the_same_numbers(
    turnwise, unbroken_auto, traces, differences, tmp_path, call
):
    steps = 100 + sum(2 * (1 + int(r["optim/undone"])) for r in trained(unbroken_auto))
    event = {"place": "step", "call": call if call > 0 else steps + call}
    run = tmp_path / "run"
    assert turnwise.train(run, event, sets=AUTO).code == -9
    ended = turnwise.resume(run)
    assert ended.code == 0, ended.said
    assert differences(traces(run), unbroken_auto) == []


@pytest.mark.slow
def test_two_processes_agree_on_the_time_that_their_schedule_follows(turnwise, tmp_path):
    """Processes whose weights differ in the last bit end with an error."""
    limit = ("trainer.minutes=0.5", "trainer.iterations=1000", "optimizer.schedule=linear")
    ended = turnwise.train(tmp_path / "run", sets=(*AUTO, *limit, "processes=2"))
    assert ended.code == 0, ended.said


@pytest.mark.slow
def test_two_processes_find_the_same_rate(turnwise, unbroken_auto, traces, tmp_path):
    """Sums over processes round otherwise, so that later iterations drift apart."""
    run = tmp_path / "run"
    ended = turnwise.train(run, sets=(*AUTO, "processes=2"))
    assert ended.code == 0, ended.said
    two, one = (trained(each)[0] for each in (traces(run), unbroken_auto))
    assert two["optim/undone"] == one["optim/undone"]
    for name in ("policy/movement", "policy/movement_wanted", "optim/lr"):
        assert two[name] == pytest.approx(one[name], rel=0.02)
