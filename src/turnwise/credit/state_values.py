"""The values of states, as means over other episodes' returns-to-go.

Provides `state_values`. No value network is trained: the returns of the batch are averaged, as in
GiGPO (arXiv 2505.10978). Values are computed from other episodes only (cross-fitting, Chernozhukov
et al. 2018, arXiv 1608.00060), so that they do not depend on the turn's own action.
"""

from __future__ import annotations

from collections.abc import Hashable, Sequence
from dataclasses import dataclass

import numpy as np

from turnwise.credit.returns import Floats, returns_to_go
from turnwise.credit.units import require_state_key
from turnwise.types import EpisodeId, IntArray, Trajectory

FOLDS = 16
"""The number of folds of a batch; the values of each are computed from the others."""
PRIOR = 6.0
"""The number of visits as which the mean of the next coarser level counts (shrinkage)."""
PASSES = 100
"""The maximum number of iterations to the fixed point of bootstrapped values."""
EXTRAPOLATED = 10
"""After every so many iterations the sum of all later changes is extrapolated."""
CLOSE = 1e-9
"""The iterations end when no value changes by more than this share of the largest."""
LEVELS = 4
"""The number of levels of means, from coarse to fine (`_keys`)."""


@dataclass(frozen=True, kw_only=True, slots=True)
class StateValues:
    """The values of the states of one trajectory.

    Attributes:
        values: V of the state of each turn, [turns].
        visits: the number of visits of that state in other folds, [turns].
        others: the number of turns of the role in other folds, [turns].
        bootstrap: V of the state in which the episode was cut; 0 where it ended.
    """

    values: Floats
    visits: IntArray
    others: IntArray
    bootstrap: float


def state_values(
    played: Sequence[Trajectory], rewards: Sequence[Floats], gamma: float
) -> list[StateValues]:
    """Return the values of the states of each trajectory (docs/math.md 2).

    A value is a mean of returns-to-go on four levels, from coarse to fine: over all turns of the
    role, over those of the same number, over the visits of the state in the batch, and over the
    visits of the state in the same visit of the task. The mean of each level is shrunk towards that
    of the coarser one, which counts as `PRIOR` visits.

    The episodes of a role are divided into `FOLDS` folds, in their order, and the values of one
    fold are computed from the episodes of the others (cross-fitting, arXiv:1608.00060). The return
    of an episode that was cut is bootstrapped from the value of the state in which it was cut,
    which is computed from the same folds.

    Args:
        played: trajectories with turns, in an order that does not depend on who played first.
        rewards: the reward of each turn, one array [turns] for each trajectory.
        gamma: the discount.

    Returns:
        The values of each trajectory, in the order of `played`.

    Raises:
        TrainingError: if a turn has no state key.
    """
    if not played:
        return []
    table = _Table(played, rewards, gamma)
    values = np.zeros(len(table.fold))
    counts = np.zeros((LEVELS, len(table.fold)), dtype=np.int64)
    for fold in range(int(table.fold.max()) + 1):
        own = np.flatnonzero(table.fold == fold)
        means = _Means(table, np.flatnonzero((table.fold != fold) & table.acted))
        values[own] = means.at(own, table.returns(means.bootstraps()))
        counts[:, own] = means.counts_at(own)
    found = []
    for trajectory, first in zip(played, table.starts, strict=True):
        turns = slice(first, first + len(trajectory.turns))
        found.append(
            StateValues(
                values=values[turns],
                visits=counts[2, turns],
                others=counts[0, turns],
                bootstrap=0.0 if trajectory.next_key is None else float(values[turns.stop]),
            )
        )
    return found


class _Table:
    """The turns of a batch, trajectory by trajectory, as rows of columns.

    An episode that was cut has one more row, for the state in which it was cut.

    Attributes:
        codes: the key of each row on each level, as a number, [levels, rows].
        owner: the trajectory of each row, [rows].
        fold: the fold of each row, [rows].
        acted: whether the row is a turn, [rows].
        starts: the first row of each trajectory, [trajectories].
        ends: the rows of the states in which episodes were cut, [cut episodes].
    """

    def __init__(
        self, played: Sequence[Trajectory], rewards: Sequence[Floats], gamma: float
    ) -> None:
        numbers: dict[str, dict[EpisodeId, int]] = {}
        codes: list[dict[Hashable, int]] = [{} for _ in range(LEVELS)]
        rows: list[list[int]] = []
        owner, fold, to_go, discounts, acted, self.starts = [], [], [], [], [], []
        for place, (trajectory, earned) in enumerate(zip(played, rewards, strict=True)):
            episode = trajectory.turns[0].id.episode
            of_role = numbers.setdefault(trajectory.role, {})
            number = of_role.setdefault(episode, len(of_role))
            keys = _keys(trajectory)
            turns, left = len(earned), trajectory.next_key is not None
            self.starts.append(len(owner))
            rows += [
                [c.setdefault(k, len(c)) for c, k in zip(codes, key, strict=True)] for key in keys
            ]
            owner += [place] * len(keys)
            fold += [number % FOLDS] * len(keys)
            to_go += [*returns_to_go(earned, gamma), *[0.0] * left]
            discounts += [float(left) * gamma ** (turns - turn) for turn in range(turns)]
            discounts += [0.0] * left
            acted += [True] * turns + [False] * left
        self.codes = np.array(rows, dtype=np.int64).T
        self.owner, self.fold = np.array(owner), np.array(fold)
        self.acted = np.array(acted)
        self.ends = np.flatnonzero(~self.acted)
        self._to_go, self._discounts = np.array(to_go), np.array(discounts)

    def returns(self, bootstrap: Floats) -> Floats:
        """Return the returns-to-go, [rows], from the value at each cut, [trajectories]."""
        return self._to_go + self._discounts * bootstrap[self.owner]


class _Means:
    """The means over the rows `used` of a table, [rows used]."""

    def __init__(self, table: _Table, used: IntArray) -> None:
        self._table, self._used = table, used
        self._codes = table.codes[:, used]
        self._counts = [
            np.bincount(codes, minlength=int(every.max()) + 1)
            for codes, every in zip(self._codes, table.codes, strict=True)
        ]

    def counts_at(self, rows: IntArray) -> IntArray:
        """Return the number of used rows in each mean at `rows`, [levels, rows]."""
        pairs = zip(self._counts, self._table.codes, strict=True)
        return np.array([counts[codes[rows]] for counts, codes in pairs])

    def at(self, rows: IntArray, returns: Floats) -> Floats:
        """Return the values of the states of `rows`, [rows], from returns-to-go, [all rows]."""
        known = returns[self._used]
        value, prior = np.zeros(len(rows)), 0.0
        for used, codes, counts in zip(self._codes, self._table.codes, self._counts, strict=True):
            here = codes[rows]
            total = np.bincount(used, known, minlength=len(counts))[here]
            value = (total + prior * value) / np.maximum(counts[here] + prior, 1e-300)
            prior = PRIOR
        return value

    def bootstraps(self) -> Floats:
        """Return the value that each trajectory's return is bootstrapped from, [trajectories].

        It is 0 where an episode ended. The values of states in which episodes were cut depend on
        each other, so they are iterated to a fixed point, at most `PASSES` times. The slowest
        component of their change shrinks by a constant factor, by which it is extrapolated
        (Aitken's method).
        """
        bootstrap = np.zeros(len(self._table.starts))
        ends = self._table.ends
        left, before = self._table.owner[ends], np.zeros(len(ends))
        for number in range(1, PASSES + 1 if len(ends) else 1):
            found = self.at(ends, self._table.returns(bootstrap))
            change = found - bootstrap[left]
            bootstrap[left] = found
            if np.abs(change).max() <= CLOSE * np.abs(found).max():
                break
            if number % EXTRAPOLATED == 0:
                factor = float(change @ before) / float(before @ before)
                if 0 < factor < 1 - CLOSE:
                    bootstrap[left] += change * factor / (1 - factor)
            before = change
        return bootstrap


def _keys(trajectory: Trajectory) -> list[tuple[Hashable, ...]]:
    """Return the keys of each row, from the coarsest level to the finest.

    Rows with equal keys have one mean. The last row of an episode that was cut is the state in
    which it was cut.
    """
    role, visit = trajectory.role, trajectory.turns[0].id.episode.visit_id
    states = [require_state_key(turn, "gae") for turn in trajectory.turns]
    states += [] if trajectory.next_key is None else [trajectory.next_key]
    return [
        (role, (role, number), (role, state), (role, state, visit))
        for number, state in enumerate(states)
    ]
