"""The check of `Env.relabel`: an episode's actions solve the task that it returns."""

from __future__ import annotations

import json
from collections.abc import Sequence
from dataclasses import replace
from typing import Any

from turnwise.envs.base import Env, Relabelled
from turnwise.envs.checks.calls import Calls
from turnwise.envs.checks.declarations import fail
from turnwise.envs.measures import wrong_field
from turnwise.errors import IllegalActionError
from turnwise.seeding import generator
from turnwise.types import Task

MOST_TURNS = 100
"""The most turns of an episode that is relabelled."""
EXPECTED = "return None or a Relabelled(data=..., actions=..., closeness=...)"


def check_relabel(calls: Calls, tasks: Sequence[Task], seed: int) -> None:
    """Raise unless what `relabel` returns for random episodes is solved by its actions.

    The new task is played with the actions, with the draws that the episode's steps had. It is
    solved if the score is then 1; the score of an env with `scored_by = "return"` is not checked.
    """
    env = calls.env
    if type(env).relabel is Env.relabel or len(env.seats) != 1:
        return
    for task in tasks:
        actions = _played(calls, task, seed)
        if not actions:
            continue
        before = json.dumps(task.data, sort_keys=True, default=repr)
        found: Any = calls("relabel", task, actions)
        if json.dumps(task.data, sort_keys=True, default=repr) != before:
            fail(env, "relabel changes the task's data", "copy what is to be changed", "relabel")
        if found is None:
            continue
        if not isinstance(found, Relabelled):
            what = f"relabel returns {found!r:.80} of type {type(found).__name__}"
            fail(env, what, EXPECTED, "relabel")
        wrong = wrong_field(found)
        if wrong is not None:
            name, value, expected = wrong
            fail(env, f"relabel returns {name} = {value!r:.80}", f"return {expected}", "relabel")
        score = _replayed(calls, replace(task, data=found.data), found.actions)
        if env.scored_by == "score" and score < 1:
            given, data = list(found.actions), dict(found.data)
            what = (
                f"relabel returns {data!r:.80}, which {given!r:.80} do not solve: score {score:g}"
            )
            fail(env, what, "return a task in which they score 1, or None", "relabel")


def _played(calls: Calls, task: Task, seed: int) -> list[str]:
    """Return the actions of a random episode."""
    state, actions = calls.reset(task), list[str]()
    for number in range(min(MOST_TURNS, calls("turn_cap"))):
        role = calls.acting(state)
        rng = generator(seed, "relabel", task.id, number)
        action = calls("random_action", state, role, rng)
        try:
            step = calls.step(state, role, action, (task.id, "relabel", number))
        except IllegalActionError:  # random actions may be refused
            break
        actions.append(action)
        state = step.state
        if step.terminated or step.truncated:
            break
    return actions


def _replayed(calls: Calls, task: Task, actions: Sequence[str]) -> float:
    """Return the score after a task was played with some actions."""
    state = calls.reset(task)
    for number, action in enumerate(actions):
        try:
            step = calls.step(state, calls.acting(state), action, (task.id, "relabel", number))
        except IllegalActionError as refusal:
            what = f"relabel returns a task that refuses its action {action!r:.80} ({refusal})"
            fail(calls.env, what, "return a task that its actions solve, or None", "relabel")
        state = step.state
        if step.terminated or step.truncated:
            break
    return float(calls("score", state))
