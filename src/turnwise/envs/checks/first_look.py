"""A short conformance check of the user's own env, before every training run.

Provides `look_at`. It makes the checks of `check_env` without which training is meaningless, on a
few tasks and within about a second. `check_env` also gives advice.
"""

from __future__ import annotations

import time
from collections.abc import Callable
from typing import Any

from turnwise.envs.base import Env
from turnwise.envs.checks.calls import Calls
from turnwise.envs.checks.check import check_reset, generated_tasks
from turnwise.envs.checks.declarations import check_returned
from turnwise.envs.checks.side_by_side import check_side_by_side
from turnwise.errors import BrokenEnvError, IllegalActionError, SlowEnvError
from turnwise.seeding import generator
from turnwise.types import Task

TASKS, TURNS, ALONE = 3, 12, 40
"""Tasks played; turns of each in interleaved play; turns of each whose steps are made twice."""
SECONDS = 1.0
"""Seconds after which the check ends; a call that has begun may take longer."""
TRIES = 2
"""Attempts, of which the last one raises if a call does not return in time. The guard of a run
tolerates as many such calls."""


class _Enough(Exception):
    """The time for the check is over."""


class _BriefCalls(Calls):
    """Calls that share one time limit."""

    def __init__(self, env: Env[Any], seed: int, timeout: float) -> None:
        super().__init__(env, seed, timeout)
        self._until = time.monotonic() + SECONDS
        self.refusals = self.unscored = True

    def made(self, method: str, call: Callable[..., Any], *args: Any) -> Any:
        """Return `call(*args)`, or raise `_Enough` after the time limit."""
        if time.monotonic() > self._until:
            raise _Enough
        return super().made(method, call, *args)


def look_at(env: Env[Any], seed: int, timeout: float) -> None:
    """Raise the first failure of `check_env` in a few turns of random play.

    An exception of the env in an episode ends the check without an error: the guard of a run counts
    such episodes, and stops a run if all of them fail. An env that hangs is checked once more.
    Methods that a run calls once, such as `baselines` at its end, are called now.

    Args:
        env: the env, without a guard.
        seed: the seed of the tasks and of play.
        timeout: seconds that one call may take.

    Raises:
        EnvError: if the env breaks its contract.
    """
    once = Calls(env, seed, timeout)
    check_returned(env, once("vocabulary"), once.get("single_task"), once("baselines"))
    for number in range(1, TRIES + 1):
        try:
            _look(_BriefCalls(env, seed, timeout), seed)
            return
        except _Enough:
            return
        except SlowEnvError:
            if number == TRIES:
                raise
        except BrokenEnvError:
            return


def _look(calls: Calls, seed: int) -> None:
    env = calls.env
    tasks_of_split = calls("tasks", "train")
    if tasks_of_split is None:
        tasks = generated_tasks(calls, TASKS, seed)
    else:
        rows = [tasks_of_split[number] for number in range(min(TASKS, len(tasks_of_split)))]
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
    state = calls.reset(task)
    for number in range(min(ALONE, calls("turn_cap"))):
        role = calls.acting(state)
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
