"""Generalised advantage estimation whose state values are means over the batch's episodes.

Source: Schulman et al. 2015 (arXiv 1506.02438), with the state-dependent decay of Sutton and Barto
2018 (section 12.8). `turnwise.credit.state_values` provides the values.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from typing import Literal

from pydantic import Field

from turnwise.credit.config import VisitCreditConfig
from turnwise.credit.returns import Payments, turn_rewards
from turnwise.credit.schemes.base import Comparison, Scheme, visit_key
from turnwise.credit.schemes.grpo import mean_centred
from turnwise.credit.state_values import state_values
from turnwise.credit.units import episode_units
from turnwise.types import Trajectory, TurnId

KNOWN = 1.0
"""The number of other visits at which a state's value is trusted half."""


class GaeConfig(VisitCreditConfig):
    """Turns are compared with the mean return from their state, and with what the next is worth.

    Example:
        >>> GaeConfig().gae_lambda
        0.3
    """

    scheme: Literal["gae"] = "gae"
    std: Literal["none", "batch_returns", "batch_advantages"] = "batch_advantages"
    """The standard deviation that advantages are divided by: that of all returns of the role in
    the batch, or of all its advantages, as in PPO."""
    gamma: float = Field(default=0.95, ge=0, le=1)
    """Discount of the return-to-go."""
    gae_lambda: float = Field(default=0.3, ge=0, le=1)
    """How much a turn's advantage counts on what followed in its own episode, rather than on the
    value of the next state, where many episodes visited that; 1 where none did. Lower values have
    less variance, and need state keys that say all that decides the future."""

    @property
    def divides_by(self) -> Literal["none", "batch_returns", "batch_advantages"]:
        """The divisor of advantages."""
        return self.std


def advantages_by_turn(
    played: Sequence[Trajectory],
    weights: Mapping[str, float],
    payments: Payments,
    config: GaeConfig,
) -> dict[TurnId, float]:
    """Return each turn's advantage, before it is divided by a standard deviation.

    `A_t = r_t + gamma ((1 - w) V(s_(t+1)) + w (A_(t+1) + V(s_(t+1)))) - V(s_t)`, where `w` is 1 -
    (1 - lambda) n / (n + 1) and n the number of visits of `s_(t+1)` by episodes of other folds.
    After the last turn there is no value, unless the trainer left the episode there
    (`Trajectory.next_key`). An episode whose role has no other one in the batch has 0.

    Raises:
        TrainingError: if a turn has no state key.
    """
    played = sorted(played, key=lambda each: each.turns[0].id)  # sums do not depend on the order
    rewards = [turn_rewards(each, weights, payments) for each in played]
    found: dict[TurnId, float] = {}
    states = state_values(played, rewards, config.gamma)
    for trajectory, earned, state in zip(played, rewards, states, strict=True):
        trusted = 1 - (1 - config.gae_lambda) * state.visits / (state.visits + KNOWN)
        after = tail = state.goes_on
        for place in range(len(earned) - 1, -1, -1):
            if place + 1 < len(earned):
                own = trusted[place + 1]
                after = (1 - own) * state.values[place + 1] + own * tail
            tail = float(earned[place] + config.gamma * after)
            advantage = tail - float(state.values[place])
            found[trajectory.turns[place].id] = advantage if state.others[place] else 0.0
    return found


GAE = Scheme(
    config=GaeConfig,
    compare=Comparison(key=visit_key, unit=episode_units, estimator=mean_centred),
    by_turn=advantages_by_turn,
)
