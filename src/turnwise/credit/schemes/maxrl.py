"""MaxRL: the return less the group's mean, over the mean (Tajwar et al., arXiv 2602.02710)."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Literal

from pydantic import model_validator

from turnwise.credit.config import CreditConfig, VisitCreditConfig
from turnwise.credit.returns import Floats
from turnwise.credit.schemes.base import Comparison, Scheme, visit_key
from turnwise.credit.units import episode_units
from turnwise.errors import ConfigError, TrainingError
from turnwise.types import EpisodeId


class MaxrlConfig(VisitCreditConfig):
    """The return less the group's mean, over the group's mean (arXiv:2602.02710)."""

    scheme: Literal["maxrl"] = "maxrl"

    @model_validator(mode="after")
    def _check_weights(self) -> MaxrlConfig:
        if any(weight < 0 for weight in self.rewards.values()):
            raise ConfigError(
                f"maxrl needs returns of 0 or more, got the reward weights {self.rewards}: "
                "leave the negative ones out, or use grpo"
            )
        return self


def over_the_mean(returns: Floats, episodes: Sequence[EpisodeId], config: CreditConfig) -> Floats:
    """Return `(R - mean) / mean`, [members], from the returns of one group, [members].

    Source: MaxRL, Tajwar et al. (arXiv 2602.02710). `episodes` and `config` are not used.

    Raises:
        TrainingError: if a return is negative: the mean stands for a probability of success.

    Example:
        >>> import numpy as np
        >>> over_the_mean(np.array([1.0, 0.0, 0.0, 0.0]), (), MaxrlConfig()).tolist()
        [3.0, -1.0, -1.0, -1.0]
    """
    if (returns < 0).any():
        raise TrainingError(
            f"maxrl divides by the mean return, so returns must be 0 or more; got {returns.min()}: "
            "drop the negative reward components, or use grpo"
        )
    mean = returns.mean()
    return (returns - mean) / mean


MAXRL = Scheme(
    config=MaxrlConfig,
    compare=Comparison(key=visit_key, unit=episode_units, estimator=over_the_mean),
)
