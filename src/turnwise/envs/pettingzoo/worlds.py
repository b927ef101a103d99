"""Live PettingZoo envs behind immutable states, and the choice of how earlier states are stepped.

Provides `CopyWorld`, `ReplayWorld` and `NoneWorld`, and `open_world`, which measures which of them
is correct for an env: episodes that are played side by side, with steps back to earlier states,
must equal the same episodes played alone.
"""

from __future__ import annotations

from collections.abc import Callable, Hashable, Mapping, Sequence
from dataclasses import replace
from typing import Any

import numpy as np

from turnwise.envs.equality import equal_values
from turnwise.envs.pettingzoo.config import Way
from turnwise.envs.pettingzoo.live import Round, begin, copied, go
from turnwise.envs.pettingzoo.registry import Maker
from turnwise.envs.replays import LiveEnv, Replays, close_env, open_env
from turnwise.errors import ConfigError, EnvError
from turnwise.seeding import generator
from turnwise.utils.user_code import MISTAKES

Draw = Callable[[str, Any, np.random.Generator], Any]
"""Draws an action of an agent that has made an observation."""
SEEDS, ROUNDS, BACK = (0, 1, 2, 3), 40, 0.25
"""Seeds of the episodes of the trial, their most rounds, and the share of steps that are followed
by a step from an earlier state."""
_FOUND: dict[tuple[Hashable, Way | None], type[World]] = {}
"""The results of this process: a run makes an env several times."""


class CopyWorld:
    """Every state holds a copy of the env, which is never stepped itself."""

    branching: Way = "copy"

    def __init__(self, make: Callable[[], Any]) -> None:
        self._unused = make()

    def reset(self, seed: int) -> Round:
        """Return the first state of an episode."""
        env = copied(self._unused)
        return replace(begin(env, seed), memory=env)

    def step(self, memory: Any, actions: Mapping[str, Any], noise: np.random.Generator) -> Round:
        """Return what the actions of a round lead to; `memory` is not changed."""
        env = copied(memory)
        return replace(go(env, actions, noise), memory=env)


class ReplayWorld:
    """A live env for each episode; a step from an earlier state replays the episode."""

    branching: Way = "replay"

    def __init__(self, make: Callable[[], Any]) -> None:
        self._replays: Replays[Any, int, Mapping[str, Any], Round] = Replays(make, begin, go)

    def reset(self, seed: int) -> Round:
        """Return the first state of an episode."""
        begun, past = self._replays.reset(seed)
        return replace(begun, memory=past)

    def step(self, memory: Any, actions: Mapping[str, Any], noise: np.random.Generator) -> Round:
        """Return what the actions of a round lead to; `memory` is not changed."""
        done, past = self._replays.step(memory, dict(actions), noise)
        return replace(done, memory=past)


class NoneWorld:
    """A live env for each episode, of which only the newest state can be stepped."""

    branching: Way = "none"

    def __init__(self, make: Callable[[], Any]) -> None:
        self._make = make

    def reset(self, seed: int) -> Round:
        """Return the first state of an episode."""
        live = open_env(self._make)
        return replace(begin(live.env, seed), memory=(live, 0))

    def step(
        self,
        memory: tuple[LiveEnv[Any], int],
        actions: Mapping[str, Any],
        noise: np.random.Generator,
    ) -> Round:
        """Return what the actions of a round lead to.

        Raises:
            EnvError: if the state is not the newest one of its episode.
        """
        live, at = memory
        if live.at != at:
            raise EnvError(
                f"{type(live.env.unwrapped).__name__}: branching = 'none', so that only the "
                "newest state of an episode can be stepped: let reset(seed) decide all that "
                "follows, so that episodes can be replayed"
            )
        live.at += 1
        done = go(live.env, actions, noise)
        return replace(done, memory=(live, live.at))


World = CopyWorld | ReplayWorld | NoneWorld


def open_world(maker: Maker, draw: Draw, way: Way | None) -> World:
    """Return the cheapest world that is correct, by a trial when the env is made.

    Args:
        maker: makes live envs.
        draw: draws an action.
        way: the only one to try; None tries copies, then replays, then none.

    Raises:
        ConfigError: if the one that was asked for is not correct.
    """
    key = maker.key, way
    if key not in _FOUND:
        _FOUND[key] = _measured(maker, draw, way)
    return _FOUND[key](maker.make)


def _measured(maker: Maker, draw: Draw, way: Way | None) -> type[World]:
    if way == "none":
        return NoneWorld
    alone = {seed: _played_alone(maker, draw, seed) for seed in SEEDS}
    again = {seed: _played_alone(maker, draw, seed) for seed in reversed(SEEDS)}
    why = ""
    if any(not _same(alone[seed], again[seed]) for seed in SEEDS):
        why = "two plays with one seed differ: draw only from what reset(seed) has seeded"
    for kind in (CopyWorld, ReplayWorld):
        if why or way not in (None, kind.branching):
            continue
        try:
            if _keeps(kind(maker.make), draw, alone):
                return kind
            told = "episodes that are played side by side differ from the same episodes alone"
        except MISTAKES as cause:
            told = f"it raised {type(cause).__name__}: {cause}"
        if way is not None:
            why = told
    if way is not None:
        raise ConfigError(
            f"branching = {way!r} does not come back to a state of {maker.name!r} ({why}): leave "
            "it out"
        )
    return NoneWorld


def _played_alone(maker: Maker, draw: Draw, seed: int) -> list[Round]:
    env = maker.make()
    rounds = [begin(env, seed)]
    while rounds[-1].acting and len(rounds) <= ROUNDS:
        rounds.append(go(env, _actions(draw, seed, rounds), _noise(seed, len(rounds))))
    close_env(env)
    return rounds


def _actions(draw: Draw, seed: int, rounds: Sequence[Round]) -> dict[str, Any]:
    """Return the actions that follow the rounds of an episode of the trial."""
    rng, now = generator(seed, "trial action", len(rounds)), rounds[-1]
    return {agent: draw(agent, now.seen.get(agent), rng) for agent in now.acting}


def _noise(seed: int, number: int) -> np.random.Generator:
    return generator(seed, "trial", number)


def _same(left: Sequence[Round], right: Sequence[Round]) -> bool:
    pairs = zip(left, right, strict=False)
    return len(left) == len(right) and all(_alike(one, other) for one, other in pairs)


def _alike(one: Round, other: Round) -> bool:
    shown = [(r.acting, dict(r.seen), dict(r.paid), dict(r.ended)) for r in (one, other)]
    return equal_values(shown[0], shown[1])


def _keeps(world: World, draw: Draw, alone: Mapping[int, Sequence[Round]]) -> bool:
    """Whether interleaved episodes in `world`, with steps back, equal the same episodes alone."""
    order = generator(0, "trial order")
    played: dict[int, list[Round]] = {}

    def steps(seed: int, count: int) -> Round:
        before = played[seed][:count]
        return world.step(before[-1].memory, _actions(draw, seed, before), _noise(seed, count))

    going = list(alone)
    while going:
        seed = going[int(order.integers(len(going)))]
        if seed not in played:
            played[seed] = [world.reset(seed)]
        else:
            played[seed].append(steps(seed, len(played[seed])))
        count = len(played[seed])
        if not _alike(played[seed][-1], alone[seed][count - 1]):
            return False
        if count == len(alone[seed]):
            going.remove(seed)
        other = list(played)[int(order.integers(len(played)))]
        if order.random() < BACK and len(played[other]) > 1:
            place = int(order.integers(1, len(played[other])))
            if not _alike(steps(other, place), alone[other][place]):
                return False
    return True
