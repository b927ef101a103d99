"""The split of problems into training, validation and test, by a hash of the problem itself.

A split by seed would put the same problem on both sides: there are only 3,828 solvable random 4x4
lakes. Knows nothing of envs; it is handed their canonical strings.
"""

from __future__ import annotations

import hashlib

from turnwise.types import Split

FEW = 20
"""Different problems below which none are held out: every split has all of them."""
TRAIN, VALIDATION = 0.7, 0.1
"""Shares of all canonical problems; the rest is the test."""


def split_of(canonical: str) -> Split:
    """Return the split that a problem belongs to, for ever and in every run.

    Args:
        canonical: `Env.canonical` of the task's data, equal for equal problems.

    Example:
        >>> [split_of(f"problem {i}") for i in (0, 8, 10)]
        ['train', 'test', 'validation']
    """
    share = share_of(canonical)
    if share < TRAIN:
        return "train"
    return "validation" if share < TRAIN + VALIDATION else "test"


def share_of(canonical: str) -> float:
    """Return a problem's place in [0, 1), uniform over problems.

    Example:
        >>> round(share_of("problem 0"), 3)
        0.258
    """
    return int.from_bytes(hashlib.blake2b(canonical.encode(), digest_size=8).digest()) / 2**64
