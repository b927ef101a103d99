"""Role-conditioned advantage: the return less a running mean of the role's earlier returns.

Source: SPIRAL, Liu et al. 2025 (arXiv 2506.24119). `credit.role_baselines` provides the mean.
"""

from __future__ import annotations

from typing import Literal

from pydantic import Field

from turnwise.credit.config import CreditConfig
from turnwise.credit.schemes.base import Comparison, Scheme, batch_key
from turnwise.credit.schemes.reinforce import plain_return
from turnwise.credit.units import episode_units


class RaeConfig(CreditConfig):
    """The return less the running mean of the role's returns of earlier iterations.

    Example:
        >>> RaeConfig().baseline_decay
        0.95
    """

    scheme: Literal["rae"] = "rae"
    decay: float = Field(default=0.95, ge=0, lt=1)
    """How much of the running mean an iteration keeps; its own returns have the rest
    (arXiv:2506.24119). The mean is corrected for its first value, 0, as in Adam."""

    @property
    def baseline_decay(self) -> float:
        """How much of the roles' running means an iteration keeps."""
        return self.decay


RAE = Scheme(
    config=RaeConfig,
    compare=Comparison(
        key=batch_key, unit=episode_units, estimator=plain_return, has_baseline=False
    ),
)
