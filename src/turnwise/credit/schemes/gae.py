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
"""The number of visits by other folds at which lambda is half way between 1 and `gae_lambda`."""


class GaeConfig(VisitCreditConfig):
    """Generalised advantage estimation with averaged returns as state values (arXiv:1506.02438).

    Example:
        >>> GaeConfig().gae_lambda
        0.3
    """

    scheme: Literal["gae"] = "gae"
    std: Literal["none", "batch_returns", "batch_advantages"] = "batch_advantages"
    """The divisor of advantages: `batch_advantages`, the standard deviation of all advantages of
    the role in the batch, as in PPO; `batch_returns`, that of all its returns; or `none`. The
    mean is not subtracted."""
    gamma: float = Field(default=0.95, ge=0, le=1)
    """Discount of the return-to-go."""
    gae_lambda: float = Field(default=0.3, ge=0, le=1)
    """Lambda of the estimator (arXiv:1506.02438, eq. 16): 1 takes all later rewards of the episode,
    0 the next reward and the value of the next state. It applies to states that many episodes
    visited; lambda is 1 where no other episode visited the next state. Lower values have less
    variance, and are biased where equal state keys do not determine the future."""

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

    `A_t = r_t + gamma ((1 - w) V(s_(t+1)) + w (A_(t+1) + V(s_(t+1)))) - V(s_t)`, where `w` is
    lambda for the next state, 1 - (1 - gae_lambda) n / (n + 1), and n the number of visits of
    `s_(t+1)` by episodes of other folds. After the last turn V is 0. Where the trainer cut the
    episode (`Trajectory.next_key`), it is bootstrapped from V of the state in which it was cut.

    Args:
        played: the trajectories of the batch, in any order.
        weights: component -> weight in the reward.
        payments: additions to and penalties on the rewards of turns.
        config: `gamma` and `gae_lambda`.

    Returns:
        Turn -> advantage; 0 for all turns of a role with a single episode in the batch.

    Raises:
        TrainingError: if a turn has no state key.
    """
    played = sorted(played, key=lambda each: each.turns[0].id)  # sums do not depend on the order
    rewards = [turn_rewards(each, weights, payments) for each in played]
    found: dict[TurnId, float] = {}
    states = state_values(played, rewards, config.gamma)
    for trajectory, earned, state in zip(played, rewards, states, strict=True):
        trusted = 1 - (1 - config.gae_lambda) * state.visits / (state.visits + KNOWN)
        after = tail = state.bootstrap
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
    needs_states=True,
)
