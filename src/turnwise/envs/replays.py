"""Live envs of other packages that are played again from their seed.

Provides `LiveEnv`, one live env in an episode, `open_env`, and `Replays`, which steps any earlier
state of an episode by a replay.
"""

from __future__ import annotations

import weakref
from collections.abc import Callable, Mapping
from contextlib import suppress
from dataclasses import dataclass
from typing import Any, Generic, TypeVar

import numpy as np

from turnwise.utils.user_code import MISTAKES

E = TypeVar("E")
"""A live env, which has `close()`."""
S = TypeVar("S")
"""What an episode begins from, such as a seed."""
A = TypeVar("A")
"""What is done in a step."""
R = TypeVar("R")
"""What a reset or a step leads to."""


@dataclass(eq=False)
class LiveEnv(Generic[E]):
    """A live env in an episode, `at` steps after its reset."""

    env: E
    at: int = 0


@dataclass(frozen=True, eq=False)
class Past(Generic[E, S, A]):
    """The way back to a state: the origin, or the action and the generator's state after `before`.

    The generator is that of the step: its kind and its state when the step began.
    """

    origin: S
    live: LiveEnv[E]
    at: int = 0
    before: Past[E, S, A] | None = None
    action: A | None = None
    chance: tuple[type, Mapping[str, Any]] | None = None


def open_env(make: Callable[[], E]) -> LiveEnv[E]:
    """Return a new env, which is closed when no state refers to it."""
    env = make()
    live = LiveEnv(env)
    weakref.finalize(live, close_env, env).atexit = False
    return live


def close_env(env: Any) -> None:
    """Close an env that is not used any more; its error is of no interest."""
    with suppress(*MISTAKES):
        env.close()


class Replays(Generic[E, S, A, R]):
    """A live env for each episode; a step from an earlier state replays the episode from its seed.

    A step from an episode's newest state costs one step; from any other state, all steps before it
    too. Every episode has a new env, so state that an env keeps over resets may remain undetected.

    Args:
        make: makes a live env.
        begin: resets it to an origin.
        go: takes a step in it, with random numbers of a generator.
    """

    def __init__(
        self,
        make: Callable[[], E],
        begin: Callable[[E, S], R],
        go: Callable[[E, A, np.random.Generator], R],
    ) -> None:
        self._make, self._begin, self._go = make, begin, go

    def reset(self, origin: S) -> tuple[R, Past[E, S, A]]:
        """Return the begin of an episode, and the way back to it."""
        live = open_env(self._make)
        return self._begin(live.env, origin), Past(origin, live)

    def step(
        self, past: Past[E, S, A], action: A, noise: np.random.Generator
    ) -> tuple[R, Past[E, S, A]]:
        """Return what an action leads to, and the way back to it; `past` is not changed."""
        live = past.live if past.live.at == past.at else self._again(past)
        chance = (type(noise.bit_generator), noise.bit_generator.state)
        live.at += 1
        done = self._go(live.env, action, noise)
        return done, Past(past.origin, live, live.at, past, action, chance)

    def _again(self, past: Past[E, S, A]) -> LiveEnv[E]:
        """Return another live env in the state of `past`."""
        live = open_env(self._make)
        self._begin(live.env, past.origin)
        steps, at = list[Past[E, S, A]](), past.at
        while past.before is not None:
            steps.append(past)
            past = past.before
        for each in reversed(steps):
            assert each.chance is not None and each.action is not None
            kind, state = each.chance
            bits = kind()
            bits.state = state
            self._go(live.env, each.action, np.random.Generator(bits))
        live.at = at
        return live
