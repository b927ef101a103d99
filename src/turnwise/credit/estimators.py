"""The estimators: returns of one group in, advantages out, one line of a paper each.

Owns the formulas of MATH 2 and nothing else: no ids, no episodes. Every function takes `returns`
[members] and `scale`, the standard deviation that the config asks for, already floored (1.0 for
none), and returns advantages [members]. The spelling follows the papers so that a reader can check
line by line; `credit.assign` handles groups whose returns are all equal.
"""

from __future__ import annotations

import numpy as np

from turnwise.credit.returns import Floats
from turnwise.errors import TrainingError


def reinforce(returns: Floats, scale: float) -> Floats:
    """Return `R`: nothing is compared, no baseline (Williams 1992)."""
    return returns / scale


def mean_centred(returns: Floats, scale: float) -> Floats:
    """Return `(R - mean) / scale`.

    GRPO: group mean, group or batch std (Shao et al. 2024, arXiv 2402.03300). Dr. GRPO: group mean,
    scale 1 (Liu et al. 2025, arXiv 2503.20783); its constant length normaliser belongs to the loss.
    REINFORCE++: mean and std of the batch (Hu 2025, arXiv 2501.03262).

    Example:
        >>> mean_centred(np.array([1.0, 0.0, 0.0, 1.0]), scale=0.5).tolist()
        [1.0, -1.0, -1.0, 1.0]
    """
    return (returns - returns.mean()) / scale


def rloo(returns: Floats, scale: float) -> Floats:
    """Return `R - mean of the others` (Ahmadian et al. 2024, arXiv 2402.14740).

    Example:
        >>> rloo(np.array([3.0, 0.0, 0.0]), scale=1.0).tolist()
        [3.0, -1.5, -1.5]
    """
    others = len(returns) - 1
    if others == 0:
        return np.zeros(1)
    return (returns - (returns.sum() - returns) / others) / scale


def maxrl(returns: Floats, scale: float) -> Floats:
    """Return `(R - mean) / mean`; nothing where the mean is 0 (Tajwar et al., arXiv 2602.02710).

    Raises:
        TrainingError: if a return is negative: the mean stands for a probability of success.

    Example:
        >>> maxrl(np.array([1.0, 0.0, 0.0, 0.0]), scale=1.0).tolist()
        [3.0, -1.0, -1.0, -1.0]
    """
    if (returns < 0).any():
        raise TrainingError(
            f"maxrl divides by the mean return, so returns must be 0 or more; got {returns.min()}: "
            "drop the negative reward components, or use grpo"
        )
    mean = returns.mean()
    if mean == 0:
        return np.zeros(len(returns))
    return (returns - mean) / mean / scale
