"""Whether states that look alike behave differently.

Provides `hidden_share`, a test on states of random games: pairs of states of equal label are
stepped with the same action and the same randomness. Where something else follows, the label does
not tell the state. An agent whose observations hide the state may need its past.
"""

from __future__ import annotations

import time
from collections.abc import Hashable, Iterator, Mapping, Sequence
from dataclasses import dataclass
from operator import attrgetter
from typing import Any

import numpy as np

from turnwise.envs.base import Env
from turnwise.errors import EnvError, IllegalActionError, StuckEnvError
from turnwise.seeding import generator

PAIRS, SECONDS = 1000, 1.0
"""The most pairs of states that are compared, and the most seconds of it."""
ENOUGH = 100
"""The fewest pairs of which a share is told. If none of 100 pairs differs, the share of all pairs
is below 3 %, at 95 % confidence."""
LEAST = 0.2
"""The smallest share of the states after the first of a game that must look like another one: a few
states that recur do not tell how the others behave."""
OTHERS = 32
"""The most turns of other seats that are played until a seat acts again."""


@dataclass(frozen=True, kw_only=True, slots=True)
class Visit:
    """A state of a random game in which `seat` took `action`.

    `game` and `task` are their numbers. States of one seat with equal `label` look alike. `first`
    says whether it is the first state of its game.
    """

    game: int
    task: int
    label: Hashable
    seat: str
    action: str
    first: bool
    state: Any


def hidden_share(
    env: Env[Any],
    visits: Sequence[Visit],
    seed: int,
    *,
    within_tasks: bool = False,
    by_key: bool = False,
) -> float | None:
    """Return the share of pairs of states of equal label that behave differently.

    They differ where the same action and noise are followed by other rewards, another observation
    of the seat, or an end. A cut by a limit on turns says nothing. Half of the pairs are drawn by
    state, half by label, so that rare labels count.

    Args:
        env: an env that steps any state again, with the same result for the same noise.
        visits: states of random games.
        seed: of the pairs and the noise.
        within_tasks: whether the two states of a pair are of one task, in place of two.
        by_key: whether the key of the next state is compared, in place of its observation.

    Returns:
        None where fewer than `ENOUGH` pairs could be compared, or where games have several turns
        and fewer than `ENOUGH` of the states after the first, or less than `LEAST` of them, have
        the label of another one.

    Raises:
        StuckEnvError: if calls of a guarded env repeatedly do not return.
    """
    until = time.perf_counter() + SECONDS
    compared = differ = 0
    alike = _alike(visits, within_tasks)
    later = sum(not visit.first for visit in visits)
    recurring = sum(not visit.first for found in alike for visit in found)
    if later and recurring < max(ENOUGH, LEAST * later):
        return None
    pairs = _pairs(alike, within_tasks, generator(seed, "hidden state"))
    for number, (one, other) in enumerate(pairs):
        if time.perf_counter() >= until:
            break
        found = [
            _what_follows(env, each, one.action, seed, number, by_key=by_key)
            for each in (one, other)
        ]
        if found[0] is not None and found[1] is not None:
            compared += 1
            differ += found[0] != found[1]
    return differ / compared if compared >= ENOUGH else None


def _alike(visits: Sequence[Visit], within_tasks: bool) -> list[list[Visit]]:
    """Return visits of equal label that are of two games of one task at least, or of two tasks."""
    labels: dict[Hashable, list[Visit]] = {}
    for visit in visits:
        where = visit.task if within_tasks else None
        labels.setdefault((where, visit.seat, visit.label), []).append(visit)
    kind = attrgetter("game" if within_tasks else "task")
    return [found for found in labels.values() if len({kind(visit) for visit in found}) > 1]


def _pairs(
    alike: list[list[Visit]], within_tasks: bool, rng: np.random.Generator
) -> Iterator[tuple[Visit, Visit]]:
    """Draw pairs of visits that look alike: of two games of one task, or of two tasks."""
    members = [(place, visit) for place, found in enumerate(alike) for visit in found]
    for number in range(PAIRS if alike else 0):
        if number % 2:
            found = alike[rng.integers(len(alike))]
            one = found[rng.integers(len(found))]
        else:
            place, one = members[rng.integers(len(members))]
            found = alike[place]
        other = found[rng.integers(len(found))]
        if other.game != one.game and (other.task == one.task) == within_tasks:
            yield one, other


def _what_follows(
    env: Env[Any], visit: Visit, action: str, seed: int, number: int, *, by_key: bool
) -> Hashable | None:
    """Return the rewards until the seat acts again, and the state's key or what it then observes.

    None is for a cut, and for an error of the env. A refused action is a result, too.
    """
    noise = generator(seed, "hidden state", number, "noise")
    choices = generator(seed, "hidden state", number, "choices")
    state, seat, rewards = visit.state, visit.seat, dict[str, float]()
    try:
        for _ in range(OTHERS):
            step = env.step(state, seat, action, noise)
            for name, value in step.rewards.items():
                rewards[name] = rewards.get(name, 0.0) + value
            given = rounded(rewards)
            if step.terminated:
                return given, None
            if step.truncated:
                return None
            state, acting = step.state, env.acting(step.state)
            if visit.seat in acting:
                seen = env.observe(state, visit.seat)
                label = env.state_key(state, visit.seat) if by_key else seen.text
                return given, (label, seen.legal_actions)
            seat = acting[0]
            action = env.random_action(state, seat, choices)
    except StuckEnvError:
        raise
    except IllegalActionError:
        return "refused"
    except EnvError:
        return None
    return None


def rounded(rewards: Mapping[str, float]) -> tuple[tuple[str, float], ...]:
    """Return the rewards other than 0, to six decimals: sums in another order may differ."""
    found = ((name, round(value, 6)) for name, value in rewards.items())
    return tuple(sorted((name, value) for name, value in found if value))
