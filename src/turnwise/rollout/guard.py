"""A watch over an env that somebody else wrote: whatever it does, the user gets one sentence.

Owns the calls into envs: what they raise, how long they take and what they return. Everything that
is wrong becomes a `BrokenEnvError` with the place in the env's file; only the refusal of an action
and turnwise's own errors pass as they are. Knows nothing of models or episodes.
"""

from __future__ import annotations

import math
import sys
from collections import Counter
from collections.abc import Callable, Mapping
from functools import cache
from pathlib import Path
from types import TracebackType
from typing import Any

import numpy as np

from turnwise.envs import (
    Baseline,
    Env,
    EnvReport,
    Observation,
    Step,
    check_env,
    make_env,
)
from turnwise.errors import BrokenEnvError, SlowEnvError, StuckEnvError, TurnwiseError
from turnwise.rollout.aside import aside
from turnwise.rollout.deadline import Overrun, within
from turnwise.types import Task

HANGS = 3
"""Calls of one method in a row that do not return in time, after which nothing more is tried."""
CURE = "mend it; `turnwise check` tries every call"
LONGEST = 300
"""Characters of an exception's message that are told."""


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
    return guarded(_call(None, "__init__", timeout, lambda: make_env(name, **options)), timeout)


def guarded(env: Env[Any], timeout: float) -> Env[Any]:
    """Put `env` under guard and return it: the same object, whose calls are watched from now on.

    A call that raises, takes longer than `timeout` seconds or returns a wrong type raises a
    `BrokenEnvError`; the third call in a row of one method that takes too long raises a
    `StuckEnvError`, which ends a run at once. Where a deadline cannot act: `deadline.within`. The
    class stays a subclass of the env's own.

    Example:
        >>> env = guarded(make_env("frozen-lake"), timeout=60)
        >>> type(env).__name__
        'FrozenLake'
    """
    if not isinstance(env, _Guard):
        env.__class__ = _guarded_class(type(env))
    assert isinstance(env, _Guard)
    env.timeout, env.hangs = timeout, Counter()
    return env


@cache
def _guarded_class(kind: type[Env[Any]]) -> type[Env[Any]]:
    names = {"__module__": kind.__module__, "__qualname__": kind.__qualname__}
    return type(kind.__name__, (_Guard, kind), {**names, "__doc__": kind.__doc__})


class _Guard(Env[Any]):
    """What stands before an env's own methods."""

    timeout: float
    hangs: Counter[str]

    def generate(self, rng: np.random.Generator) -> dict[str, Any]:
        data = _call(self, "generate", self.timeout, super().generate, rng)
        return data if isinstance(data, dict) else _wrong(self, "generate", data, "a dict")

    def canonical(self, data: Mapping[str, Any]) -> str:
        return _text(
            self, "canonical", _call(self, "canonical", self.timeout, super().canonical, data)
        )

    def reset(self, task: Task) -> Any:
        state = _call(self, "reset", self.timeout, super().reset, task)
        return state if state is not None else _wrong(self, "reset", state, "the first state")

    def observe(self, state: Any, role: str) -> Observation:
        seen = _call(self, "observe", self.timeout, super().observe, state, role)
        if not isinstance(seen, Observation):
            _wrong(self, "observe", seen, "an Observation")
        if not isinstance(seen.text, str) or not isinstance(seen.description, str):
            _wrong(self, "observe", seen, "an Observation whose text and description are str")
        if not isinstance(seen.legal, tuple) or not all(isinstance(a, str) for a in seen.legal):
            _wrong(self, "observe", seen, "an Observation whose legal is a tuple of str")
        return seen

    def step(self, state: Any, role: str, action: str, noise: np.random.Generator) -> Step[Any]:
        step = _call(self, "step", self.timeout, super().step, state, role, action, noise)
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
        value = _call(self, "score", self.timeout, super().score, state)
        if not isinstance(value, int | float) or not 0 <= value <= 1:
            _wrong(self, "score", value, "a float from 0 to 1")
        return value

    def state_key(self, state: Any, role: str) -> str:
        key = _call(self, "state_key", self.timeout, super().state_key, state, role)
        return _text(self, "state_key", key)

    def random_action(self, state: Any, role: str, rng: np.random.Generator) -> str:
        action = _call(self, "random_action", self.timeout, super().random_action, state, role, rng)
        return _text(self, "random_action", action)

    def words(self) -> tuple[str, ...]:
        return _call(self, "words", self.timeout, super().words)

    def render(self, state: Any) -> str:
        return _text(self, "render", _call(self, "render", self.timeout, super().render, state))

    def baselines(self) -> Mapping[str, Baseline]:
        players = _call(self, "baselines", self.timeout, super().baselines)
        return {name: self._guarded_player(name, player) for name, player in players.items()}

    def _guarded_player(self, name: str, player: Baseline) -> Baseline:
        def play(state: Any, rng: np.random.Generator) -> str:
            return _call(self, f"baselines()[{name!r}]", self.timeout, player, state, rng)

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
    try:
        return await aside(env.step, state, role, action, noise, timeout=env.timeout)
    except TimeoutError:  # not the env's own, which has become a sentence
        raise _overran(env, "step", env.timeout, "on a thread of its own") from None


def check_guarded(env: Env[Any], timeout: float = 600.0) -> EnvReport:
    """Return `check_env(env)`, whatever the env does; the costs are those of the bare env.

    Raises:
        EnvError: as `check_env` does; and if the env raises, or all takes longer than `timeout`.
    """
    return _call(env, "(any call)", timeout, check_env, env)


def _call(
    env: Env[Any] | None, method: str, timeout: float, call: Callable[..., Any], *args: Any
) -> Any:
    """Return `call(*args)`; whatever it raises becomes one sentence."""
    title = _title(env, method)
    try:
        result = within(timeout, call, *args)
    except TurnwiseError:  # a refused action, or a sentence already
        raise
    except Overrun as cause:
        raise _overran(env, method, timeout, _place(cause.__traceback__, env)) from None
    except Exception as cause:
        said = " ".join(str(cause).split())[:LONGEST]
        what = f"{type(cause).__name__}: {said}" if said else type(cause).__name__
        raise BrokenEnvError(
            f"{title} raised {what} ({_place(cause.__traceback__, env)}): {CURE}"
        ) from cause
    if isinstance(env, _Guard) and env.hangs:
        env.hangs.pop(method, None)
    return result


def _title(env: Env[Any] | None, method: str) -> str:
    return f"{type(env).__name__}.{method}" if env else "making the env"


def _overran(env: Env[Any] | None, method: str, timeout: float, place: str) -> SlowEnvError:
    """Return the error of a call that did not return in time, and count it."""
    hangs = 1
    if isinstance(env, _Guard):
        env.hangs[method] = hangs = env.hangs[method] + 1
    title = _title(env, method)
    what = f"{title} did not return within {timeout:g} s ({place})"
    if hangs < HANGS:
        return SlowEnvError(f"{what}: {CURE}, or raise env.timeout")
    return StuckEnvError(f"{what}, {hangs} times in a row: {CURE}, or raise env.timeout")


def _text(env: _Guard, method: str, value: Any) -> str:
    return value if isinstance(value, str) else _wrong(env, method, value, "a str")


def _wrong(env: _Guard, method: str, value: Any, expected: str) -> Any:
    """Say what a method returned instead of what it should, and where it is written."""
    given = " ".join(repr(value).split())
    given = given if len(given) <= 80 else f"{given[:77]}..."
    kind = next(c for c in type(env).__mro__[2:] if method in vars(c))
    code = vars(kind)[method].__code__ if hasattr(vars(kind)[method], "__code__") else None
    where = f" ({_short(code.co_filename)}:{code.co_firstlineno})" if code else ""
    raise BrokenEnvError(
        f"{type(env).__name__}.{method} returned {given} of type {type(value).__name__}, expected "
        f"{expected}{where}: {CURE}"
    )


def _place(trace: TracebackType | None, env: Env[Any] | None) -> str:
    """Return file:line of the innermost frame in the env's own file, or else of the innermost."""
    module = sys.modules.get(type(env).__module__)
    own = vars(module).get("__file__") if env and module else None
    places = []
    while trace is not None:
        places.append((trace.tb_frame.f_code.co_filename, trace.tb_lineno))
        trace = trace.tb_next
    mine = [place for place in places if place[0] == own]
    others = [place for place in places if Path(place[0]).name not in ("guard.py", "deadline.py")]
    file, line = (mine or others or places)[-1]
    return f"{_short(file)}:{line}"


def _short(file: str) -> str:
    path = Path(file)
    return str(path.relative_to(Path.cwd())) if path.is_relative_to(Path.cwd()) else file
