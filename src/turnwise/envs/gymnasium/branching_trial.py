"""The choice of a branching method for a gymnasium env, by measurement when the env is made.

Provides `open_world`. Episodes are first played alone, each in a new env. A world is correct if it
gives the same observations and rewards when the episodes are interleaved in random order with steps
from earlier states, and when they are played again in used envs.
"""

from __future__ import annotations

import decimal
import os
import pickle
import random
import sys
from collections.abc import Callable, Hashable, Mapping, Sequence
from dataclasses import dataclass
from typing import Any

import numpy as np

from turnwise.envs.equality import equal_values
from turnwise.envs.gymnasium.contents import NotCopiedError
from turnwise.envs.gymnasium.copies import Copies, layers_of
from turnwise.envs.gymnasium.outside_state import hidden_state
from turnwise.envs.gymnasium.registry import Live, Maker
from turnwise.envs.gymnasium.worlds import (
    CopyWorld,
    Origin,
    Outcome,
    ReplayWorld,
    Way,
    World,
    begin,
    go,
    outside_of,
)
from turnwise.errors import ConfigError
from turnwise.seeding import generator
from turnwise.utils.user_code import MISTAKES

Draw = Callable[[np.random.Generator], Any]
ROUNDS = ((0, 1, 2), (3, 4, 5), (5, 3, 1, 0, 2, 4))
"""Seeds of episodes that are interleaved, round by round; between rounds all states are dropped."""
STEPS, LONG, LONG_SEEDS = 30, 150, (0, 4)
"""The largest number of steps of a probe episode, and of a few longer ones."""
BACK = 0.2
"""The share of steps that are followed by a step from an earlier state."""
WATCHED, LOOKS = 1000, 50
"""Steps of further episodes, which detect state outside the instance and objects that cannot be
copied; and the number of steps between copies."""
_FOUND: dict[tuple[Hashable, Way | None, int], type[World]] = {}
"""Cache of the measurements of this process; a run makes an env several times."""


@dataclass(frozen=True, kw_only=True, slots=True)
class _Alone:
    """An episode played alone in a new env: its outcomes step by step."""

    first: Any
    shown: Sequence[Any]


def open_world(maker: Maker, draw: Draw, way: Way | None, limit: int) -> World:
    """Return the cheapest world that returns to earlier states correctly, by measurement.

    Args:
        maker: makes live envs.
        draw: draws an action.
        way: the only method to try; None tries copies, then replay.
        limit: the largest number of steps of an episode.

    Raises:
        ConfigError: if no method is correct: the env draws from another generator than
            `np_random`, keeps state outside the instance, or its episodes depend on more than the
            seed.
    """
    key = maker.key, way, min(limit, LONG)
    if key not in _FOUND:
        _FOUND[key] = _measured(maker, draw, way, limit)
    return _FOUND[key](maker.make)


def _measured(maker: Maker, draw: Draw, way: Way | None, limit: int) -> type[World]:
    watch = _Watch(maker.make())
    seeds = sorted({seed for seeds in ROUNDS for seed in seeds})
    alone = {seed: _played_alone(maker, draw, seed, limit, watch) for seed in seeds}
    for seed in reversed(seeds):
        again = _played_alone(maker, draw, seed, limit, watch)
        if not equal_values([again.first, again.shown], [alone[seed].first, alone[seed].shown]):
            raise ConfigError(
                "two plays of this env with equal seed and noise differ: let it draw only from "
                f"self.np_random, and set up all of an episode in reset{watch.told()}"
            )
    why = _watched(maker, draw, limit, watch)
    if watch.names:
        raise ConfigError(f"{_DIFFER}{watch.told()}")
    if way in (None, "copy") and not why:
        try:
            if _keeps(CopyWorld(maker.make), draw, alone):
                return CopyWorld
        except (NotCopiedError, *MISTAKES) as cause:
            why = str(cause).partition(": set branching")[0]
    if way == "copy":
        why = f": {why}" if why else watch.told()
        raise ConfigError(
            f"branching = 'copy' does not come back to a state of this env: leave it out{why}"
        )
    if _keeps(ReplayWorld(maker.make), draw, alone):
        return ReplayWorld
    raise ConfigError(f"{_DIFFER}{watch.told()}")


_DIFFER = (
    "episodes of this env that are played side by side differ from the same episodes played alone, "
    "or come to differ: keep all of its state on self, and set it up in reset"
)


def _watched(maker: Maker, draw: Draw, limit: int, watch: _Watch) -> str:
    """Play further, longer episodes; return the reason why the env cannot be copied, or ""."""
    env = maker.make()
    copies, number, seed = Copies(env), 0, len(ROUNDS[-1])
    watch.begins()
    why = hidden_state(type(layer) for layer in layers_of(env)) or ""
    try:
        copies.save()
    except NotCopiedError as cause:
        why = cause.why
    while number < WATCHED and (watch.watches or not why):
        begin(env, Origin(seed=seed))
        shared = _of_process()
        for at in range(min(limit, WATCHED - number)):
            done = go(env, _action(draw, seed, at), 1, generator(seed, "probe", at))
            number += 1
            watch.look()
            over = done.terminated or done.truncated
            if not why and (over or number % LOOKS == 0):
                try:
                    copies.save()
                except NotCopiedError as cause:
                    why = cause.why
            if over:
                break
        watch.names |= _differing(shared)
        seed, number = seed + 1, number + LOOKS  # advance even if episodes are short
    watch.ends()
    return why


def _played_alone(maker: Maker, draw: Draw, seed: int, limit: int, watch: _Watch) -> _Alone:
    env = maker.make()
    watch.begins()
    first, shown = begin(env, Origin(seed=seed)), []
    for number in range(min(limit, LONG if seed in LONG_SEEDS else STEPS)):
        done = go(env, _action(draw, seed, number), 1, generator(seed, "probe", number))
        watch.look()
        shown.append(_shown(done))
        if done.terminated or done.truncated:
            break
    watch.ends()
    return _Alone(first=first, shown=shown)


def _action(draw: Draw, seed: int, number: int) -> Any:
    return draw(generator(seed, "probe action", number))


def _shown(done: Outcome) -> tuple[Any, ...]:
    return done.observation, done.reward, done.terminated, done.truncated


def _keeps(world: World, draw: Draw, alone: Mapping[int, _Alone]) -> bool:
    """Whether interleaved episodes in `world` equal the same episodes played alone."""
    order = generator(0, "probe order")
    return all(_round(world, draw, alone, seeds, order) for seeds in ROUNDS)


def _round(
    world: World,
    draw: Draw,
    alone: Mapping[int, _Alone],
    seeds: Sequence[int],
    order: np.random.Generator,
) -> bool:
    """Interleave the episodes of `seeds`; return whether they equal those played alone."""
    memories: dict[int, list[Any]] = {}

    def steps(seed: int, number: int) -> Any | None:
        """Step the episode of `seed` from its state `number`; None if the outcome differs."""
        action = _action(draw, seed, number)
        done = world.step(memories[seed][number], action, 1, generator(seed, "probe", number))
        return done.memory if equal_values(_shown(done), alone[seed].shown[number]) else None

    going = list(seeds)
    while going:
        seed = going[int(order.integers(len(going)))]
        if seed not in memories:
            begun = world.reset(Origin(seed=seed))
            if not equal_values(begun.observation, alone[seed].first):
                return False
            memories[seed] = [begun.memory]
            continue
        memory = steps(seed, len(memories[seed]) - 1)
        if memory is None:
            return False
        memories[seed].append(memory)
        if len(memories[seed]) > len(alone[seed].shown):
            going.remove(seed)
        if order.random() < BACK:
            other = list(memories)[int(order.integers(len(memories)))]
            taken = min(len(memories[other]) - 1, STEPS)
            if taken and steps(other, int(order.integers(taken))) is None:
                return False
    return True


class _Watch:
    """The names outside the instance that the plays of an env have changed."""

    def __init__(self, env: Live) -> None:
        self.names: dict[str, None] = {}
        self._outside = outside_of(env)
        self._process = _of_process()
        self._steps = 0

    def begins(self) -> None:
        """Ignore the changes that the construction of an env made."""
        self._outside.changed()

    @property
    def watches(self) -> bool:
        """Whether anything outside the instance can be changed by the env's code."""
        return bool(self._outside)

    def look(self) -> None:
        """Record the changes of a step; if much is watched, only after some steps."""
        self._steps += 1
        if self._steps % self._outside.every == 0:
            self.ends()

    def ends(self) -> None:
        """Record the changes since the last look."""
        self.names |= dict.fromkeys(self._outside.changed())

    def told(self) -> str:
        """Return the names of changed objects, as the end of a sentence; often empty."""
        names = self.names | _differing(self._process)
        return f" (it changed {', '.join(names)} meanwhile)" if names else ""


def _differing(before: Mapping[str, bytes]) -> dict[str, None]:
    """Return the names of process-wide state that has changed."""
    now = _of_process()
    return {name: None for name in now if name in before and now[name] != before[name]}


def _of_process() -> dict[str, bytes]:
    """Return the process-wide state that envs are known to use."""
    found = {
        "the generator of Python's random": pickle.dumps(random.getstate()),
        "the generator of numpy.random": pickle.dumps(np.random.get_state()),
        "os.environ": repr(os.environ).encode(),
        "the context of decimal": repr(decimal.getcontext()).encode(),
    }
    torch = sys.modules.get("torch")
    if torch is not None:
        found["the generator of torch"] = torch.get_rng_state().numpy().tobytes()
    return found
