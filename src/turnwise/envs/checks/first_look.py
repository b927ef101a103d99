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
GAMES, MOST_BROKEN = 12, 2 / 3
"""Games of random play where the env breaks one of the first; the share that it may break."""
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

    Exceptions of the env in a few of the games are no failure: the guard of a run counts such
    episodes. The first one is raised if more than `MOST_BROKEN` of the games break. An env that
    hangs is checked once more. Methods that a run calls once, such as `baselines` at its end, are
    called now.

    Args:
        env: the env, without a guard.
        seed: the seed of the tasks and of play.
        timeout: seconds that one call may take.

    Raises:
        EnvError: if the env breaks its contract, or nearly every game.
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


def _look(calls: Calls, seed: int) -> None:
    tasks = _tasks(calls, TASKS, seed)
    for task in tasks:
        _unbroken(check_reset, calls, task)
    games = _Games(calls, seed)
    try:
        whole = [task for task in tasks if games.play(task)]
        if len(whole) < len(tasks):
            more = _tasks(calls, GAMES, seed)
            for number in range(len(tasks), GAMES):
                games.play(more[number % len(more)])
    except _Enough:
        games.check()
        raise
    games.check()
    _unbroken(check_side_by_side, calls, whole, seed, TURNS)


def _unbroken(check: Callable[..., None], *args: Any) -> None:
    """Make a check that an exception of the env ends without a result."""
    try:
        check(*args)
    except SlowEnvError:
        raise
    except BrokenEnvError:
        return


def _tasks(calls: Calls, count: int, seed: int) -> list[Task]:
    """Return tasks to train on, at most `count`."""
    rows = calls("tasks", "train")
    if rows is None:
        return generated_tasks(calls, count, seed)
    return [
        Task(id=f"check-{number}", env=calls.env.name, seed=seed, data=dict(rows[number]))
        for number in range(min(count, len(rows)))
    ]


class _Games:
    """Plays tasks at random, each step twice, and counts the games that the env breaks."""

    def __init__(self, calls: Calls, seed: int) -> None:
        self._calls, self._seed = calls, seed
        self._played, self._errors = 0, list[BrokenEnvError]()

    def play(self, task: Task) -> bool:
        """Play a task; return whether the env raised nothing."""
        error: BrokenEnvError | None = None
        try:
            self._play(task)
        except SlowEnvError:
            raise
        except BrokenEnvError as broken:
            error = broken
        self._played += 1
        self._errors += [] if error is None else [error]
        return error is None

    def check(self) -> None:
        """Raise if the env broke most of the games."""
        broken, errors = len(self._errors), self._errors
        if broken > max(1, MOST_BROKEN * self._played):
            raise BrokenEnvError(
                f"{broken} of {self._played} games of random play broke: {errors[0]}"
            ) from errors[0]

    def _play(self, task: Task) -> None:
        calls = self._calls
        state = calls.reset(task)
        for number in range(min(ALONE, calls("turn_cap"))):
            role = calls.acting(state)
            rng = generator(self._seed, "first look", task.id, self._played, number)
            action = calls("random_action", state, role, rng)
            place = (task.id, f"first look {self._played}", number)
            try:
                step = calls.step_twice(state, role, action, place)
            except IllegalActionError:
                break
            state = step.state
            if step.terminated or step.truncated:
                calls.unscored = False
                break
        try:
            calls.view(state)
        finally:
            calls.unscored = True
        calls.check_kept()
