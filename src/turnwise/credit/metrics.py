"""What a batch's comparison looked like, as flat `credit/...` floats.

Owns the metrics of credit assignment. A group is mixed, of zero variance, or of one.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence

import numpy as np

from turnwise.credit.compare import sample_std
from turnwise.credit.groups import Group
from turnwise.types import TurnId


def credit_metrics(
    groups: Sequence[Group], advantages: Mapping[TurnId, float], *, excluded: int
) -> dict[str, float]:
    """Return the metrics of one batch.

    Args:
        groups: the episode-level groups.
        advantages: each turn's advantage for the return.
        excluded: episodes left out for an infrastructure failure.
    """
    returns = np.array([value for group in groups for value in group.returns])
    count = max(len(groups), 1)
    singletons = sum(group.singleton for group in groups)
    flat = sum(group.zero_variance for group in groups)
    spreads = [group.std for group in groups if not group.singleton]
    return {
        "credit/return_mean": _mean(returns),
        "credit/return_std": sample_std(returns),
        "credit/group_std_mean": _mean(spreads),
        "credit/groups": float(len(groups)),
        "credit/episodes": float(len(returns)),
        "credit/singletons": float(singletons),
        "credit/zero_variance_share": flat / count,
        "credit/mixed_share": (len(groups) - flat - singletons) / count,
        "credit/excluded": float(excluded),
        "credit/advantage_abs_mean": _mean(np.abs(list(advantages.values()))),
        "credit/turns_without_signal": float(sum(value == 0 for value in advantages.values())),
    }


def _mean(values: Sequence[float] | np.ndarray) -> float:
    return float(np.mean(values)) if len(values) else 0.0
