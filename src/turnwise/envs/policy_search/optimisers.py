"""The optimisers that a searcher imitates, and that leave the histories of its tasks.

Provides `evolved` and `guided`, each from some of the tries to the next parameters.
"""

from __future__ import annotations

from collections.abc import Callable, Set

import numpy as np

from turnwise.envs.policy_search.estimates import HIGHEST, Tries, marks, near_levels
from turnwise.envs.policy_search.functions import Levels

CROSSED, DRAWS = 0.3, 50
"""The probability of a crossing; the changes made to find new parameters, which a small task may
not have."""
MORE, MORE_GUIDED = 0.5, 0.7
"""The probability of one more change, in `evolved` and in `guided`."""
TRUST = 0.2
"""By how much the logarithm of a parameter's probability grows with its mark."""
Change = Callable[[list[int]], None]
"""Changes one parameter or more."""


def evolved(
    tries: Tries,
    known: Set[Levels],
    count: int,
    levels: int,
    ordered: bool,
    rng: np.random.Generator,
) -> Levels:
    """Return the next parameters of a simple evolutionary search.

    It changes the best try: with probability 0.3 half of its parameters come from another one, and
    one parameter or more get another level, at most two away of amounts.

    Args:
        tries: in rising order of their scores; random parameters are returned if there are none.
        known: all parameters that were tried.
        count: of parameters.
        levels: of each.
        ordered: whether levels are amounts.
        rng: draws.
    """

    def change(found: list[int]) -> None:
        _change_some(found, _changes(count, MORE, rng), levels, ordered, rng)

    return _next(tries, known, count, levels, rng, change, crossed=CROSSED)


def guided(
    tries: Tries,
    known: Set[Levels],
    count: int,
    levels: int,
    ordered: bool,
    rng: np.random.Generator,
) -> Levels:
    """Return the next parameters of a search that follows the marks of the tries.

    It gives parameters of the best try their marked levels. Each change is one more with
    probability 0.7, and its parameter is drawn with probabilities proportional to exp(mark / 5), so
    that one may be drawn again. Without marks it changes the best try at random.

    Args:
        tries: those that the marks rest on, in rising order of their scores; random parameters are
            returned if there are none.
        known: all parameters that were tried.
        count: of parameters.
        levels: of each.
        ordered: whether levels are amounts.
        rng: draws.
    """
    marked = marks(levels, ordered, tries, known)
    places = list(marked)
    weights = np.exp([TRUST * (marked[place][1] - HIGHEST) for place in places])

    def change(found: list[int]) -> None:
        number = _changes(count, MORE_GUIDED, rng)
        if places:
            for place in rng.choice(places, size=number, p=weights / weights.sum()).tolist():
                found[place] = marked[place][0]
        else:
            _change_some(found, number, levels, ordered, rng)

    return _next(tries, known, count, levels, rng, change)


def _next(
    tries: Tries,
    known: Set[Levels],
    count: int,
    levels: int,
    rng: np.random.Generator,
    change: Change,
    *,
    crossed: float = 0.0,
) -> Levels:
    """Return the best try, crossed with another one or not, and changed until it is new."""
    if not tries:
        return tuple(int(v) for v in rng.integers(levels, size=count))
    start = list(tries[-1][0])
    if rng.random() < crossed:
        other = tries[int(rng.integers(len(tries)))][0]
        start = [o if rng.random() < 0.5 else s for s, o in zip(start, other, strict=True)]
    found = start
    for _ in range(DRAWS):
        found = list(start)
        change(found)
        if tuple(found) not in known:
            break
    return tuple(found)


def _changes(count: int, more: float, rng: np.random.Generator) -> int:
    """Return how many parameters change, at most all; `more` is the probability of one more."""
    return min(int(rng.geometric(1 - more)), count)


def _change_some(
    found: list[int], number: int, levels: int, ordered: bool, rng: np.random.Generator
) -> None:
    """Give so many parameters other levels."""
    for place in rng.choice(len(found), size=number, replace=False):
        found[place] = _changed(found[place], levels, ordered, rng)


def _changed(level: int, levels: int, ordered: bool, rng: np.random.Generator) -> int:
    """Return another level: any one of choices, one at most two away of amounts."""
    if not ordered:
        return int((level + 1 + rng.integers(levels - 1)) % levels)
    near = near_levels(level, levels, 2)
    return int(near[rng.integers(len(near))])
