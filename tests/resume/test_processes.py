"""Runs of two processes: killed, interrupted and resumed, also with another number of processes."""

import json
import os
import re
import signal
import subprocess
import sys
import time

import pytest

import turnwise as tw
from turnwise.errors import ConfigError, RewardError
from turnwise.recipe.schema import load_recipe
from turnwise.runs import Run, read_episodes, read_metrics

TWO = ("processes=2",)
COMMAND = re.compile(r"`turnwise resume [^`]*`")


@pytest.fixture(scope="session")
def whole(turnwise, traces, tmp_path_factory):
    """The run of two processes that was never interrupted."""
    run = tmp_path_factory.mktemp("whole") / "run"
    ended = turnwise.train(run, sets=TWO)
    assert ended.code == 0, ended.said
    return traces(run), ended.said


@pytest.mark.slow
def test_memory_of_each_process_is_recorded_and_said(whole):
    assert re.search(r"Peak memory of the 2 processes: \d+ MB, \d+ MB", whole[1])


@pytest.mark.slow
@pytest.mark.parametrize(
    "event",
    [
        pytest.param({"place": "step", "call": 37}, id="in warm-up"),
        pytest.param({"place": "step", "call": 104}, id="between two mini-batches"),
        pytest.param({"place": "sealing", "call": 8}, id="before a checkpoint is whole"),
        pytest.param({"place": "test"}, id="in the test"),
    ],
)
def test_a_killed_run_of_two_processes_ends_with_the_same_numbers(
    turnwise, whole, traces, differences, tmp_path, event
):
    run = tmp_path / "run"
    assert turnwise.train(run, event, sets=TWO).code == -9
    ended = turnwise.resume(run)
    assert ended.code == 0, ended.said
    assert differences(traces(run), whole[0]) == []


@pytest.mark.slow
def test_ctrl_c_stops_after_the_iteration_and_the_run_goes_on(
    turnwise, whole, traces, differences, tmp_path
):
    run = tmp_path / "run"
    event = {"place": "step", "call": 103, "signals": ["SIGINT"]}
    stopped = turnwise.train(run, event, sets=TWO)
    assert stopped.code == 130 and "stopped by SIGINT after saving" in stopped.said
    assert (run / "metrics.jsonl").read_text().count('"phase":"train"') == 2
    assert turnwise.resume(run).code == 0
    assert differences(traces(run), whole[0]) == []


@pytest.mark.slow
def test_a_second_ctrl_c_does_not_wait_for_the_other_process(turnwise, tmp_path):
    run = tmp_path / "run"
    event = {"place": "step", "call": 103, "signals": ["SIGINT", "SIGINT"]}
    ended = turnwise.train(run, event, sets=TWO)
    assert ended.code == 130 and "stopped by SIGINT at once: " in ended.said
    assert "Traceback" not in ended.said, ended.said


@pytest.mark.slow
def test_a_run_goes_on_with_another_number_of_processes(turnwise, tmp_path):
    run = tmp_path / "run"
    assert turnwise.train(run, {"place": "step", "call": 104}, sets=TWO).code == -9
    ended = turnwise("resume", run, "--set", "processes=1")
    assert ended.code == 0, ended.said
    assert "processes from 2 to 1" in ended.said
    found = read_metrics(Run(run).metrics)
    assert [record["step"] for record in found if record["phase"] == "train"] == list(range(1, 7))
    assert "mem/peak_mb_process_2" in found[0] and "mem/peak_mb_process_2" not in found[-1]


def children(of):
    """Return the processes that `of` started."""
    found = []
    for entry in os.listdir("/proc"):
        if entry.isdigit():
            try:
                with open(f"/proc/{entry}/stat") as file:
                    parent = int(file.read().rpartition(")")[2].split()[1])
            except OSError:
                continue
            found += [int(entry)] if parent == of else []
    return found


@pytest.mark.slow
@pytest.mark.skipif(sys.platform != "linux", reason="looks for processes in /proc")
def test_a_killed_process_ends_the_run_with_one_sentence(turnwise, tmp_path):
    run = tmp_path / "run"
    tiny = os.path.join(os.path.dirname(__file__), "tiny.toml")
    words = ["train", tiny, "--run", str(run), "--set", "processes=2"]
    words += ["--set", "trainer.iterations=500"]
    with subprocess.Popen(
        [sys.executable, "-m", "turnwise", *words],
        stdout=subprocess.PIPE,
        stderr=subprocess.STDOUT,
        text=True,
        env=os.environ | {"OMP_NUM_THREADS": "1"},
    ) as process:
        log, deadline = run / "metrics.jsonl", time.monotonic() + 200
        while not (log.is_file() and '"train"' in log.read_text()):
            assert process.poll() is None and time.monotonic() < deadline
            time.sleep(0.1)
        (worker,) = children(process.pid)
        os.kill(worker, signal.SIGKILL)
        said = process.communicate()[0]
    assert process.returncode == 2
    assert "Traceback" not in said
    (sentence,) = re.findall(r"error: .*", said)
    assert "process 2 of 2 was killed by signal 9 (SIGKILL)" in sentence
    assert f"turnwise resume {run}" in sentence
    done = sum(record["phase"] == "train" for record in read_metrics(Run(run).metrics))
    ended = turnwise("resume", run, "--set", f"trainer.iterations={done + 1}")
    assert ended.code == 0, ended.said


REWARD = """
import os
from pathlib import Path

def length(prompts, completions, **kwargs):
    with (Path(__file__).parent / "calls.txt").open("a") as file:
        file.write(f"{os.getpid()} {len(completions)}\\n")
    if (Path(__file__).parent / "fail").exists():
        raise KeyError("no")
    return [float(len(text)) for text in completions]
"""
SMALL = {
    "processes": 2,
    "trainer.iterations": 2,
    "trainer.tasks_per_iteration": 3,
    "trainer.group_size": 4,
    "agents.player.max_tokens": 3,
    "evaluation.test_tasks": 5,
    "evaluation.validation_tasks": 5,
}
ROWS = [{"prompt": f"{word} says"} for word in ("cat", "dog", "cow", "hen", "pig")]


@pytest.mark.slow
def test_a_reward_function_is_called_once_with_all_completions(tmp_path):
    (tmp_path / "mine.py").write_text(REWARD)
    given = {"reward": f"{tmp_path}/mine.py:length", "settings": SMALL, "progress": False}
    outcome = tw.train("nano", ROWS, **given, run=tmp_path / "run")
    assert outcome.finished
    calls = [line.split() for line in (tmp_path / "calls.txt").read_text().splitlines()]
    assert {int(process) for process, _ in calls} == {os.getpid()}
    assert [int(count) for _, count in calls].count(12) == 2
    (tmp_path / "fail").touch()
    with pytest.raises(RewardError, match="KeyError"):
        tw.train("nano", ROWS, **given, run=tmp_path / "again")


ENV = """
import os
from turnwise import Env, Observation, Step

class Odd(Env):
    name = "odd"
    components = {"right": "agent"}

    def generate(self, rng):
        return {"number": int(rng.integers(1000))}

    def reset(self, task):
        return task.data["number"]

    def observe(self, state, role):
        return Observation(text=f"number {state}", legal_actions=())

    def random_action(self, state, role, rng):
        return "a"

    def step(self, state, role, action, noise):
        return Step(state=state, rewards={"right": 1.0}, terminated=True, truncated=False)

    def score(self, state):
        training = os.path.exists(os.environ.get("ODD_TRAINS", ""))
        if training and os.environ["ODD_PARENT"] == str(os.getppid()):
            raise KeyError("only in a process of the run")
        return 1.0
"""


@pytest.mark.slow
def test_an_error_of_the_env_in_another_process_is_recorded(tmp_path, monkeypatch):
    (tmp_path / "odd.py").write_text(ENV)
    monkeypatch.setenv("ODD_PARENT", str(os.getpid()))
    monkeypatch.setenv("ODD_TRAINS", str(Run(tmp_path / "run").start("main")))
    settings = SMALL | {"agents.player.reply": "whole", "trainer.stop_if_failed": "never"}
    settings |= {"trainer.tasks_per_iteration": 4}
    outcome = tw.train(
        "nano", env=f"{tmp_path}/odd.py:Odd", settings=settings, run=tmp_path / "run",
        progress=False,
    )  # fmt: skip
    (file, *_) = sorted((outcome.run / "episodes").glob("train-*"))
    episodes = read_episodes(file).episodes
    assert [e.id.visit for e in episodes] == sorted(e.id.visit for e in episodes)
    broken = {e.id.visit for e in episodes if e.error and e.error.kind == "env"}
    assert broken == {1, 3}, "process 2 plays every second visit"
    assert all("only in a process" in e.error.message for e in episodes if e.id.visit in broken)


def test_what_only_this_session_knows_cannot_be_shared(tmp_path):
    with pytest.raises(ConfigError, match="processes = 2, but .* put it into a file"):
        tw.train("nano", ROWS, reward=lambda completions: [1.0] * len(completions), settings=SMALL,
                 run=tmp_path / "run", progress=False)  # fmt: skip
    assert not (tmp_path / "run").exists()


def test_numbers_of_processes_and_threads_may_change_on_resume():
    from turnwise.runs.changes import MAY_CHANGE

    recipe = load_recipe("frozen-lake", ["processes=2", "threads=1"])
    assert {"processes", "threads"} <= set(MAY_CHANGE)
    assert json.loads(recipe.model_dump_json())["processes"] == 2
