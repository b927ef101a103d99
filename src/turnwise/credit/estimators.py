"""The estimators: returns of one group in, advantages out, one line of a paper each.

Owns the formulas of docs/math.md 2 and nothing else: no ids, no episodes. Every function takes
`returns` [members] and returns advantages [members]. The spelling follows the papers so that a
reader can check line by line. `credit.compare` divides by the standard deviation that the config
asks for, and gives groups of one and groups of equal returns their advantage of 0 without calling
an estimator.
"""

from __future__ import annotations

from turnwise.credit.returns import Floats
from turnwise.errors import TrainingError


def reinforce(returns: Floats) -> Floats:
    """Return `R`: nothing is compared, no baseline (Williams 1992)."""
    return returns


def mean_centred(returns: Floats) -> Floats:
    """Return `R - mean`.

    GRPO: group mean, group or batch std (Shao et al. 2024, arXiv 2402.03300). Dr. GRPO: group mean,
    no std (Liu et al. 2025, arXiv 2503.20783); its constant length normaliser belongs to the loss.
    REINFORCE++: mean and std of the batch (Hu 2025, arXiv 2501.03262).

    Example:
        >>> import numpy as np
        >>> mean_centred(np.array([1.0, 0.0, 0.0, 1.0])).tolist()
        [0.5, -0.5, -0.5, 0.5]
    """
    return returns - returns.mean()


def rloo(returns: Floats) -> Floats:
    """Return `R - mean of the others` (Ahmadian et al. 2024, arXiv 2402.14740).

    Example:
        >>> import numpy as np
        >>> rloo(np.array([3.0, 0.0, 0.0])).tolist()
        [3.0, -1.5, -1.5]
    """
    return returns - (returns.sum() - returns) / (len(returns) - 1)


def maxrl(returns: Floats) -> Floats:
    """Return `(R - mean) / mean` (Tajwar et al., arXiv 2602.02710).

    Raises:
        TrainingError: if a return is negative: the mean stands for a probability of success.

    Example:
        >>> import numpy as np
        >>> maxrl(np.array([1.0, 0.0, 0.0, 0.0])).tolist()
        [3.0, -1.0, -1.0, -1.0]
    """
    if (returns < 0).any():
        raise TrainingError(
            f"maxrl divides by the mean return, so returns must be 0 or more; got {returns.min()}: "
            "drop the negative reward components, or use grpo"
        )
    mean = returns.mean()
    return (returns - mean) / mean
