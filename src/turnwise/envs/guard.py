"""A wrapper around an env that somebody else wrote: every call has a limit and one-sentence errors.

Provides `GuardedEnv` and `guarded`. What the env raises, how long it takes and what it returns
become a `BrokenEnvError` with the place in the env's file where they are wrong; only the refusal of
an action and turnwise's own errors pass as they are. The env itself is left as it is. Knows nothing
of models or episodes.
"""

from __future__ import annotations

import asyncio
import math
from collections import Counter
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass, field
from functools import partial
from typing import Any, NoReturn

import numpy as np

from turnwise.envs.base import (
    Baseline,
    BatchRewards,
    Env,
    Exact,
    Observation,
    Relabelled,
    Step,
)
from turnwise.envs.checks.declarations import ATTRIBUTES, place_of_method, properties_of
from turnwise.envs.frames import Frame, is_drawable
from turnwise.envs.measures import (
    LARGEST_REWARD,
    expected_measures,
    expected_score,
    is_reward,
    wrong_field,
)
from turnwise.envs.timeout import Alarm, Overrun
from turnwise.envs.unicode import UNICODE, is_unicode
from turnwise.envs.user_calls import CURE, call_env, overran, place_of, still_inside
from turnwise.errors import BrokenEnvError, ConfigError, SlowEnvError, StuckEnvError
from turnwise.types import Episode, Message, Split, Task

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
    """The number of calls of one env that timed out; `stuck` is why no more are made."""

    calls: int = 0
    last: int | None = None
    in_a_row: Counter[str] = field(default_factory=Counter)
    stuck: str | None = None

    def counted(self, method: str, slow: SlowEnvError, *, blocking: bool) -> SlowEnvError:
        """Take note of a call that hung; return the error to raise."""
        self.in_a_row[method] += 1
        since = None if self.last is None else self.calls - self.last
        self.last = self.calls
        if blocking:
            over, often = self.in_a_row[method] >= HANGS, f"{HANGS} times in a row"
        else:
            over, often = since is not None and since <= WINDOW, f"again after {since} calls"
        if not over:
            return slow
        self.stuck = str(slow).replace("): ", f"), {often}: ", 1)
        return StuckEnvError(self.stuck)


def guarded(env: Env[Any], timeout: float) -> GuardedEnv:
    """Return `env` under guard, with no hang counted so far. The env itself is not changed.

    Args:
        env: the env; one that is under guard already gets this guard instead.
        timeout: seconds that one call may take.

    Example:
        >>> from turnwise.envs import make_env
        >>> env = guarded(make_env("frozen-lake"), timeout=60)
        >>> env.name, type(env.unwrapped).__name__
        ('frozen-lake', 'FrozenLake')
    """
    return GuardedEnv(env.unwrapped, timeout)


class GuardedEnv(Env[Any]):
    """An env whose every call is watched, checked and passed on to `unwrapped`.

    A call that raises, takes longer than `timeout` seconds or returns a wrong type raises a
    `BrokenEnvError`. The second one within `WINDOW` calls that takes too long raises a
    `StuckEnvError`, which ends a run, and so does every call after it without being made. Envs that
    wait for something outside have `HANGS` calls of one method in a row. Where a limit cannot act:
    `timeout.within`. What an env declares is read from it and set on it.
    """

    def __init__(self, env: Env[Any], timeout: float) -> None:
        self._env, self.timeout = env, timeout
        self._properties = frozenset(properties_of(type(env)))
        self._count = _Count()
        self._measured: tuple[str, ...] | None = None

    @property
    def unwrapped(self) -> Env[Any]:
        """The env under guard."""
        return self._env

    def generate(self, rng: np.random.Generator) -> dict[str, Any]:
        """Draw a task; the data must be a dict."""
        data = self._call("generate", self._env.generate, rng)
        return data if isinstance(data, dict) else self._wrong("generate", data, "a dict")

    def canonical(self, data: Mapping[str, Any]) -> str:
        """Return the string that puts a task into a split."""
        return self._text("canonical", self._call("canonical", self._env.canonical, data))

    def reset(self, task: Task) -> Any:
        """Return the first state, which must not be None."""
        state = self._call("reset", self._env.reset, task)
        return state if state is not None else self._wrong("reset", state, "the first state")

    def observe(self, state: Any, role: str) -> Observation:
        """Return what a seat sees; the types of its fields are checked."""
        seen = self._call("observe", self._env.observe, state, role)
        if not isinstance(seen, Observation):
            self._wrong("observe", seen, "an Observation")
        if not isinstance(seen.text, str) or not isinstance(seen.description, str):
            self._wrong("observe", seen, "an Observation whose text and description are str")
        if not isinstance(seen.legal_actions, tuple) or not all(
            isinstance(a, str) for a in seen.legal_actions
        ):
            self._wrong("observe", seen, "an Observation whose legal is a tuple of str")
        for texts, kind in ((seen.messages, Message), (seen.tools, str)):
            if not isinstance(texts, tuple) or not all(isinstance(text, kind) for text in texts):
                self._wrong(
                    "observe", texts, f"messages and tools that are tuples of {kind.__name__}"
                )
        for text in seen.texts:
            self._text("observe", text)
        return seen

    def acting(self, state: Any) -> tuple[str, ...]:
        """Return the seats whose turn it is, which must be seats of the env."""
        acting = self._call("acting", self._env.acting, state)
        known = self.seats
        if not isinstance(acting, tuple) or not acting or not all(s in known for s in acting):
            self._wrong("acting", acting, f"a tuple of seats out of {', '.join(known)}")
        return acting

    def step(self, state: Any, role: str, action: str, noise: np.random.Generator) -> Step[Any]:
        """Return the step; flags must be bool, and rewards finite and declared."""
        step = self._call("step", self._env.step, state, role, action, noise)
        if not isinstance(step, Step):
            self._wrong("step", step, "a Step")
        if type(step.terminated) is not bool or type(step.truncated) is not bool:
            self._wrong("step", step, "a Step whose terminated and truncated are bool")
        self._check_rewards(step.rewards)
        for seat, rewards in step.others.items():
            if seat not in self.seats:
                self._wrong("step", step.others, f"others by seat, of {', '.join(self.seats)}")
            self._check_rewards(rewards)
        return step

    def _check_rewards(self, rewards: Any) -> None:
        """Raise unless the rewards of a seat are finite and declared."""
        if not isinstance(rewards, Mapping):
            self._wrong("step", rewards, "a Step whose rewards are a dict of name and float")
        for name, value in rewards.items():
            if name not in self.components:
                known = ", ".join(self.components) or "none"
                what = f"rewards only of its declared components ({known})"
                self._wrong("step", {name: value}, what)
            if not is_reward(value):
                what = f"rewards that are finite floats, of at most {LARGEST_REWARD:g} in size"
                self._wrong("step", {name: value}, what)

    def score(self, state: Any) -> float:
        """Return the score, which must be in [0, 1] unless the return is the score."""
        value = self._call("score", self._env.score, state)
        expected = expected_score(value, self.scored_by)
        return self._wrong("score", value, expected) if expected else value

    def seat_score(self, state: Any, seat: str) -> float:
        """Return the score of a seat, which must be in [0, 1] unless the return is the score."""
        value = self._call("seat_score", self._env.seat_score, state, seat)
        expected = expected_score(value, self.scored_by)
        return self._wrong("seat_score", value, expected) if expected else value

    def measures(self, state: Any) -> Mapping[str, float]:
        """Return the measures, which must be finite numbers under the same names each time."""
        found = self._call("measures", self._env.measures, state)
        expected = expected_measures(found, self._measured)
        if expected:
            self._wrong("measures", found, expected)
        self._measured = self._measured or tuple(found)
        return {name: float(value) for name, value in found.items()}

    def state_key(self, state: Any, role: str) -> str:
        """Return the key of a state."""
        key = self._call("state_key", self._env.state_key, state, role)
        return self._text("state_key", key)

    def random_action(self, state: Any, role: str, rng: np.random.Generator) -> str:
        """Return a random action, which must be text."""
        action = self._call("random_action", self._env.random_action, state, role, rng)
        return self._text("random_action", action)

    def vocabulary(self) -> tuple[str, ...]:
        """Return the words of the env, which must be text."""
        words = self._call("vocabulary", self._env.vocabulary)
        return tuple(self._text("vocabulary", word) for word in words)

    def render(self, state: Any) -> str:
        """Return the picture of a state, which must be text."""
        return self._text("render", self._call("render", self._env.render, state))

    def frame(self, state: Any) -> Frame | None:
        """Return the coloured picture of a state, which must be a frame or None."""
        found: Any = self._call("frame", self._env.frame, state)
        if found is None or is_drawable(found):
            return found
        self._wrong("frame", found, "a Frame whose rows have one length, of Cells, or None")

    def turn_cap(self) -> int:
        """Return the most turns of an episode, which must be 1 or more."""
        cap = self._call("turn_cap", self._env.turn_cap)
        is_count = isinstance(cap, int) and cap >= 1
        return cap if is_count else self._wrong("turn_cap", cap, "a whole number from 1")

    def baselines(self) -> Mapping[str, Baseline]:
        """Return the baselines, whose calls are watched too."""
        players = self._call("baselines", self._env.baselines)
        return {name: self._guarded_player(name, player) for name, player in players.items()}

    def tasks(self, split: Split) -> Sequence[Mapping[str, Any]] | None:
        """Return the tasks of a split where the env lists them."""
        return self._call("tasks", self._env.tasks, split)

    def relabel(self, task: Task, actions: Sequence[str]) -> Relabelled | None:
        """Return a task that the actions solve; the types of its fields are checked."""
        found = self._call("relabel", self._env.relabel, task, actions)
        if found is None:
            return None
        if not isinstance(found, Relabelled):
            self._wrong("relabel", found, "a Relabelled, or None")
        wrong = self._call("relabel", wrong_field, found)
        if wrong is not None:
            name, value, expected = wrong
            self._wrong("relabel", value, f"a Relabelled with {expected} as its {name}")
        return found

    def exact(self, task: Task) -> Exact[Any] | None:
        """Return how to compute what a policy is worth."""
        return self._call("exact", self._env.exact, task)

    async def score_batch(
        self, episodes: Sequence[Episode], iterations: int
    ) -> BatchRewards | None:
        """Judge a batch, in time for each `BATCH` episodes; programs have limits of their own."""
        found = await self._judged(episodes, iterations)
        return None if found is None else self._batch(found, len(episodes))

    def _batch(self, found: Any, count: int) -> BatchRewards:
        """Return what was found for a batch; rewards must be finite, one entry an episode."""
        if not isinstance(found, BatchRewards):
            self._wrong("score_batch", found, "a BatchRewards, or None")
        if len(found.rewards) != count or len(found.notes) not in (0, count):
            what = f"a BatchRewards with rewards, and notes or none, of each of {count} episodes"
            self._wrong("score_batch", found, what)
        for rewards in found.rewards:
            if rewards is None:
                continue
            if not isinstance(rewards, Mapping) or not all(map(is_reward, rewards.values())):
                what = f"rewards that are finite floats, of at most {LARGEST_REWARD:g} in size"
                self._wrong("score_batch", rewards, what)
        return found

    async def _judged(self, episodes: Sequence[Episode], iterations: int) -> BatchRewards | None:
        judged = self._env.score_batch(episodes, iterations)
        if self.runs_programs:
            return await judged
        seconds = self.timeout * max(1, math.ceil(len(episodes) / BATCH))
        limit = asyncio.timeout(seconds)
        place = "while it waits"
        try:
            with Alarm(seconds + GRACE, partial(still_inside, self._env, "score_batch")):
                async with limit:
                    return await judged
        except TimeoutError:
            if not limit.expired():
                raise
        except Overrun as cause:
            place = place_of(cause.__traceback__, self._env)
        raise StuckEnvError(str(overran(self._env, "score_batch", seconds, place)))

    def slow_step(self) -> SlowEnvError:
        """Count a step on a thread of its own that did not return; return the error to raise."""
        slow = overran(self._env, "step", self.timeout, "on a thread of its own")
        return self._count.counted("step", slow, blocking=self.blocking)

    def _guarded_player(self, name: str, player: Baseline) -> Baseline:
        method = f"baselines()[{name!r}]"

        def play(state: Any, rng: np.random.Generator) -> str:
            return self._text(method, self._call(method, player, state, rng))

        return play

    def _call(self, method: str, call: Callable[..., Any], *args: Any) -> Any:
        """Return `call(*args)`; whatever it raises becomes one sentence; hangs are counted."""
        count = self._count
        if count.stuck is not None:  # waiting once more would be in vain
            raise StuckEnvError(count.stuck)
        count.calls += 1
        try:
            result = call_env(self._env, method, self.timeout, call, *args)
        except SlowEnvError as slow:
            blocking = method != "blocking" and self.blocking  # it may be what hung
            raise count.counted(method, slow, blocking=blocking) from None
        count.in_a_row.pop(method, None)
        return result

    def _text(self, method: str, value: Any) -> str:
        if not isinstance(value, str):
            self._wrong(method, value, "a str")
        return value if is_unicode(value) else self._wrong(method, value, UNICODE)

    def _wrong(self, method: str, value: Any, expected: str) -> NoReturn:
        """Say what a method returned instead of what it should, and where it is written."""
        said = call_env(self._env, "__repr__", self.timeout, repr, value)
        given = " ".join(said.split())
        given = given if len(given) <= 80 else f"{given[:77]}..."
        kind = type(self._env)
        place = place_of_method(kind, method.partition("(")[0])
        raise BrokenEnvError(
            f"{kind.__name__}.{method} returned {given} of type {type(value).__name__}, expected "
            f"{expected}{f' ({place})' if place else ''}: {CURE}"
        )


def _declared(name: str) -> property:
    """Return the property that reads what an env declares; code of the env's own in time."""

    def read(guard: GuardedEnv) -> Any:
        if name in guard._properties:
            return guard._call(name, getattr, guard._env, name)
        return getattr(guard._env, name)

    def write(guard: GuardedEnv, value: Any) -> None:
        try:
            setattr(guard._env, name, value)
        except AttributeError as cause:
            kind = type(guard._env).__name__
            raise ConfigError(
                f"{kind}.{name} cannot be set to {value!r} ({cause}): leave env.{name} out, or let "
                f"{kind} set it"
            ) from cause

    return property(read, write)


for _name in ATTRIBUTES:  # class attributes and properties of `Env`, which the env may override
    setattr(GuardedEnv, _name, _declared(_name))
