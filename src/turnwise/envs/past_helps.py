"""Whether the past of a game tells more of what follows than the present observation does.

Provides `past_helps`, a permutation test on games of random actions. Within all turns of equal
observation and action, what followed is compared with what came before: if they depend on each
other, an agent needs its past. `past_excess` returns its statistic, and `excess` that of any
property of turns that may decide what follows.
"""

from __future__ import annotations

from collections.abc import Hashable, Sequence
from dataclasses import dataclass

import numpy as np
from numpy.typing import NDArray

from turnwise.seeding import generator

PERMUTATIONS = 100
SURE = 6.0
"""Standard deviations by which the dependence must exceed that of shuffled pasts."""
LEAST, FEWEST = 0.2, 300
"""The share of turns that must have an equal turn in another game for the test to say anything, and
their number for it to say that the past does not help."""

NOT_COMPARED: Hashable = object()
"""In place of what came next, where that must not be compared."""

Codes = NDArray[np.int64]


@dataclass(frozen=True, kw_only=True, slots=True)
class SeenTurn:
    """One turn of a game, as its seat saw it.

    `followed` is what came of it: the rewards, and the next observation or the end, or
    `NOT_COMPARED`; None where the game was cut off. `past` are the observations and actions of the
    turns before, oldest first.
    """

    game: int
    observation: str
    action: str
    followed: tuple[Hashable, Hashable] | None
    past: tuple[tuple[str, str], ...]


def past_helps(turns: Sequence[SeenTurn], seed: int) -> bool | None:
    """Return whether the past helps to predict what follows an observation and an action.

    The statistic is the conditional mutual information of what followed and a feature of the past
    (the last observation, the last action, the first observation, whether the action was taken
    before), summed over turns of equal observation and action. It is compared with its mean and
    standard deviation when the feature is shuffled among those turns.

    Args:
        turns: the turns of random games.
        seed: of the shuffling.

    Returns:
        None where too few turns are alike to tell.
    """
    found = past_excess(turns, seed)
    if found is not None and found > SURE:
        return True
    return None if found is None or len(_alike(turns)) < FEWEST else False


def past_excess(turns: Sequence[SeenTurn], seed: int) -> float | None:
    """Return the statistic of `past_helps`, in standard deviations: that of the best feature.

    Args:
        turns: the turns of games.
        seed: of the shuffling.

    Returns:
        None where too few turns are alike to tell.
    """
    alike = _alike(turns)
    if not alike or len(alike) < LEAST * sum(turn.followed is not None for turn in turns):
        return None
    features = [
        [t.past[-1][0] if t.past else None for t in alike],
        [t.past[-1][1] if t.past else None for t in alike],
        [t.past[0][0] if t.past else None for t in alike],
        [any(t.action == action for _, action in t.past) for t in alike],
    ]
    rng = generator(seed, "history test")
    return max(excess(alike, feature, rng) for feature in features)


def _alike(turns: Sequence[SeenTurn]) -> list[SeenTurn]:
    """Return the turns that were not cut off and have an equal turn in another game."""
    known = [turn for turn in turns if turn.followed is not None]
    games: dict[tuple[str, str], set[int]] = {}
    for turn in known:
        games.setdefault((turn.observation, turn.action), set()).add(turn.game)
    return [t for t in known if len(games[t.observation, t.action]) > 1]


def excess(
    turns: Sequence[SeenTurn], feature: Sequence[Hashable], rng: np.random.Generator
) -> float:
    """Return by how many standard deviations what followed turns depends on a feature of theirs.

    The dependence is that within turns of equal observation and action, of the rewards or of what
    came next, whichever is larger.

    Args:
        turns: the turns of games, none of them cut off.
        feature: a value for each turn.
        rng: for the shuffling.
    """
    strata, features = _codes([(t.observation, t.action) for t in turns]), _codes(feature)
    found: list[float] = []
    for part in range(2):
        outcomes = [t.followed and t.followed[part] for t in turns]
        known = np.array([outcome is not NOT_COMPARED for outcome in outcomes], dtype=bool)
        if known.any():
            found.append(_excess(strata[known], features[known], _codes(outcomes)[known], rng))
    return max(found, default=0.0)


def _codes(values: Sequence[Hashable]) -> Codes:
    """Return a number for each value, equal for equal ones."""
    known: dict[Hashable, int] = {}
    return np.array([known.setdefault(value, len(known)) for value in values], dtype=np.int64)


def _excess(strata: Codes, feature: Codes, outcome: Codes, rng: np.random.Generator) -> float:
    """Return by how many standard deviations a dependence exceeds that of shuffled features.

    Only the term of the mutual information that shuffling changes is computed: the sum of n log n
    over the counts n of (stratum, feature, outcome).
    """
    order = np.argsort(strata, kind="stable")
    strata, feature, outcome = strata[order], feature[order], outcome[order]
    width = int(outcome.max()) + 1
    base = (strata * (int(feature.max()) + 1)) * width + outcome

    def term(shuffled: Codes) -> float:
        _, counts = np.unique(base + shuffled * width, return_counts=True)
        return float((counts * np.log(counts)).sum())

    found = term(feature)
    chance = np.empty(PERMUTATIONS)
    for number in range(PERMUTATIONS):
        keys = rng.random(len(strata))
        chance[number] = term(feature[np.lexsort((keys, strata))])
    spread = float(chance.std())
    return (found - float(chance.mean())) / spread if spread > 1e-9 else 0.0
