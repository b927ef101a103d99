"""A watch over an env that somebody else wrote: whatever it does, the user gets one sentence.

Owns the calls into envs: what they raise, how long they take and what they return. Everything that
is wrong becomes a `BrokenEnvError` with the place in the env's file; only the refusal of an action
and turnwise's own errors pass as they are. Knows nothing of models or episodes.
"""

from __future__ import annotations

import asyncio
import math
from collections import Counter
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass, field
from functools import cache, partial
from typing import Any

import numpy as np

from turnwise.envs import (
    Baseline,
    Env,
    Exact,
    Observation,
    Settlement,
    Step,
    make_env,
)
from turnwise.envs.calls import CURE, call_env, overran, place_of, short, still_inside
from turnwise.envs.check_declared import check_declarations, properties_of
from turnwise.envs.deadline import Alarm, Overrun
from turnwise.errors import BrokenEnvError, SlowEnvError, StuckEnvError
from turnwise.rollout.aside import aside
from turnwise.types import Episode, Split, Task

WINDOW = 1000
"""Calls within which a second one that does not return in time is the last one."""
HANGS = 3
"""The same where steps wait for something outside: calls of one method in a row."""
BATCH = 64
"""Episodes that may be judged in the time of one call."""
GRACE = 0.5
"""Seconds after which a judge that lets nothing else run is interrupted."""


@dataclass
class _Count:
    """How often the calls of one env did not return in time; `stuck` is why no more are made."""

    timeout: float
    calls: int = 0
    last: int | None = None
    in_a_row: Counter[str] = field(default_factory=Counter)
    stuck: str | None = None

    def counted(self, env: Env[Any], method: str, slow: SlowEnvError) -> SlowEnvError:
        """Take note of a call that hung; return the error to raise."""
        self.in_a_row[method] += 1
        since = None if self.last is None else self.calls - self.last
        self.last = self.calls
        if env.waits:
            over, often = self.in_a_row[method] >= HANGS, f"{HANGS} times in a row"
        else:
            over, often = since is not None and since <= WINDOW, f"again after {since} calls"
        if not over:
            return slow
        self.stuck = str(slow).replace("): ", f"), {often}: ", 1)
        return StuckEnvError(self.stuck)


def make_guarded(name: str, options: Mapping[str, Any], timeout: float) -> Env[Any]:
    """Return the env called `name` under guard; importing and making it is guarded too.

    Args:
        name: as for `make_env`.
        options: its options.
        timeout: seconds that one call may take.

    Raises:
        ConfigError: as `make_env` does.
        BrokenEnvError: if its module or its `__init__` raises or takes too long.
    """
    made = call_env(None, "__init__", timeout, lambda: make_env(name, **options))
    if not isinstance(made, _Guard):  # one that was handed over has been checked before
        check_declarations(made, timeout)
    return guarded(made, timeout)


def guarded(env: Env[Any], timeout: float) -> Env[Any]:
    """Put `env` under guard and return it: the same object, whose calls are watched from now on.

    A call that raises, takes longer than `timeout` seconds or returns a wrong type raises a
    `BrokenEnvError`. The second one within `WINDOW` calls that takes too long raises a
    `StuckEnvError`, which ends a run, and so does every call after it without being made. Envs that
    wait for something outside have `HANGS` calls of one method in a row. Where a deadline cannot
    act: `deadline.within`. The class stays a subclass of the env's own.

    Example:
        >>> env = guarded(make_env("frozen-lake"), timeout=60)
        >>> type(env).__name__
        'FrozenLake'
    """
    if not isinstance(env, _Guard):
        env.__class__ = _guarded_class(type(env))
    assert isinstance(env, _Guard)
    env._turnwise_guard = _Count(timeout)
    return env


@cache
def _guarded_class(kind: type[Env[Any]]) -> type[Env[Any]]:
    names = {"__module__": kind.__module__, "__qualname__": kind.__qualname__}
    watched = {name: _watched(name, read) for name, read in properties_of(kind).items()}
    return type(kind.__name__, (_Guard, kind), {**names, "__doc__": kind.__doc__, **watched})


def _watched(name: str, read: property) -> property:
    """Return a property of an env, read in time; it stays as settable as it was."""

    def value(env: _Guard) -> Any:
        return _call(env, name, read.__get__, env)

    return property(value, read.fset, read.fdel)


class _Guard(Env[Any]):
    """What stands before an env's own methods."""

    _turnwise_guard: _Count

    def generate(self, rng: np.random.Generator) -> dict[str, Any]:
        data = _call(self, "generate", super().generate, rng)
        return data if isinstance(data, dict) else _wrong(self, "generate", data, "a dict")

    def canonical(self, data: Mapping[str, Any]) -> str:
        return _text(self, "canonical", _call(self, "canonical", super().canonical, data))

    def reset(self, task: Task) -> Any:
        state = _call(self, "reset", super().reset, task)
        return state if state is not None else _wrong(self, "reset", state, "the first state")

    def observe(self, state: Any, role: str) -> Observation:
        seen = _call(self, "observe", super().observe, state, role)
        if not isinstance(seen, Observation):
            _wrong(self, "observe", seen, "an Observation")
        if not isinstance(seen.text, str) or not isinstance(seen.description, str):
            _wrong(self, "observe", seen, "an Observation whose text and description are str")
        if not isinstance(seen.legal, tuple) or not all(isinstance(a, str) for a in seen.legal):
            _wrong(self, "observe", seen, "an Observation whose legal is a tuple of str")
        return seen

    def step(self, state: Any, role: str, action: str, noise: np.random.Generator) -> Step[Any]:
        step = _call(self, "step", super().step, state, role, action, noise)
        if not isinstance(step, Step):
            _wrong(self, "step", step, "a Step")
        if type(step.terminated) is not bool or type(step.truncated) is not bool:
            _wrong(self, "step", step, "a Step whose terminated and truncated are bool")
        if not isinstance(step.rewards, Mapping):
            _wrong(self, "step", step, "a Step whose rewards are a dict of name and float")
        for name, value in step.rewards.items():
            if name not in self.components:
                known = ", ".join(self.components) or "none"
                what = f"rewards only of its declared components ({known})"
                _wrong(self, "step", {name: value}, what)
            if not isinstance(value, int | float) or not math.isfinite(value):
                _wrong(self, "step", {name: value}, "rewards that are finite floats")
        return step

    def score(self, state: Any) -> float:
        value = _call(self, "score", super().score, state)
        if not isinstance(value, int | float) or not 0 <= value <= 1:
            _wrong(self, "score", value, "a float from 0 to 1")
        return value

    def state_key(self, state: Any, role: str) -> str:
        key = _call(self, "state_key", super().state_key, state, role)
        return _text(self, "state_key", key)

    def random_action(self, state: Any, role: str, rng: np.random.Generator) -> str:
        action = _call(self, "random_action", super().random_action, state, role, rng)
        return _text(self, "random_action", action)

    def words(self) -> tuple[str, ...]:
        return _call(self, "words", super().words)

    def render(self, state: Any) -> str:
        return _text(self, "render", _call(self, "render", super().render, state))

    def turn_cap(self) -> int:
        cap = _call(self, "turn_cap", super().turn_cap)
        is_count = isinstance(cap, int) and cap >= 1
        return cap if is_count else _wrong(self, "turn_cap", cap, "a whole number from 1")

    def baselines(self) -> Mapping[str, Baseline]:
        players = _call(self, "baselines", super().baselines)
        return {name: self._guarded_player(name, player) for name, player in players.items()}

    def listed(self, split: Split) -> Sequence[Mapping[str, Any]] | None:
        return _call(self, "listed", super().listed, split)

    def exact(self, task: Task) -> Exact[Any] | None:
        return _call(self, "exact", super().exact, task)

    async def settle(self, episodes: Sequence[Episode], iterations: int) -> Settlement | None:
        """Judge a batch, in time for each `BATCH` episodes; programs have limits of their own."""
        judged = super().settle(episodes, iterations)
        if self.runs_programs:
            return await judged
        seconds = self._turnwise_guard.timeout * max(1, math.ceil(len(episodes) / BATCH))
        limit = asyncio.timeout(seconds)
        place = "while it waits"
        try:
            with Alarm(seconds + GRACE, partial(still_inside, self, "settle")):
                async with limit:
                    return await judged
        except TimeoutError:
            if not limit.expired():
                raise
        except Overrun as cause:
            place = place_of(cause.__traceback__, self)
        raise StuckEnvError(str(overran(self, "settle", seconds, place)))

    def _guarded_player(self, name: str, player: Baseline) -> Baseline:
        def play(state: Any, rng: np.random.Generator) -> str:
            return _call(self, f"baselines()[{name!r}]", player, state, rng)

        return play


async def stepped(
    env: Env[Any], state: Any, role: str, action: str, noise: np.random.Generator
) -> Step[Any]:
    """Return `env.step(...)`, made on a thread if the env waits for something outside.

    There its deadline acts even in C code: the call is left to itself.

    Raises:
        BrokenEnvError: as an env under guard does.
    """
    if not env.waits:
        return env.step(state, role, action, noise)
    if not isinstance(env, _Guard):
        return await aside(env.step, state, role, action, noise)
    timeout = env._turnwise_guard.timeout
    try:
        return await aside(env.step, state, role, action, noise, timeout=timeout)
    except TimeoutError:  # not the env's own, which has become a sentence
        slow = overran(env, "step", timeout, "on a thread of its own")
        raise env._turnwise_guard.counted(env, "step", slow) from None


def _call(
    env: _Guard, method: str, call: Callable[..., Any], *args: Any, timeout: float | None = None
) -> Any:
    """Return `call(*args)`; whatever it raises becomes one sentence, and hangs are counted."""
    guard = env._turnwise_guard
    if guard.stuck is not None:  # waiting once more would be in vain
        raise StuckEnvError(guard.stuck)
    guard.calls += 1
    try:
        result = call_env(env, method, timeout or guard.timeout, call, *args)
    except SlowEnvError as slow:
        raise guard.counted(env, method, slow) from None
    guard.in_a_row.pop(method, None)
    return result


def _text(env: _Guard, method: str, value: Any) -> str:
    return value if isinstance(value, str) else _wrong(env, method, value, "a str")


def _wrong(env: _Guard, method: str, value: Any, expected: str) -> Any:
    """Say what a method returned instead of what it should, and where it is written."""
    given = " ".join(repr(value).split())
    given = given if len(given) <= 80 else f"{given[:77]}..."
    kind = next(c for c in type(env).__mro__[2:] if method in vars(c))
    code = vars(kind)[method].__code__ if hasattr(vars(kind)[method], "__code__") else None
    where = f" ({short(code.co_filename)}:{code.co_firstlineno})" if code else ""
    raise BrokenEnvError(
        f"{type(env).__name__}.{method} returned {given} of type {type(value).__name__}, expected "
        f"{expected}{where}: {CURE}"
    )
