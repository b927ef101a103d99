"""Relabelled tasks: what an episode's actions solve, replayed on the new task."""

from __future__ import annotations

from dataclasses import replace

import numpy as np
import pytest

import turnwise as tw
from turnwise.envs import Relabelled, make_env
from turnwise.envs.guard import guarded
from turnwise.errors import BrokenEnvError

RNG = np.random.default_rng(0)


def played(env, task, rng):
    """The actions of one random episode."""
    state, actions = env.reset(task), []
    while True:
        actions.append(env.random_action(state, "player", rng))
        step = env.step(state, "player", actions[-1], rng)
        if step.terminated or step.truncated:
            return actions
        state = step.state


def solved(env, task, actions):
    """Whether the actions solve a task, and end it with the last one alone."""
    state = env.reset(task)
    for number, action in enumerate(actions, start=1):
        step = env.step(state, "player", action, RNG)
        assert step.terminated == (number == len(actions))
        state = step.state
    return env.score(state) == 1


@pytest.mark.parametrize(
    ("name", "options", "least"),
    [
        ("frozen-lake", {}, 100),
        ("frozen-lake", {"start": "random"}, 100),
        ("arc-draw", {}, 190),
        ("arc-draw", {"picture": "16-squares", "spacing": "compact"}, 190),
    ],
)
def test_the_actions_solve_the_task_that_they_are_told_to_solve(name, options, least):
    env, rng, found = make_env(name, **options), np.random.default_rng(0), 0
    for number in range(200):
        data = env.generate(np.random.default_rng(number))
        task = tw.Task(id="t", env=env.name, seed=0, data=data)
        actions = played(env, task, rng)
        relabelled = env.relabel(task, actions)
        if relabelled is None:
            continue
        found += 1
        assert 0 <= relabelled.closeness <= 1
        assert solved(env, replace(task, data=relabelled.data), relabelled.actions)
        assert len(relabelled.actions) <= len(actions)
    assert found >= least


def test_an_episode_that_solved_its_task_is_as_close_as_can_be():
    env = make_env("frozen-lake", map=["SF", "FG"])
    task = tw.Task(id="t", env=env.name, seed=0, data=env.generate(RNG))
    found = env.relabel(task, ["LEFT", "RIGHT", "DOWN"])
    assert found == Relabelled(data=task.data, actions=("LEFT", "RIGHT", "DOWN"), closeness=1.0)
    assert env.relabel(task, ["LEFT", "RIGHT"]).data["map"] == ["SG", "FF"]
    assert env.relabel(task, ["RIGHT", "UP", "RIGHT"]).actions == ("RIGHT",)
    assert env.relabel(task, ["LEFT", "UP"]) is None
    assert env.relabel(task, ["RIGHT", "LEFT"]) is None


def test_a_fall_is_left_out_and_slippery_ice_is_not_relabelled():
    env = make_env("frozen-lake", map=["SFF", "FHF", "FFG"])
    task = tw.Task(id="t", env=env.name, seed=0, data=env.generate(RNG))
    found = env.relabel(task, ["RIGHT", "DOWN"])
    assert (found.data["map"], found.actions) == (["SGF", "FHF", "FFF"], ("RIGHT",))
    assert found.closeness == pytest.approx(1 / 4)
    slippery = make_env("frozen-lake", map=["SFF", "FHF", "FFG"], slippery=True)
    wet = tw.Task(id="t", env=env.name, seed=0, data=slippery.generate(RNG))
    assert slippery.relabel(wet, ["RIGHT"]) is None


def test_programs_are_pruned_and_those_that_draw_nothing_are_left_out():
    env = make_env("arc-draw", picture="9-vertical-lines")
    task = tw.Task(id="t", env=env.name, seed=0, data=env.generate(RNG))
    useful, useless = "draw_vertical_line(img, 0, 1)", "draw_pixel(img, (9, 9), 3)"
    found = env.relabel(task, [f"{useless}\n{useful}\n{useful}"])
    assert found.actions == (useful,)
    assert found.data["pairs"][0][1] == ["100000000"] * 9
    assert found.closeness == pytest.approx(9 / 81)
    for nothing in (useless, "draw_vertical_line(img, 9, 1)", "no program"):
        assert env.relabel(task, [nothing]) is None


@pytest.mark.parametrize("runner", ["interpreter", "sandbox"])
def test_a_program_that_fails_is_relabelled_by_what_it_drew_before_or_left_out(runner):
    env = make_env("arc-draw", picture="9-vertical-lines", runner=runner)
    whole = make_env("arc-draw", picture="9-vertical-lines", relabel_failed=False, runner=runner)
    task = tw.Task(id="t", env=env.name, seed=0, data=env.generate(RNG))
    right = "draw_vertical_line(img, 0, 1)"
    for wrong in ("draw_vertical_line(img, 9, 2)", "draw_vertical_line(img, (1"):
        program = f"{right}\n{wrong}\ndraw_vertical_line(img, 1, 2)"
        step = env.step(env.reset(task), "player", program, RNG)
        assert (step.rewards["pixels"], env.measures(step.state)["fails"]) == (0, 1)
        found = env.relabel(task, [program])
        assert (found.actions, found.closeness) == ((right,), pytest.approx(9 / 81))
        assert found.data["pairs"][0][1] == ["100000000"] * 9
        assert whole.relabel(task, [program]) is None


class Wrong(type(make_env("frozen-lake"))):
    def relabel(self, task, actions):
        return task.data


def test_a_guard_checks_what_is_returned():
    env = guarded(Wrong(), 60)
    task = tw.Task(id="t", env=env.name, seed=0, data=env.generate(RNG))
    with pytest.raises(BrokenEnvError, match="relabel .* a Relabelled, or None"):
        env.relabel(task, ["LEFT"])
    assert guarded(make_env("frozen-lake"), 60).relabel(task, ["LEFT"]) is None


@pytest.mark.parametrize(
    ("fields", "says"),
    [
        ({"data": [3]}, "returned \\[3\\] of type list, expected a Relabelled with the data of"),
        ({"data": {"map": np.int64(3)}}, "of values that JSON can hold as its data"),
        ({"actions": "LEFT"}, "returned 'LEFT' of type str, .* a tuple of texts as its actions"),
        ({"actions": ("\ud800",)}, "Unicode, without halves of surrogate pairs as its actions"),
        ({"closeness": float("nan")}, "returned nan .* with a number from 0 to 1 as its closeness"),
        ({"closeness": None}, "a number from 0 to 1 as its closeness"),
    ],
)  # fmt: skip
def test_a_guard_checks_the_fields_of_what_is_returned(fields, says):
    """A text in place of a tuple was demonstrated letter by letter, and others stopped the run."""
    right = {"data": {"map": ["SG"]}, "actions": ("RIGHT",), "closeness": 1.0}
    kind = type("Odd", (Wrong,), {"relabel": lambda *_: Relabelled(**right | fields)})
    env = guarded(kind(), 60)
    task = tw.Task(id="t", env=env.name, seed=0, data=env.generate(RNG))
    with pytest.raises(BrokenEnvError, match=says):
        env.relabel(task, ["LEFT"])
