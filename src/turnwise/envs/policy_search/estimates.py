"""What tries say about levels that were not tried: estimates by a Gaussian process.

Provides `Tries`, `marks`, `promising`, `new_changes`, `open_tries` and `near_levels`. The ranks of
the tries are regressed on their parameters (Rasmussen and Williams, Gaussian Processes for Machine
Learning, 2006, equations 2.25 and 2.26). A level that few tries have is uncertain, so its mark is
high: tries are made where they may be best, as in GP-UCB (Srinivas et al., arXiv:0912.3995).
"""

from __future__ import annotations

from collections.abc import Iterator, Mapping, Sequence, Set
from functools import lru_cache
from types import MappingProxyType

import numpy as np
from numpy.typing import NDArray

from turnwise.envs.policy_search.functions import Levels

Tries = Sequence[tuple[Levels, float]]
"""Parameters and their scores."""
HIGHEST = 9
"""The mark of the most promising level."""
LENGTH, STEP = 4.0, 0.375
"""The distance at which the covariance of two tries is 1 / e, where choices that differ have the
distance 1; and the distance of one step between two amounts."""
NOISE = 0.3
"""The variance of the noise of a standardised rank."""
DEVIATIONS = 3.0
"""The standard deviations of an estimate that are added to it."""
SCALE = 4.0
"""The marks of a standard deviation of the ranks."""
DIGITS = 9
"""Values are rounded, so that equal ones are equal on every processor."""
Numbers = NDArray[np.float64]


def marks(
    levels: int, ordered: bool, tries: Tries, known: Set[Levels]
) -> Mapping[int, tuple[int, int]]:
    """Return the place of each parameter -> its most promising untried level, and its mark.

    A level is untried if the best try, changed in that parameter alone to that level, is not
    known. Of amounts only neighbouring levels count. The value of such a change is the mean of its
    rank plus three standard deviations, and the mark is 9 for the highest value and 4 less for each
    standard deviation of the ranks below it, at least 0. Equal scores rank as they are given, and
    of levels with equal values the lowest is named. Parameters without an untried level are left
    out.

    The latest results are kept, as the members of a group and the player that follows the marks
    ask again.

    Args:
        levels: of each parameter.
        ordered: whether levels are amounts.
        tries: those that the estimates rest on, in rising order of their scores; the last one is
            the best.
        known: all parameters that were tried.

    Example:
        >>> tries = [((0, 1), 0.5), ((1, 1), 0.6), ((2, 0), 0.7)]
        >>> dict(marks(3, False, tries, {params for params, _ in tries}))
        {0: (1, 8), 1: (2, 9)}
    """
    return _marks(levels, ordered, tuple(tuple(params) for params, _ in tries), frozenset(known))


@lru_cache(maxsize=256)
def _marks(
    levels: int, ordered: bool, tries: tuple[Levels, ...], known: frozenset[Levels]
) -> Mapping[int, tuple[int, int]]:
    if not tries:
        return MappingProxyType({})
    changes = list(new_changes(tries[-1], levels, ordered, known))
    if not changes:
        return MappingProxyType({})
    values = _values(np.array(changes), np.array(tries), ordered).round(DIGITS).tolist()
    found: dict[int, tuple[int, float]] = {}
    for (place, level), value in zip(changes, values, strict=True):
        if place not in found or value > found[place][1]:
            found[place] = level, value
    most = max(values)
    return MappingProxyType(
        {
            place: (level, max(HIGHEST - round(SCALE * (most - value)), 0))
            for place, (level, value) in found.items()
        }
    )


def _values(changes: NDArray[np.int64], tries: NDArray[np.int64], ordered: bool) -> Numbers:
    """Return the mean plus three standard deviations of the rank of each change, [changes].

    Args:
        changes: the place and the level of each, [changes, 2]; the last try is changed.
        tries: in rising order of their scores, [tries, parameters].
        ordered: whether levels are amounts.
    """
    count, (places, levels) = len(tries), changes.T
    ranks = np.arange(count) - (count - 1) / 2
    ranks /= float(ranks.std()) or 1.0
    apart = np.zeros((count, count))  # the distances of the tries
    for column in tries.T:
        apart += _distance(column[:, None], column, ordered)
    at = tries[:, places].T  # [changes, tries]
    own = _distance(tries[-1, places][:, None], at, ordered)
    across = np.exp((own - apart[-1] - _distance(levels[:, None], at, ordered)) / LENGTH)
    of_tries = np.exp(-apart / LENGTH) + NOISE * np.eye(count)
    solved = np.linalg.solve(of_tries, np.column_stack([ranks, across.T]))
    variance = 1 - (across * solved[:, 1:].T).sum(axis=1)
    return across @ solved[:, 0] + DEVIATIONS * np.sqrt(np.maximum(variance, 0.0))


def _distance(one: NDArray[np.int64], other: NDArray[np.int64], ordered: bool) -> Numbers:
    """Return the distances of levels of one parameter: 0 or 1, or 0.375 a step of amounts."""
    return STEP * np.abs(one - other) if ordered else (one != other).astype(np.float64)


def new_changes(
    params: Levels, levels: int, ordered: bool, known: Set[Levels]
) -> Iterator[tuple[int, int]]:
    """Yield the place and the level of each single change whose result is not known.

    Of amounts only neighbouring levels count.
    """
    for place, own in enumerate(params):
        for level in near_levels(own, levels, 1 if ordered else levels):
            if (*params[:place], level, *params[place + 1 :]) not in known:
                yield place, level


def open_tries(tries: Tries, levels: int, ordered: bool, known: Set[Levels]) -> Tries:
    """Return tries without those above the best one that has a new single change.

    A search that has tried all changes of its best try goes on with the next one. Where no try has
    a new change all of them are returned. Of equal scores the later one is better.

    Args:
        tries: in the order in which they were made.
        levels: of each parameter.
        ordered: whether levels are amounts.
        known: all parameters that were tried.

    Example:
        >>> tries = [((0, 0), 0.1), ((1, 0), 0.9), ((1, 1), 0.3)]
        >>> open_tries(tries, 2, False, {params for params, _ in tries})
        [((0, 0), 0.1), ((1, 1), 0.3)]
    """
    order = sorted(range(len(tries)), key=lambda i: (-tries[i][1], -i))
    for rank, place in enumerate(order):
        if any(new_changes(tries[place][0], levels, ordered, known)):
            left_out = set(order[:rank])
            return [each for i, each in enumerate(tries) if i not in left_out]
    return tries


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
