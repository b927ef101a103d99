"""A run through base, merged imitation and reinforcement ends so wherever it was killed."""

import itertools
from pathlib import Path

import pytest

RECIPE = Path(__file__).parents[1] / "adapters" / "tiny.toml"
KILLS = {
    "in pretraining": {"place": "step", "call": 40},
    "saving the base": {"place": "saving weights", "call": 4},
    "renaming the base": {"place": "renaming", "call": 5},
    "between pretraining and warm-up": {"place": "pretraining done"},
    "in the adapter's warm-up": {"place": "step", "call": 88},
    "saving the warm-up's adapter": {"place": "saving weights", "call": 7},
    "just before the merge": {"place": "merging"},
    "just after the merge": {"place": "merging", "after": True},
    "before training": {"place": "training"},
    "before the first checkpoint on merged weights": {"place": "step", "call": 97},
    "on merged weights": {"place": "step", "call": 101},
    "keeping the adapter": {"place": "saving weights", "call": 13},
    "in the test": {"place": "test"},
}


@pytest.fixture(scope="module")
def whole(turnwise, traces, tmp_path_factory):
    """The run that was never interrupted."""
    run = tmp_path_factory.mktemp("whole") / "run"
    ended = turnwise.train(run, recipe=RECIPE)
    assert ended.code == 0, ended.said
    return traces(run)


def test_the_whole_run_has_something_to_lose(whole):
    phases = [record["phase"] for record in whole["metrics"]]
    assert [p for p, _ in itertools.groupby(phases)] == ["pretrain", "warmup", "train"]
    assert all(not r["train/skipped"] for r in whole["metrics"] if r["phase"] == "train")
    assert whole["adapters/main/sft"] != whole["adapters/main/grpo"] != whole["start/main"]
    assert {"base", "adapters", "start"} <= set(whole["folders"])


def test_a_run_killed_at_the_merge_ends_with_the_same_numbers(
    turnwise, whole, traces, differences, tmp_path
):
    run = tmp_path / "run"
    assert turnwise.train(run, {"place": "merging", "after": True}, recipe=RECIPE).code == -9
    ended = turnwise.resume(run)
    assert ended.code == 0, ended.said
    assert differences(traces(run), whole) == []


@pytest.mark.slow
@pytest.mark.parametrize("where", KILLS)
def test_a_run_killed_anywhere_ends_so(turnwise, whole, traces, differences, tmp_path, where):
    run = tmp_path / "run"
    assert turnwise.train(run, KILLS[where], recipe=RECIPE).code == -9
    ended = turnwise.resume(run)
    assert ended.code == 0, ended.said
    assert differences(traces(run), whole) == []


@pytest.mark.slow
def test_a_run_killed_again_and_again_ends_so(turnwise, whole, traces, differences, tmp_path):
    run = tmp_path / "run"
    assert turnwise.train(run, {"place": "step", "call": 40}, recipe=RECIPE).code == -9
    again = [
        {"place": "renaming", "call": 3},
        {"place": "pretraining done", "call": 2},
        {"place": "merging", "after": True},
        {"place": "renaming", "call": 2},
        {"place": "training"},
        {"place": "step", "call": 3},
        {"place": "validation"},
        {"place": "test"},
    ]
    codes = [turnwise.resume(run, event).code for event in again]
    assert codes == [-9] * len(again)
    ended = turnwise.resume(run)
    assert ended.code == 0, ended.said
    assert differences(traces(run), whole) == []


@pytest.mark.slow
def test_a_run_stopped_in_pretraining_goes_on(turnwise, whole, traces, differences, tmp_path):
    run = tmp_path / "run"
    stop = {"place": "step", "call": 40, "signals": ("SIGTERM",)}
    ended = turnwise.train(run, stop, recipe=RECIPE)
    assert ended.code != 0 and "turnwise resume" in ended.said
    assert not (run / "base").exists()
    assert turnwise("eval", run, "--tasks", 2).code == 0
    assert turnwise.resume(run).code == 0
    assert differences(traces(run), whole) == []
