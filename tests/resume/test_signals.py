"""SIGTERM, SIGUSR1 and Ctrl-C stop a run where nothing is lost; a second Ctrl-C does not wait."""

import re
import shlex

import pytest

COMMAND = re.compile(r"`turnwise (resume [^`]*)`")


def stop(turnwise, run, *events):
    """Train until a signal stops it; return what was said, with the command that goes on."""
    ended = turnwise.train(run, *events)
    assert ended.code == 130, ended.said
    (command,) = COMMAND.findall(ended.said)
    return ended.said, shlex.split(command)


@pytest.mark.parametrize(
    ("word", "place"),
    [
        pytest.param("SIGINT", {"place": "token", "call": 133}, id="Ctrl-C while playing"),
        pytest.param("SIGTERM", {"place": "step", "call": 37}, id="SIGTERM in warm-up",
                     marks=pytest.mark.slow),
        pytest.param("SIGTERM", {"place": "saving weights", "call": 5}, id="SIGTERM between phases",
                     marks=pytest.mark.slow),
        pytest.param("SIGUSR1", {"place": "validation", "call": 2}, id="SIGUSR1 in validation",
                     marks=pytest.mark.slow),
        pytest.param("SIGUSR1", {"place": "sealing", "call": 7}, id="SIGUSR1 while saving",
                     marks=pytest.mark.slow),
    ],
)  # fmt: skip
def test_a_stopped_run_goes_on_to_the_same_numbers(
    turnwise, unbroken, traces, differences, tmp_path, word, place
):
    run = tmp_path / "a run"
    said, command = stop(turnwise, run, place | {"signals": [word]})
    assert f"stopped by {word} after saving" in said
    ended = turnwise(*command)
    assert ended.code == 0, ended.said
    assert differences(traces(run), unbroken) == []


@pytest.mark.parametrize("word", ["SIGINT", "SIGTERM", "SIGUSR1"])
def test_a_signal_loses_no_finished_iteration(turnwise, tmp_path, word):
    run = tmp_path / "run"
    stop(turnwise, run, {"place": "step", "call": 103, "signals": [word]})
    assert (run / "metrics.jsonl").read_text().count('"phase":"train"') == 2
    newest = max(path.name for path in (run / "checkpoints").iterdir() if path.is_dir())
    assert newest.endswith("-train-2")


@pytest.mark.parametrize("place", ["token", "step", "sealing"])
def test_a_second_interrupt_does_not_wait(turnwise, tmp_path, place):
    run = tmp_path / "run"
    event = {"place": place, "call": 3, "signals": ["SIGINT", "SIGINT"]}
    ended = turnwise.train(run, event)
    assert ended.code == 130
    assert "after saving" not in ended.said
    assert "stopped by SIGINT at once: " in ended.said
    assert "Traceback" not in ended.said, ended.said


@pytest.mark.slow
def test_an_interrupted_run_goes_on_to_the_same_numbers(
    turnwise, unbroken, traces, differences, tmp_path
):
    run = tmp_path / "run"
    event = {"place": "sealing", "call": 7, "signals": ["SIGINT", "SIGINT"]}
    assert turnwise.train(run, event).code == 130
    ended = turnwise.resume(run)
    assert ended.code == 0, ended.said
    assert differences(traces(run), unbroken) == []


def test_ctrl_c_is_answered_at_once_and_says_how_to_go_on(turnwise, tmp_path):
    run = tmp_path / "run"
    said, command = stop(turnwise, run, {"place": "step", "call": 103, "signals": ["SIGINT"]})
    first, last = said.index("Ctrl-C: stopping after this iteration"), said.index("after saving")
    assert first < last
    assert command == ["resume", str(run)]


def test_ctrl_c_before_anything_is_recorded_leaves_no_folder(turnwise, tmp_path):
    run = tmp_path / "new" / "run"
    event = {"place": "token", "call": 1, "signals": ["SIGINT", "SIGINT"]}
    ended = turnwise.train(run, event, sets=("warmup.steps=0",))
    assert ended.code == 130
    assert "begin again, as nothing was recorded yet" in ended.said
    assert list(tmp_path.iterdir()) == []
