"""REINFORCE without a baseline, and REINFORCE++ with the batch's mean and standard deviation.

Sources: Williams 1992; REINFORCE++, Hu 2025 (arXiv 2501.03262).
"""

from __future__ import annotations

from collections.abc import Sequence
from typing import Literal

from turnwise.credit.config import CreditConfig, Std
from turnwise.credit.returns import Floats
from turnwise.credit.schemes.base import Comparison, Scheme, batch_key
from turnwise.credit.schemes.grpo import mean_centred
from turnwise.credit.units import episode_units
from turnwise.types import EpisodeId


class ReinforceConfig(CreditConfig):
    """Nothing is compared: the advantage is the return (Williams 1992)."""

    scheme: Literal["reinforce"] = "reinforce"


class ReinforcePlusConfig(CreditConfig):
    """The return less the batch's mean, over the batch's standard deviation (arXiv:2501.03262)."""

    scheme: Literal["reinforce++"] = "reinforce++"
    std: Literal["batch_returns"] = "batch_returns"
    """The divisor of advantages: the standard deviation of all returns of the batch (ddof =
    1), of one role."""

    @property
    def divides_by(self) -> Std:
        """The divisor of advantages."""
        return self.std


def plain_return(returns: Floats, episodes: Sequence[EpisodeId], config: CreditConfig) -> Floats:
    """Return the returns of the batch, [members], as they are: there is no baseline.

    Source: REINFORCE, Williams 1992. `episodes` and `config` are not used.
    """
    return returns


REINFORCE = Scheme(
    config=ReinforceConfig,
    compare=Comparison(
        key=batch_key, unit=episode_units, estimator=plain_return, has_baseline=False
    ),
)
REINFORCE_PLUS = Scheme(
    config=ReinforcePlusConfig,
    compare=Comparison(key=batch_key, unit=episode_units, estimator=mean_centred),
)
