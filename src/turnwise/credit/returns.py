"""Rewards become returns: components are mixed by weights and summed over a role's turns.

Owns `mix_rewards`, the two returns and `Penalties`, which are taken off the rewards. A reward is
what one turn got, a return what an episode got; neither is ever overwritten. Knows nothing of
groups. Output goes to `credit.units`.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence

import numpy as np
from numpy.typing import NDArray

from turnwise.types import Trajectory, TurnId

Floats = NDArray[np.float64]
Penalties = Mapping[TurnId, Mapping[str, float]]
"""What is taken off each turn's reward: turn -> span name -> amount; the span `""` is the turn."""
WHOLE_TURN = ""


def mix_rewards(rewards: Mapping[str, float], weights: Mapping[str, float]) -> float:
    """Return the weighted sum of a turn's reward components; an absent component is 0.

    Components without a weight do not count.

    Example:
        >>> mix_rewards({"goal": 1.0, "format": 1.0}, {"goal": 1.0, "steps": -0.5})
        1.0
    """
    return float(sum(weight * rewards.get(name, 0.0) for name, weight in weights.items()))


def turn_rewards(
    trajectory: Trajectory, weights: Mapping[str, float], penalties: Penalties | None = None
) -> Floats:
    """Return the mixed reward of each turn of one role, less its penalty, [turns]."""
    mixed = [mix_rewards(turn.rewards, weights) for turn in trajectory.turns]
    if penalties is None:
        return np.array(mixed, dtype=float)
    taken = [penalties[turn.id][WHOLE_TURN] for turn in trajectory.turns]
    return np.array(mixed, dtype=float) - np.array(taken, dtype=float)


def episode_return(
    trajectory: Trajectory, weights: Mapping[str, float], penalties: Penalties | None = None
) -> float:
    """Return R, the sum of one role's mixed rewards less penalties (docs/math.md 2)."""
    return float(turn_rewards(trajectory, weights, penalties).sum())


def returns_to_go(rewards: Sequence[float] | Floats, gamma: float) -> Floats:
    """Return `G_t = r_t + gamma * G_(t+1)` for every turn, [turns].

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
