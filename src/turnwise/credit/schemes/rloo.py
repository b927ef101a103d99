"""RLOO: the return less the mean of the others' (Ahmadian et al. 2024, arXiv 2402.14740)."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Literal

from turnwise.credit.config import CreditConfig, VisitCreditConfig
from turnwise.credit.returns import Floats
from turnwise.credit.schemes.base import Comparison, Scheme, visit_key
from turnwise.credit.units import episode_units
from turnwise.types import EpisodeId


class RlooConfig(VisitCreditConfig):
    """The return less the mean of the others of the group (arXiv:2402.14740)."""

    scheme: Literal["rloo"] = "rloo"


def leave_one_out(returns: Floats, episodes: Sequence[EpisodeId], config: CreditConfig) -> Floats:
    """Return `R - mean of the others`, [members], from the returns of one group, [members].

    Source: RLOO, Ahmadian et al. 2024 (arXiv 2402.14740). A group has two members or more.
    `episodes` and `config` are not used.

    Example:
        >>> import numpy as np
        >>> leave_one_out(np.array([3.0, 0.0, 0.0]), (), RlooConfig()).tolist()
        [3.0, -1.5, -1.5]
    """
    return returns - (returns.sum() - returns) / (len(returns) - 1)


RLOO = Scheme(
    config=RlooConfig,
    compare=Comparison(key=visit_key, unit=episode_units, estimator=leave_one_out),
)
