"""Rewards become returns: components are mixed by weights and summed over a seat's turns.

Provides `team_shares`, the two returns and `Penalties`, which are subtracted from the rewards. A
turn has a reward, an episode has a return; neither is ever overwritten. Knows nothing of groups.
Output goes to `credit.units`.
"""

from __future__ import annotations

from collections.abc import Collection, Mapping, Sequence
from dataclasses import dataclass, field

import numpy as np
from numpy.typing import NDArray

from turnwise.types import Episode, Trajectory, TurnId
from turnwise.utils.rewards import mix_rewards

Floats = NDArray[np.float64]
Penalties = Mapping[TurnId, Mapping[str, float]]
"""The penalties of each turn: turn -> span name -> amount; the span `""` is the whole turn."""
WHOLE_TURN = ""


@dataclass(frozen=True, kw_only=True, slots=True)
class Payments:
    """The additions to and penalties on the rewards of turns, before they are summed.

    `shares` of team rewards are added (`team_shares`), and `penalties` are subtracted.
    """

    penalties: Penalties | None = None
    shares: Mapping[TurnId, float] = field(default_factory=dict)


def team_shares(
    episode: Episode, weights: Mapping[str, float], team: Collection[str]
) -> dict[TurnId, float]:
    """Return what the turns of an episode gain from team rewards that other seats' turns earned.

    A component of level `team` is recorded once, on the turn whose step earned it, and is part of
    every seat's return. Another seat gains it at its latest turn before that step, or at its first
    turn if it had none before.

    Args:
        episode: the episode.
        weights: component -> weight.
        team: the components of level `team`.

    Returns:
        Turn -> gained reward, without the turns that gain nothing.
    """
    own = {name: weight for name, weight in weights.items() if name in team}
    shares: dict[TurnId, float] = {}
    if not own or len(episode.trajectories) < 2:
        return shares
    for earner in episode.trajectories:
        for turn in earner.turns:
            value = mix_rewards(turn.rewards, own)
            for other in episode.trajectories if value else ():
                if other is not earner and other.turns:
                    before = [one for one in other.turns if one.order < turn.order]
                    gains = before[-1] if before else other.turns[0]
                    shares[gains.id] = shares.get(gains.id, 0.0) + value
    return shares


def turn_rewards(
    trajectory: Trajectory,
    weights: Mapping[str, float],
    payments: Payments | None = None,
) -> Floats:
    """Return the mixed reward of each turn of one seat, payments included, [turns]."""
    penalties = None if payments is None else payments.penalties
    shares = {} if payments is None else payments.shares
    mixed = np.array([mix_rewards(turn.rewards, weights) for turn in trajectory.turns], dtype=float)
    if shares:
        mixed += np.array([shares.get(turn.id, 0.0) for turn in trajectory.turns], dtype=float)
    if penalties is None:
        return mixed
    taken = [penalties[turn.id][WHOLE_TURN] for turn in trajectory.turns]
    return mixed - np.array(taken, dtype=float)


def episode_return(
    trajectory: Trajectory,
    weights: Mapping[str, float],
    payments: Payments | None = None,
) -> float:
    """Return R, the sum of one seat's rewards as `turn_rewards` has them (docs/math.md 2)."""
    return float(turn_rewards(trajectory, weights, payments).sum())


def returns_to_go(rewards: Sequence[float] | Floats, gamma: float) -> Floats:
    """Return `G_t = r_t + gamma * G_(t+1)` for every turn, [turns]; after the last one G is 0.

    Example:
        >>> returns_to_go([1.0, 0.0, 4.0], gamma=0.5).tolist()
        [2.0, 2.0, 4.0]
    """
    out = np.zeros(len(rewards))
    tail = 0.0
    for turn in range(len(rewards) - 1, -1, -1):
        tail = float(rewards[turn]) + gamma * tail
        out[turn] = tail
    return out
