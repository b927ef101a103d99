"""Rewards of programs by the cells that few others of a batch have right.

Provides `shared_rewards` (implicit fitness sharing, Smith, Forrest and Perelson 1993,
doi:10.1162/evco.1993.1.2.127, for genetic algorithms).
"""

from __future__ import annotations

import numpy as np
from numpy.typing import NDArray

from turnwise.types import BoolArray


def shared_rewards(right: BoolArray) -> NDArray[np.float64]:
    """Return the reward of each program, [programs].

    A cell that is right counts 1 / s, where s is the share of the programs that have it right, and
    the reward is the mean over all cells. The mean over programs is the share of the cells that at
    least one program has right.

    As s estimates the probability p that the policy has a cell right, the policy gradient of many
    programs is that of the mean of log p over cells: grad log p = (grad p) / p. Of N programs,
    without a baseline, a cell's expected gradient is (1 - (1 - p)^N) (grad p) / p: a cell that is
    rarer than 1 / N weighs about N. Division by a group's standard deviation changes the direction
    somewhat. With a plain share of right cells the gradient is that of the mean of p, in which a
    rare cell weighs no more than a frequent one.

    Args:
        right: whether a program has a cell right, [programs, cells], at least one of each.

    Example:
        >>> shared_rewards(np.array([[True, True], [True, False]])).tolist()
        [1.5, 0.5]
    """
    shares = right.mean(axis=0)
    weights = np.divide(1.0, shares, out=np.zeros_like(shares), where=shares > 0)
    return (right * weights).mean(axis=1)
