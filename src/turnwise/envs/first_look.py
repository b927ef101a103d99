"""A short conformance check of the user's own env, made before every training.

Provides `look_at`. It makes the checks of `check_env` that tell whether training can mean anything,
on a few tasks and within about a second. What is mere advice is left to `check_env`.
"""

from __future__ import annotations

import time
from collections.abc import Callable
from itertools import cycle
from typing import Any

from turnwise.envs.base import Env
from turnwise.envs.check import check_reset, check_side_by_side, generated_tasks
from turnwise.envs.check_calls import Calls
from turnwise.envs.check_declared import check_returned
from turnwise.errors import BrokenEnvError, IllegalActionError, SlowEnvError
from turnwise.noise import generator
from turnwise.types import Task

TASKS, TURNS, ALONE = 3, 12, 40
"""Tasks that are played; turns of each beside others; turns of each whose steps are made twice."""
SECONDS = 1.0
"""Seconds after which the look ends; a call that has begun may take longer."""
TRIES = 2
"""Looks of which the last one raises if a call does not return in time; the guard of a run bears as
many such calls."""


class _Enough(Exception):
    """The time for the look is over."""


class _BriefCalls(Calls):
    """Calls that end together when the time is over."""

    def __init__(self, env: Env[Any], seed: int, timeout: float) -> None:
        super().__init__(env, seed, timeout)
        self._until = time.monotonic() + SECONDS
        self.refusals = True

    def made(self, method: str, call: Callable[..., Any], *args: Any) -> Any:
        """Return `call(*args)` while there is time."""
        if time.monotonic() > self._until:
            raise _Enough
        return super().made(method, call, *args)


def look_at(env: Env[Any], seed: int, timeout: float) -> None:
    """Raise the first thing that `check_env` would call wrong in a few turns of random play.

    An env that raises in an episode ends the look without an error: the guard of a run counts such
    episodes, and stops a run in which all of them break. One that hangs is looked at once more.
    What is asked once a run, such as the baselines at its end, must answer now.

    Args:
        env: the env; not under guard, unless it was handed over so.
        seed: decides the tasks and the play.
        timeout: seconds that one call may take.

    Raises:
        EnvError: if the env breaks its contract.
    """
    once = Calls(env, seed, timeout)
    check_returned(env, once("words"), once.get("fixed"), once("baselines"))
    for number in range(1, TRIES + 1):
        try:
            _look(_BriefCalls(env, seed, timeout), seed)
            return
        except _Enough:
            return
        except SlowEnvError:
            if number == TRIES:
                raise
        except BrokenEnvError as error:
            if error.__cause__ is None:
                raise  # a value of a wrong type, told by an env that is under guard
            return


def _look(calls: Calls, seed: int) -> None:
    env = calls.env
    listed = calls("listed", "train")
    if listed is None:
        tasks = generated_tasks(calls, TASKS, seed)
    else:
        rows = [listed[number] for number in range(min(TASKS, len(listed)))]
        tasks = [
            Task(id=f"check-{number}", env=env.name, seed=seed, data=dict(row))
            for number, row in enumerate(rows)
        ]
    for task in tasks:
        check_reset(calls, task)
    for task in tasks:
        _play(calls, task, seed)
    check_side_by_side(calls, tasks, seed, TURNS)


def _play(calls: Calls, task: Task, seed: int) -> None:
    """Play a task at random, each step twice."""
    env, state = calls.env, calls.reset(task)
    for number, role in zip(range(min(ALONE, calls("turn_cap"))), cycle(env.roles), strict=False):
        rng = generator(seed, "first look", task.id, number)
        action = calls("random_action", state, role, rng)
        try:
            step = calls.step_twice(state, role, action, (task.id, "first look", number))
        except IllegalActionError:
            break
        state = step.state
        if step.terminated or step.truncated:
            break
    calls.view(state)
    calls.check_kept()
