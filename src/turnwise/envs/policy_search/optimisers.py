"""The optimisers that a searcher imitates, and that leave the histories of its tasks.

Provides `evolved` and `guided`, each from the tries that are shown to the next parameters.
"""

from __future__ import annotations

from collections.abc import Callable

import numpy as np

from turnwise.envs.policy_search.functions import Levels
from turnwise.envs.policy_search.text import Tries, marks, near_levels

CROSSED, DRAWS = 0.3, 50
"""The probability of a crossing; the changes made to find new parameters, which a small task may
not have."""
MORE, MORE_GUIDED = 0.5, 0.3
"""The probability of one more change, in `evolved` and in `guided`."""
GUIDED = 0.75
"""The probability that a change follows the marks."""
Change = Callable[[list[int]], None]
"""Changes one parameter or more."""


def evolved(
    shown: Tries, count: int, levels: int, ordered: bool, rng: np.random.Generator
) -> Levels:
    """Return the next parameters of a simple evolutionary search.

    It changes the best try that is shown: with probability 0.3 half of its parameters come from
    another one, and one parameter or more get another level, at most two away of amounts.

    Args:
        shown: in rising order of their scores; random parameters are returned if there are none.
        count: of parameters.
        levels: of each.
        ordered: whether levels are amounts.
        rng: draws.
    """

    def change(found: list[int]) -> None:
        for place in rng.choice(count, size=_changes(count, MORE, rng), replace=False):
            found[place] = _changed(found[place], levels, ordered, rng)

    return _next(shown, count, levels, rng, change, crossed=CROSSED)


def guided(
    shown: Tries, count: int, levels: int, ordered: bool, rng: np.random.Generator
) -> Levels:
    """Return the next parameters of a search that follows the marks of the tries.

    As `evolved`, but without crossings and with fewer changes. Three quarters of the changes give a
    parameter its marked level; the parameter is drawn with the exponential of its mark.
    """
    marked = marks(count, levels, ordered, shown)
    places = list(marked)
    weights = np.exp([marked[place][1] for place in places])

    def change(found: list[int]) -> None:
        for _ in range(_changes(count, MORE_GUIDED, rng)):
            if places and rng.random() < GUIDED:
                place = int(rng.choice(places, p=weights / weights.sum()))
                found[place] = marked[place][0]
            else:
                place = int(rng.integers(count))
                found[place] = _changed(found[place], levels, ordered, rng)

    return _next(shown, count, levels, rng, change)


def _next(
    shown: Tries,
    count: int,
    levels: int,
    rng: np.random.Generator,
    change: Change,
    *,
    crossed: float = 0.0,
) -> Levels:
    """Return the best try, crossed with another one or not, and changed until it is new."""
    if not shown:
        return tuple(int(v) for v in rng.integers(levels, size=count))
    start = list(shown[-1][0])
    if rng.random() < crossed:
        other = shown[int(rng.integers(len(shown)))][0]
        start = [o if rng.random() < 0.5 else s for s, o in zip(start, other, strict=True)]
    known, found = {params for params, _ in shown}, start
    for _ in range(DRAWS):
        found = list(start)
        change(found)
        if tuple(found) not in known:
            break
    return tuple(found)


def _changes(count: int, more: float, rng: np.random.Generator) -> int:
    """Return how many parameters change, at most all; `more` is the probability of one more."""
    return min(int(rng.geometric(1 - more)), count)


def _changed(level: int, levels: int, ordered: bool, rng: np.random.Generator) -> int:
    """Return another level: any one of choices, one at most two away of amounts."""
    if not ordered:
        return int((level + 1 + rng.integers(levels - 1)) % levels)
    near = near_levels(level, levels, 2)
    return int(near[rng.integers(len(near))])
