"""The split of problems into train, validation and test by a hash of the canonical problem.

Provides `split_of`, `share_of` and `too_few`. A split by seed would put equal problems into several
splits: there are only 3,828 solvable random 4x4 lakes.
"""

from __future__ import annotations

import hashlib
from collections.abc import Collection, Iterable

from turnwise.types import Split

FEW, LEAST = 20, 3
"""With fewer distinct problems in all, or in one split, every split holds all of them: the scores
of one or two problems say nothing of the others."""
TRAIN, VALIDATION = 0.7, 0.1
"""The shares of the canonical problems in the splits; the rest is the test split."""


def split_of(canonical: str) -> Split:
    """Return the split of a problem. It is the same in every run.

    Args:
        canonical: `Env.canonical` of the task's data: equal strings for equal problems.

    Example:
        >>> [split_of(f"problem {i}") for i in (0, 8, 10)]
        ['train', 'test', 'validation']
    """
    share = share_of(canonical)
    if share < TRAIN:
        return "train"
    return "validation" if share < TRAIN + VALIDATION else "test"


def too_few(splits: Iterable[Collection[str]]) -> bool:
    """Return whether the problems of the splits are too few to be divided.

    Args:
        splits: the canonical problems of each split, with or without repetitions.

    Example:
        >>> many = [str(i) for i in range(100)]
        >>> too_few([many, many[:3]]), too_few([many, many[:2]]), too_few([many[:9], many[9:19]])
        (False, True, True)
    """
    found = [set(split) for split in splits]
    return len(set().union(*found)) < FEW or min(map(len, found)) < LEAST


def share_of(canonical: str) -> float:
    """Return the hash of a problem as a number in [0, 1), uniform over problems.

    Example:
        >>> round(share_of("problem 0"), 3)
        0.258
    """
    return int.from_bytes(hashlib.blake2b(canonical.encode(), digest_size=8).digest()) / 2**64
