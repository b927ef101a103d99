"""GRPO and Dr. GRPO: the return less the group's mean.

Sources: GRPO, Shao et al. 2024 (arXiv 2402.03300); Dr. GRPO, Liu et al. 2025 (arXiv 2503.20783).
The constant length normaliser of Dr. GRPO belongs to the loss (`loss.aggregation = "constant"`).
"""

from __future__ import annotations

from collections.abc import Sequence
from typing import Literal

from turnwise.credit.config import CreditConfig, Std, VisitCreditConfig
from turnwise.credit.returns import Floats
from turnwise.credit.schemes.base import Comparison, Scheme, visit_key
from turnwise.credit.units import episode_units
from turnwise.types import EpisodeId


class GrpoCreditConfig(VisitCreditConfig):
    """The return less the group's mean, over a standard deviation (arXiv:2402.03300).

    Example:
        >>> GrpoCreditConfig(rewards={"goal": 1.0}).std
        'batch_returns'
    """

    scheme: Literal["grpo"] = "grpo"
    std: Std = "batch_returns"
    """The standard deviation that advantages are divided by (ddof = 1), of one role: `group`, of
    the group's returns (GRPO, arXiv:2402.03300, section 4.1.2); `batch_returns`, of all returns of
    the batch, so that differences between groups count (Lite PPO, arXiv:2508.08221; REINFORCE++,
    arXiv:2501.03262); `batch_advantages`, of all advantages of the batch, which are centred by
    group first (ScaleRL, arXiv:2510.13786; REINFORCE++ with baseline); or `none`."""
    statistics: Literal["role", "all"] = "role"
    """Whose returns the mean and the standard deviation are of: those of one role, and the mean of
    one seat (Dr. MAS, arXiv:2602.08847); or those of `all` roles together, whose gradients grow
    where roles earn differently."""

    @property
    def pools_roles(self) -> bool:
        """Whether means and standard deviations are over all roles together."""
        return self.statistics == "all"

    @property
    def divides_by(self) -> Std:
        """The divisor of advantages."""
        return self.std


class DrGrpoConfig(VisitCreditConfig):
    """The return less the group's mean (arXiv:2503.20783)."""

    scheme: Literal["dr_grpo"] = "dr_grpo"


def mean_centred(returns: Floats, episodes: Sequence[EpisodeId], config: CreditConfig) -> Floats:
    """Return `R - mean`, [members], from the returns of one group, [members].

    Sources: GRPO (Shao et al. 2024, arXiv 2402.03300, section 4.1.2) and Dr. GRPO (Liu et al. 2025,
    arXiv 2503.20783), where a group is a visit of a task; REINFORCE++ (Hu 2025, arXiv 2501.03262),
    where it is the batch. The caller divides by a standard deviation. `episodes` and `config` are
    not used.

    Example:
        >>> import numpy as np
        >>> mean_centred(np.array([1.0, 0.0, 0.0, 1.0]), (), DrGrpoConfig()).tolist()
        [0.5, -0.5, -0.5, 0.5]
    """
    return returns - returns.mean()


_BY_VISIT = Comparison(key=visit_key, unit=episode_units, estimator=mean_centred)
GRPO = Scheme(config=GrpoCreditConfig, compare=_BY_VISIT)
DR_GRPO = Scheme(config=DrGrpoConfig, compare=_BY_VISIT)
