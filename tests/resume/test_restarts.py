"""Runs whose episodes begin in later states and are left: killed, resumed, of two processes."""

from __future__ import annotations

import json

import pytest

RESTARTS = (
    "curriculum={kind='restarts',share=0.5,states=3,explore=20}",
    "trainer.max_turns=2",
    "credit.scheme=gae",
    "credit.state_key=observation",
    "agents.player.invalid_reply=continue",
    "agents.player.invalid_limit=2",
    "sft_mix.spans.action=0.2",
    "sft_mix.action_floor=0.9",
    "episodes.keep=-1",
    "checkpoint.keep=20",
)
OPEN = "{map=['SFFF','FFFF','FFFF','FFFG'],start='random',steps=60}"
MANY = "curriculum={kind='restarts',share=0.7,states=200,explore=60}"
PLAY = (
    MANY,
    f"env.options={OPEN}",
    "env.warmup=none",
    "sft_mix.states=play",
    "sft_mix.rows=3",
    "trainer.max_turns=8",
)
"""Rows of long games of random play, several of each game, some of which begin where the curriculum
says."""


def trained(found):
    return [record for record in found["metrics"] if record["phase"] == "train"]


def learned(run):
    """Return what each checkpoint holds of the curriculum."""
    return {
        path.parent.name: json.loads(path.read_text())
        for path in sorted((run / "checkpoints").glob("*/curriculum.json"))
    }


def unbroken_run(turnwise, traces, folder, *sets):
    run = folder / "run"
    ended = turnwise.train(run, sets=(*RESTARTS, *sets))
    assert ended.code == 0, ended.said
    return traces(run), learned(run)


@pytest.fixture(scope="module")
def unbroken_restarts(turnwise, traces, tmp_path_factory):
    """The run that was never interrupted."""
    return unbroken_run(turnwise, traces, tmp_path_factory.mktemp("restarts"))


@pytest.fixture(scope="module")
def unbroken_play(turnwise, traces, tmp_path_factory):
    """The same with a longer lake, and rows of random play in each update."""
    return unbroken_run(turnwise, traces, tmp_path_factory.mktemp("play"), *PLAY)


def test_the_unbroken_run_begins_later_and_leaves_early(unbroken_restarts):
    found, states = unbroken_restarts
    records = trained(found)
    assert len(records) == 6
    assert [record["rollout/restarted_share"] for record in records] == [0.5] * 6
    assert any("rollout/score" not in record for record in records)
    assert len({record["sft_mix/factor"] for record in records}) > 2
    assert {record["total/explored_steps"] for record in records} == {20.0}
    resets = [record["total/state_resets"] for record in records]
    assert resets == [8.0 * number for number in range(1, 7)]
    assert len(states) == 4 + 6, "of warm-up and of training"
    assert all(0 < len(each["known"]) <= 3 for each in states.values())


@pytest.mark.parametrize(
    "event",
    [
        pytest.param({"place": "step", "call": 106}, id="between two mini-batches"),
        pytest.param({"place": "step", "call": 37}, id="in warm-up", marks=pytest.mark.slow),
        pytest.param({"place": "token", "call": 160}, id="in an episode", marks=pytest.mark.slow),
        pytest.param(
            {"place": "episodes", "call": 5, "after": True},
            id="before the curriculum learns",
            marks=pytest.mark.slow,
        ),
        pytest.param({"place": "sealing", "call": 8}, id="saving", marks=pytest.mark.slow),
        pytest.param({"place": "test"}, id="in the test", marks=pytest.mark.slow),
    ],
)
def test_a_killed_run_ends_with_the_same_numbers(
    turnwise, unbroken_restarts, traces, differences, tmp_path, event
):
    run = tmp_path / "run"
    assert turnwise.train(run, event, sets=RESTARTS).code == -9
    ended = turnwise.resume(run)
    assert ended.code == 0, ended.said
    assert differences(traces(run), unbroken_restarts[0]) == []
    assert learned(run) == unbroken_restarts[1]


@pytest.mark.slow
@pytest.mark.parametrize("call", [103, 106, 109, 111])
def test_a_killed_run_draws_the_same_rows_of_random_play(
    turnwise, unbroken_play, traces, differences, tmp_path, call
):
    """Some begin in states that were found before the run, whatever was learned meanwhile."""
    run = tmp_path / "run"
    assert turnwise.train(run, {"place": "step", "call": call}, sets=(*RESTARTS, *PLAY)).code == -9
    ended = turnwise.resume(run)
    assert ended.code == 0, ended.said
    assert learned(run) == unbroken_play[1]
    assert differences(traces(run), unbroken_play[0]) == []


@pytest.mark.slow
def test_equal_seeds_give_equal_runs(elsewhere, unbroken_restarts, traces, differences, tmp_path):
    run = tmp_path / "run"
    ended = elsewhere.train(run, sets=RESTARTS)
    assert ended.code == 0, ended.said
    assert differences(traces(run), unbroken_restarts[0]) == []
    assert learned(run) == unbroken_restarts[1]


@pytest.mark.slow
def test_two_processes_begin_in_the_same_states_and_go_on_after_a_kill(
    turnwise, unbroken_restarts, traces, differences, tmp_path
):
    """Sums over processes round otherwise, so that later iterations may drift apart."""
    two = (*RESTARTS, "processes=2")
    ended = turnwise.train(tmp_path / "whole", sets=two)
    assert ended.code == 0, ended.said
    whole = traces(tmp_path / "whole")
    first, one = trained(whole)[0], trained(unbroken_restarts[0])[0]
    for name in ("rollout/restarted_share", "total/env_steps", "total/state_resets"):
        assert first[name] == one[name]
    assert first["rollout/turns"] == one["rollout/turns"]
    run = tmp_path / "run"
    assert turnwise.train(run, {"place": "step", "call": 106}, sets=two).code == -9
    ended = turnwise.resume(run)
    assert ended.code == 0, ended.said
    assert differences(traces(run), whole) == []
    assert learned(run) == learned(tmp_path / "whole")
