"""Who competes with whom: the seats of a policy and of its opponents, and what a seat earns.

Provides `opposed`, `own_score` and `rewards_of`. Knows no models.
"""

from __future__ import annotations

from collections.abc import Iterable, Mapping
from typing import Any, TypeVar

from turnwise.envs.base import Env, Step

P = TypeVar("P")


def opposed(seats: Iterable[str], number: int, player: P) -> dict[str, P]:
    """Return the seats that an opponent plays in visit `number`: all but one, each in turn.

    Example:
        >>> [list(opposed(["first", "second"], n, "minimax-1")) for n in range(2)]
        [['second'], ['first']]
    """
    known = list(seats)
    own = known[number % len(known)]
    return {seat: player for seat in known if seat != own}


def own_score(env: Env[Any], state: Any, opponents: Mapping[str, object]) -> float:
    """Return the score of an episode that ended in `state`.

    It is the mean over the seats that no opponent played, where some of them were.
    """
    own = [seat for seat in env.seats if seat not in opponents]
    if not opponents or not own:
        return env.score(state)
    return sum(env.seat_score(state, seat) for seat in own) / len(own)


def rewards_of(env: Env[Any], step: Step[Any], acted: str, seat: str) -> Mapping[str, float]:
    """Return what `seat` earned by a step of the seat `acted`: its own, and its team's."""
    if acted == seat:
        return step.rewards
    team = {n: value for n, value in step.rewards.items() if env.components.get(n) == "team"}
    return team | dict(step.others.get(seat, {}))
