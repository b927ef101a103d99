"""What tries say about levels that were not tried: estimates by a Gaussian process.

Provides `Tries`, `marks`, `promising` and `near_levels`. The ranks of the tries are regressed on
their parameters (Rasmussen and Williams, Gaussian Processes for Machine Learning, 2006, equations
2.25 and 2.26). A level that few tries near the best one have is uncertain, and so its mark is high:
tries are made where they may be best, as in GP-UCB (Srinivas et al., arXiv:0912.3995).
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from functools import lru_cache

import numpy as np
from numpy.typing import NDArray

from turnwise.envs.policy_search.functions import Levels

Tries = Sequence[tuple[Levels, float]]
"""Parameters and their scores."""
HIGHEST = 9
"""The mark of the most promising level."""
LENGTH, STEP = 4.0, 0.375
"""Tries that differ in so many parameters have the covariance 1 / e; how much of a parameter a step
between two amounts is."""
NOISE = 0.3
"""The variance of the noise of a standardised rank."""
DEVIATIONS = 3.0
"""The standard deviations of an estimate that are added to it."""
SCALE = 4.0
"""The marks of a standard deviation of the ranks."""
Numbers = NDArray[np.float64]


def marks(levels: int, ordered: bool, tries: Tries) -> Mapping[int, tuple[int, int]]:
    """Return the place of each parameter -> its most promising untried level, and its mark.

    A level is untried if the best try, changed in that parameter alone to that level, is none of
    the tries. Of amounts only neighbouring levels count. The value of such a change is the mean of
    its rank plus three standard deviations, and the mark is 9 for the highest value and 4 less for
    each standard deviation of the ranks below it, at least 0. Equal scores rank as they are
    given. Parameters without an untried level are left out.

    The latest results are kept, as the members of a group and the player that follows the marks
    ask again.

    Args:
        levels: of each parameter.
        ordered: whether levels are amounts.
        tries: in rising order of their scores; the last one is the best.

    Example:
        >>> marks(3, False, [((0, 1), 0.5), ((0, 1), 0.6), ((2, 0), 0.7)])
        {0: (1, 9), 1: (2, 9)}
    """
    return _marks(levels, ordered, tuple(tuple(params) for params, _ in tries))


@lru_cache(maxsize=1024)
def _marks(levels: int, ordered: bool, tries: tuple[Levels, ...]) -> Mapping[int, tuple[int, int]]:
    if not tries:
        return {}
    known, best = set(tries), tries[-1]
    changes: list[Levels] = []
    places: list[int] = []
    for place, own in enumerate(best):
        near = near_levels(own, levels, 1 if ordered else levels)
        some = [(*best[:place], level, *best[place + 1 :]) for level in near]
        new = [change for change in some if change not in known]
        changes += new
        places += [place] * len(new)
    if not changes:
        return {}
    values = _values(np.array(changes), np.array(tries), ordered).tolist()
    found: dict[int, tuple[int, float]] = {}
    for place, change, value in zip(places, changes, values, strict=True):
        if place not in found or value > found[place][1]:
            found[place] = change[place], value
    most = max(values)
    return {
        place: (level, max(HIGHEST - round(SCALE * (most - value)), 0))
        for place, (level, value) in found.items()
    }


def _values(changes: NDArray[np.int64], tries: NDArray[np.int64], ordered: bool) -> Numbers:
    """Return the mean plus three standard deviations of the rank of each change, [changes].

    Args:
        changes: the parameters of each, [changes, parameters].
        tries: in rising order of their scores, [tries, parameters].
        ordered: whether levels are amounts.
    """
    count = len(tries)
    ranks = np.arange(count) - (count - 1) / 2
    ranks /= float(ranks.std()) or 1.0
    of_tries = _covariance(tries, tries, ordered) + NOISE * np.eye(count)
    across = _covariance(changes, tries, ordered)
    solved = np.linalg.solve(of_tries, np.column_stack([ranks, across.T]))
    variance = 1 - (across * solved[:, 1:].T).sum(axis=1)
    return across @ solved[:, 0] + DEVIATIONS * np.sqrt(np.maximum(variance, 0.0))


def _covariance(rows: NDArray[np.int64], columns: NDArray[np.int64], ordered: bool) -> Numbers:
    """Return exp(-distance / 4) of each row and column, [rows, columns].

    The distance is the number of choices that differ, or 0.375 for each step between amounts.
    """
    apart = rows[:, None] - columns
    distance = STEP * np.abs(apart).sum(axis=2) if ordered else (apart != 0).sum(axis=2)
    return np.exp(-distance / LENGTH)


def promising(marked: Mapping[int, tuple[int, int]]) -> list[int]:
    """Return the places of levels and marks in rising order of the marks.

    Example:
        >>> promising({0: (0, 7), 1: (2, 3), 2: (1, 7)})
        [1, 0, 2]
    """
    return sorted(marked, key=lambda place: marked[place][1])


def near_levels(level: int, levels: int, most: int) -> list[int]:
    """Return the other levels that are at most so far away."""
    return [v for v in range(level - most, level + most + 1) if 0 <= v < levels and v != level]
