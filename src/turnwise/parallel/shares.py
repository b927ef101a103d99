"""Which process plays which episodes, and which computes which rows: balanced and repeatable.

Provides `share_of_episodes` and `divide_rows`, in numpy. Every process finds the same division.
"""

from __future__ import annotations

from collections.abc import Sequence
from itertools import pairwise

import numpy as np

from turnwise.types import IntArray


def share_of_episodes(visits: int, group_size: int, rank: int, size: int) -> list[int]:
    """Return the episodes that process `rank` of `size` plays, as indices, ascending.

    Episode `member` of a visit is number `visit * group_size + member`. Visits stay whole, because
    their episodes share a prompt; what is left of an even division is divided by episodes.

    Example:
        >>> share_of_episodes(3, 4, rank=0, size=2), share_of_episodes(3, 4, rank=1, size=2)
        ([0, 1, 2, 3, 8, 9], [4, 5, 6, 7, 10, 11])
    """
    whole = visits - visits % size
    own = [v * group_size + m for v in range(rank, whole, size) for m in range(group_size)]
    left = range(whole * group_size, visits * group_size)
    return own + list(left[len(left) * rank // size : len(left) * (rank + 1) // size])


def divide_rows(rows: Sequence[IntArray], size: int) -> list[list[int]]:
    """Return the rows of each process, as ascending indices; a process may get none.

    Rows are sorted, so that those with a common beginning are neighbours, and cut into runs such
    that the largest number of distinct tokens of a process is as small as it can be.

    Args:
        rows: the token ids of each row that are computed, [tokens].
        size: how many processes there are.

    Example:
        >>> divide_rows([np.array([1, 2, 3]), np.array([5, 6, 7]), np.array([1, 2, 4])], 2)
        [[0, 2], [1]]
    """
    if size == 1 or not rows:
        return [list(range(len(rows))), *([] for _ in range(size - 1))]
    keys = [np.asarray(row, dtype=">i8").tobytes() for row in rows]
    order = sorted(range(len(rows)), key=lambda row: keys[row])
    lengths = np.array([len(rows[row]) for row in order])
    shared = np.array([0, *(_shared(rows[a], rows[b]) for a, b in pairwise(order))])
    distinct = np.cumsum(lengths - shared)
    low, high = -(-int(distinct[-1]) // size), int(distinct[-1])
    while low < high:
        middle = (low + high) // 2
        if len(_cuts(distinct, shared, middle)) <= size:
            high = middle
        else:
            low = middle + 1
    ends = _cuts(distinct, shared, low)
    begins = [0, *ends][: len(ends)]
    found = [sorted(order[a:b]) for a, b in zip(begins, ends, strict=True)]
    return [*found, *([] for _ in range(size - len(found)))]


def _cuts(distinct: IntArray, shared: IntArray, most: int) -> list[int]:
    """Return where runs of at most `most` distinct tokens end; a longer row is a run of its own.

    A run computes what its first row shares with the row before the run once more.
    """
    ends: list[int] = []
    begin = 0
    while begin < len(distinct):
        before = int(distinct[begin - 1]) if begin else 0
        end = int(np.searchsorted(distinct, before - int(shared[begin]) + most, side="right"))
        begin = max(end, begin + 1)
        ends.append(begin)
    return ends


def _shared(one: IntArray, other: IntArray) -> int:
    """Return how many tokens two rows have in common at their beginning."""
    length = min(len(one), len(other))
    differing = np.flatnonzero(one[:length] != other[:length])
    return int(differing[0]) if len(differing) else length
