"""max@k: the highest return of k answers (Walder and Karkhanis 2025, arXiv 2505.15201).

With returns of 0 and 1 that is pass@k.
"""

from __future__ import annotations

from collections.abc import Sequence
from math import comb
from typing import Literal

import numpy as np
from pydantic import Field

from turnwise.credit.config import Std, VisitCreditConfig
from turnwise.credit.returns import Floats
from turnwise.credit.schemes.base import Comparison, Scheme, visit_key
from turnwise.credit.units import episode_units
from turnwise.types import EpisodeId


class MaxAtKConfig(VisitCreditConfig):
    """What an episode adds to the best return of `k` episodes (arXiv:2505.15201).

    The policy keeps its answers different: one that is rarely right but far better than the others
    counts, and a second copy of a good answer does not.

    Example:
        >>> MaxAtKConfig(k=3).std
        'batch_advantages'
    """

    scheme: Literal["max_at_k"] = "max_at_k"
    k: int | None = Field(default=None, ge=1)
    """How many episodes the best is of, less than `trainer.group_size`; None is half of the group,
    rounded down. In a group that lost members it is at most one less than their number. 1 is `rloo`
    before it is divided."""
    std: Std = "batch_advantages"
    """The standard deviation that advantages are divided by, as in `grpo`."""

    @property
    def divides_by(self) -> Std:
        """The divisor of advantages."""
        return self.std


def best_of_k(returns: Floats, episodes: Sequence[EpisodeId], config: MaxAtKConfig) -> Floats:
    """Return the gain of each member in the best of k, [members], from returns, [members].

    A set of k episodes has a highest return. A member's gain is the mean of it over all sets with
    the member, less its mean over all sets without. The second mean does not depend on the member's
    return, so the expected gradient is that of the expected highest return of k episodes, divided
    by k.

    Source: Walder and Karkhanis 2025 (arXiv 2505.15201), with the leave-one-out baseline. A group
    has two members or more. `episodes` is not used.

    Example:
        >>> import numpy as np
        >>> best_of_k(np.array([1.0, 0.0, 0.0]), (), MaxAtKConfig(k=2)).tolist()
        [1.0, -0.5, -0.5]
    """
    others = len(returns) - 1
    k = min(config.k or len(returns) // 2, others)
    order = np.argsort(returns, kind="stable")
    beside = _weights(others, k - 1) if k > 1 else None
    without = _weights(others, k)
    gains = np.empty(len(returns))
    for place, member in enumerate(order):
        own, rest = returns[member], returns[np.delete(order, place)]
        best = own if beside is None else beside @ np.maximum(rest, own)
        gains[member] = best - without @ rest
    return gains


def _weights(count: int, k: int) -> Floats:
    """Return for values in rising order the shares of sets of k of which each is the highest."""
    return np.array([comb(below, k - 1) / comb(count, k) for below in range(count)])


MAX_AT_K = Scheme(
    config=MaxAtKConfig,
    compare=Comparison(key=visit_key, unit=episode_units, estimator=best_of_k),
)
