"""Live gymnasium envs behind immutable states: any earlier state can be stepped again.

Provides the two methods: `CopyWorld` stores a copy of the env with every state, and `ReplayWorld`
plays an episode again from its seed. All random numbers come from a generator that the caller
passes. `branching_trial.open_world` measures which method is correct for an env.
"""

from __future__ import annotations

import copy
import math
from collections.abc import Callable, Sequence
from dataclasses import dataclass, replace
from typing import Any, Literal

import numpy as np

from turnwise.envs.gymnasium.contents import ATOMS, NotCopiedError
from turnwise.envs.gymnasium.copies import Copies, Saved, layers_of
from turnwise.envs.gymnasium.outside_state import Outside
from turnwise.envs.gymnasium.registry import Live
from turnwise.envs.replays import Replays
from turnwise.errors import EnvError

Way = Literal["copy", "replay"]


@dataclass(frozen=True, kw_only=True, slots=True)
class Origin:
    """The start of an episode: gymnasium's seed, and a state of a table if one is given."""

    seed: int
    state: int | None = None


@dataclass(frozen=True, kw_only=True, slots=True)
class Outcome:
    """The result of equal actions in a row; `memory` is the way back to its state.

    `gain` is the sum of positive rewards, `cost` that of negative ones.
    """

    observation: Any
    memory: Any
    gain: float = 0.0
    cost: float = 0.0
    terminated: bool = False
    truncated: bool = False
    steps: int = 0

    @property
    def reward(self) -> float:
        """The total reward."""
        return self.gain + self.cost


def begin(env: Live, origin: Origin) -> Any:
    """Reset a live env; return a copy of the first observation."""
    begun = env.reset(seed=origin.seed)
    if not (isinstance(begun, tuple) and len(begun) == 2):
        raise _no_gymnasium(env, "reset", begun, "(observation, info)")
    observation, _ = begun
    if origin.state is None:
        return _own(observation)
    vars(env.unwrapped)["s"] = origin.state
    return origin.state


def go(env: Live, action: Any, count: int, noise: np.random.Generator) -> Outcome:
    """Take up to `count` equal steps in a live env; random numbers come from `noise`."""
    env.unwrapped.np_random = noise
    gain, cost, steps = 0.0, 0.0, 0
    observation, terminated, truncated = None, False, False
    while steps < count and not (terminated or truncated):
        done = env.step(_own(action))
        if not (isinstance(done, tuple) and len(done) == 5):
            expected = "(observation, reward, terminated, truncated, info)"
            raise _no_gymnasium(env, "step", done, expected)
        observation, reward, terminated, truncated, _ = done
        paid = float(reward)
        if not math.isfinite(paid):  # which max and min would turn into 0
            name = type(env.unwrapped).__name__
            raise EnvError(f"{name}.step returned the reward {paid}: return a finite number")
        gain, cost = gain + max(0.0, paid), cost + min(0.0, paid)
        steps += 1
    return Outcome(
        observation=_own(observation),
        memory=None,
        gain=gain,
        cost=cost,
        terminated=bool(terminated),
        truncated=bool(truncated),
        steps=steps,
    )


def _own(value: Any) -> Any:
    """Return a copy of an action or observation, because the env may change the original."""
    if type(value) in ATOMS:
        return value
    if type(value) is np.ndarray and not value.dtype.hasobject:
        return value.copy()
    return copy.deepcopy(value)


def _no_gymnasium(env: Live, method: str, given: Any, expected: str) -> EnvError:
    kind = f"{len(given)} values" if isinstance(given, tuple) else type(given).__name__
    name = type(env.unwrapped).__name__
    return EnvError(f"{name}.{method} returned {kind}: return {expected}, as Gymnasium 1.0 asks")


def outside_of(env: Live) -> Outside:
    """Return the watcher of state outside the instance of an env and its wrappers."""
    return Outside(type(layer) for layer in layers_of(env))


def outside_error(names: Sequence[str]) -> str:
    """Return the message that names outside state which a step or a reset has changed."""
    return (
        f"a step or reset of this env changed {', '.join(names)}, which all episodes share: keep "
        "all state on self, and set it up in reset"
    )


class CopyWorld:
    """One live env; every state stores the content of all of its objects.

    Every episode begins from the env as it was made, without effects of earlier episodes.
    """

    branching: Way = "copy"

    def __init__(self, make: Callable[[], Live]) -> None:
        self.make = make
        self._env = make()
        self._copies = Copies(self._env)
        self._unused: Saved = self._copies.save()
        self._newest: object | None = None
        self._outside = outside_of(self._env)

    def reset(self, origin: Origin) -> Outcome:
        """Return the first state of an episode."""
        self._restore(self._unused)
        self._outside.before()
        observation = begin(self._env, origin)
        return Outcome(observation=observation, memory=self._save())

    def step(self, memory: Any, action: Any, count: int, noise: np.random.Generator) -> Outcome:
        """Return the result of up to `count` times `action`; `memory` is not changed."""
        if memory is not self._newest:
            self._restore(memory)
        self._newest = None
        self._outside.before()
        # a generator that the env keeps would be restored with it, so the env gets a copy
        own = copy.deepcopy(noise) if self._copies.keeps_noise else noise
        done = go(self._env, action, count, own)
        if own is not noise:
            noise.bit_generator.state = own.bit_generator.state
        return replace(done, memory=self._save(own))

    def _restore(self, memory: Saved) -> None:
        self._newest = None
        try:
            self._copies.restore(memory)
        except NotCopiedError as cause:
            raise EnvError(f"{cause.why}: set branching = 'replay'") from cause

    def _save(self, noise: np.random.Generator | None = None) -> Saved:
        _check(self._outside)
        try:
            self._newest = found = self._copies.save(noise)
        except NotCopiedError as cause:
            raise EnvError(f"{cause.why}: set branching = 'replay'") from cause
        return found


def _check(outside: Outside) -> None:
    names = outside.after()
    if names:
        raise EnvError(outside_error(names))


class ReplayWorld:
    """A live env for each episode; a step from an earlier state replays the episode (`Replays`)."""

    branching: Way = "replay"

    def __init__(self, make: Callable[[], Live]) -> None:
        self.make = make
        self._outside = outside_of(make())
        self._replays: Replays[Live, Origin, tuple[Any, int], Outcome] = Replays(
            lambda: self.make(), self._begin, self._go
        )

    def reset(self, origin: Origin) -> Outcome:
        """Return the first state of an episode."""
        begun, past = self._replays.reset(origin)
        return replace(begun, memory=past)

    def step(self, memory: Any, action: Any, count: int, noise: np.random.Generator) -> Outcome:
        """Return the result of up to `count` times `action`; `memory` is not changed."""
        done, past = self._replays.step(memory, (action, count), noise)
        return replace(done, memory=past)

    def _begin(self, env: Live, origin: Origin) -> Outcome:
        self._outside.before()
        observation = begin(env, origin)
        _check(self._outside)
        return Outcome(observation=observation, memory=None)

    def _go(self, env: Live, action: tuple[Any, int], noise: np.random.Generator) -> Outcome:
        self._outside.before()
        done = go(env, *action, noise)
        _check(self._outside)
        return done


World = CopyWorld | ReplayWorld
