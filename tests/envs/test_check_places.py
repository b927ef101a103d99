"""The errors of `check_env` for a single problem, both ends at once and no end, with places."""

from __future__ import annotations

import re
from dataclasses import replace
from pathlib import Path

import pytest
from typer.testing import CliRunner

from turnwise.cli.main import app
from turnwise.envs import Env, Observation, Step, check_env, make_env
from turnwise.envs.checks.declarations import place_of_method
from turnwise.errors import EnvError, IllegalActionError
from turnwise.types import Task

HERE = Path(__file__)


class Steps(Env[tuple[int, int]]):
    """Ends after four steps."""

    name = "steps"
    components = {"a": "agent"}  # noqa: RUF012

    def generate(self, rng):
        return {"n": int(rng.integers(100))}

    def reset(self, task):
        return (task.data["n"], 0)

    def observe(self, state, role):
        return Observation(text=f"{state}", legal_actions=("a", "b"))

    def step(self, state, role, action, noise):
        if action not in ("a", "b"):
            raise IllegalActionError("no such action")
        over = state[1] >= 3
        return self.out((state[0], state[1] + 1), {"a": float(action == "a")}, over)

    def out(self, state, rewards, over):
        return Step(state=state, rewards=rewards, terminated=over, truncated=False)

    def score(self, state):
        return min(1.0, state[1] / 4)

    def baselines(self):
        return {"random": lambda state, rng: "ab"[int(rng.integers(2))]}


class OneName(Steps):
    def canonical(self, data):
        return "x"


class OneProblem(OneName):
    single_task = property(lambda self: True)


class OneTask(OneName):
    def generate(self, rng):
        return {"n": 3}


class SaidTask(OneTask):
    single_task = property(lambda self: True)


class ListedTask(OneTask):
    def tasks(self, split):
        return [{"n": 3}]


class SeldomOther(Steps):
    """One problem is nine tenths of what is drawn."""

    def canonical(self, data):
        return str(max(0, data["n"] - 90))


class BothEnds(Steps):
    def out(self, state, rewards, over):
        return Step(state=state, rewards=rewards, terminated=over, truncated=over)


class Endless(Steps):
    max_turns = 7

    def out(self, state, rewards, over):
        return Step(state=state, rewards=rewards, terminated=False, truncated=False)


class WrongScore(Steps):
    def score(self, state):
        return float(state[1])


class WrongReward(Steps):
    def step(self, state, role, action, noise):
        return super().step(state, role, action, noise)

    def out(self, state, rewards, over):
        return super().out(state, {"b": 1.0}, over)


class WrongLegal(Steps):
    def observe(self, state, role):
        return Observation(text=f"{state}", legal_actions=["a"])  # pyright: ignore


class WrongData(Steps):
    def generate(self, rng):
        return [1]


def line_of(text):
    """The line below the class statement that `text` opens."""
    lines = HERE.read_text().splitlines()
    return next(n for n, line in enumerate(lines, start=1) if line.startswith(text)) + 1


def test_a_constant_canonical_is_refused_unless_there_is_one_problem():
    with pytest.raises(EnvError, match=r"canonical returns 'x' for all of 212 generated tasks: re"):
        check_env(OneName(), tasks=2)
    for kind in (Steps, OneProblem, SeldomOther):
        assert check_env(kind(), tasks=2).notes == ()


def test_tasks_that_are_all_one_problem_are_told_of():
    (note,) = check_env(OneTask(), tasks=2).notes
    assert note.startswith("All of 212 tasks that generate returned have the data {'n': 3}: ")
    assert "no test is unseen" in note and "`single_task`" in note
    for env in (SaidTask(), ListedTask()):
        assert check_env(env, tasks=2).notes == ()
    given = [Task(id="a", env="steps", seed=0, data={"n": 3})]
    assert check_env(Steps(), tasks=given).notes == ()


def test_an_end_is_of_one_kind():
    with pytest.raises(EnvError, match="terminated and truncated, both True"):
        check_env(BothEnds(), tasks=1)


def test_an_env_that_never_ends_is_told_of():
    report = check_env(Endless(), tasks=2)
    assert "No episode of baseline 'random' came to an end" in report.notes[0]
    assert "max_turns, 7 turns" in str(report)
    assert "Such play may reach the end too seldom" in report.notes[0]
    assert "Or step never returns terminated = True" in report.notes[0]
    with pytest.raises(EnvError, match="still plays after 100 steps"):
        check_env(type("E", (Endless,), {"max_turns": None})(), tasks=1)


class Patient(Steps):
    """Ends after `b` three times."""

    max_turns = 3

    def step(self, state, role, action, noise):
        if state[1] == 3:
            raise EnvError("over")
        step = super().step(state, role, action, noise)
        right = action == "b"
        after = (state[0], state[1] + 1 if right else 9)
        return replace(step, state=after, terminated=after[1] == 3)

    def score(self, state):
        return float(state[1] == 3)

    def baselines(self):
        return {"random": lambda state, rng: "a", "right": lambda state, rng: "b"}


class PaidAtTheEnd(Steps):
    """Its one reward comes with the last step."""

    def out(self, state, rewards, over):
        return super().out(state, {"a": float(over)}, over)


def timed(env, timing):
    env.reward_timing = timing
    return env


def test_rewards_that_are_not_when_they_are_declared_are_told_of():
    (note,) = check_env(PaidAtTheEnd(), tasks=10).notes
    assert note.startswith("reward_timing = 'dense', but 10 of 10 episodes with rewards gave them")
    assert "declare 'terminal'" in note
    assert check_env(timed(PaidAtTheEnd(), "terminal"), tasks=10).notes == ()
    (note,) = check_env(timed(Steps(), "terminal"), tasks=10).notes
    assert note.startswith("reward_timing = 'terminal', but ") and "declare 'dense'" in note


def test_rewards_of_other_seats_count():
    env = timed(make_env("pettingzoo", id="tictactoe_v3"), "dense")
    (note,) = check_env(env, tasks=20).notes  # a draw gives no reward
    assert note.startswith("reward_timing = 'dense', but 1")


def test_rewards_of_few_episodes_or_at_the_end_of_a_round_are_as_declared():
    assert check_env(PaidAtTheEnd(), tasks=9).notes == ()
    assert check_env(make_env("relay"), tasks=20).notes == ()


def test_where_one_player_reaches_the_end_step_is_not_blamed():
    (note,) = check_env(Patient(), tasks=1).notes
    assert "No episode of baseline 'random' came to an end" in note
    assert "too seldom" in note and "terminated" not in note


@pytest.mark.parametrize(
    ("kind", "method"),
    [
        (WrongScore, "score"),
        (WrongReward, "step"),
        (WrongLegal, "observe"),
        (WrongData, "generate"),
        (OneName, "canonical"),
    ],
)
def test_a_failure_names_the_line_of_the_method(kind, method):
    with pytest.raises(EnvError) as caught:
        check_env(kind(), tasks=2)
    place = f"({method}: "
    assert place in str(caught.value)
    found = re.search(r"test_check_places\.py:(\d+)\)$", str(caught.value))
    assert found and int(found[1]) == line_of(f"class {kind.__name__}(")


def test_a_method_is_found_in_the_class_that_writes_it():
    assert place_of_method(OneProblem, "canonical") == place_of_method(OneName, "canonical")
    assert place_of_method(Steps, "canonical") == ""  # it is turnwise's own
    assert "frozen_lake/env.py:" in place_of_method(type(make_env("frozen-lake")), "step")


def test_the_command_shows_the_line_and_the_note(tmp_path):
    runner = CliRunner()
    wrong = runner.invoke(app, ["check", f"{HERE}:WrongScore"], env={"COLUMNS": "400"})
    assert wrong.exit_code == 2
    assert re.search(r"test_check_places\.py:\d+", wrong.output)
    endless = runner.invoke(app, ["check", f"{HERE}:Endless"], env={"COLUMNS": "400"})
    assert endless.exit_code == 0
    assert "warning: No episode of baseline 'random' came to an end" in endless.output
