"""The values of states, as means over other episodes' returns-to-go.

Provides `state_values`. No network is learned: the returns of the batch are averaged, as in GiGPO
(arXiv 2505.10978). Values are computed from other episodes only (cross-fitting, Chernozhukov et al.
2018, arXiv 1608.00060), so that they do not depend on the turn's own action.
"""

from __future__ import annotations

from collections.abc import Hashable, Sequence
from dataclasses import dataclass

import numpy as np

from turnwise.credit.returns import Floats, returns_to_go
from turnwise.credit.units import require_state_key
from turnwise.types import EpisodeId, IntArray, Trajectory

FOLDS = 16
"""The number of parts of a batch; the values of each are computed from the others."""
PRIOR = 6.0
"""The number of visits that the value of the coarser comparison counts as."""
PASSES = 100
"""The most passes in which values are computed where episodes were left."""
EXTRAPOLATED = 10
"""After so many passes the sum of all later changes is extrapolated."""
CLOSE = 1e-9
"""Values that change by no more than this share of the largest are not computed again."""
LEVELS = 4
"""The number of comparisons, from coarse to fine (`_keys`)."""


@dataclass(frozen=True, kw_only=True, slots=True)
class StateValues:
    """The values of the states of one trajectory.

    Attributes:
        values: of the state of each turn, [turns].
        visits: the turns in that state that other folds have, [turns].
        others: the turns of the role that other folds have, [turns].
        goes_on: the value of the state in which the episode was left; 0 where it ended.
    """

    values: Floats
    visits: IntArray
    others: IntArray
    goes_on: float


def state_values(
    played: Sequence[Trajectory], rewards: Sequence[Floats], gamma: float
) -> list[StateValues]:
    """Return the values of the states of each trajectory (docs/math.md 2).

    The episodes of a role are dealt out to `FOLDS` folds, in their order. A value in one fold is a
    mean of the returns-to-go of the others: over the visits of the state in the same visit of the
    task, together with `PRIOR` visits that are worth the mean over the state in the whole batch,
    which is made likewise with the mean over turns of the same number, and that with the mean over
    all turns of the role. The return of an episode that was left goes on with the value of the
    state in which it was left, which is computed from the same folds.

    Args:
        played: trajectories with turns, in an order that does not depend on who played first.
        rewards: the reward of each turn, each [turns].
        gamma: the discount.

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
        values[own] = means.at(own, table.returns(means.going_on()))
        counts[:, own] = means.counts_at(own)
    found = []
    for trajectory, first in zip(played, table.starts, strict=True):
        turns = slice(first, first + len(trajectory.turns))
        found.append(
            StateValues(
                values=values[turns],
                visits=counts[2, turns],
                others=counts[0, turns],
                goes_on=0.0 if trajectory.next_key is None else float(values[turns.stop]),
            )
        )
    return found


class _Table:
    """The turns of a batch, trajectory by trajectory, as rows of columns.

    An episode that was left has one more row, of the state in which it would have gone on.

    Attributes:
        codes: what rows of one mean have in common, as numbers, for each level [rows].
        owner: the trajectory of each row.
        fold: its fold.
        acted: whether it is a turn.
        starts: the first row of each trajectory, [trajectories].
        ends: the rows of states in which episodes were left.
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

    def returns(self, goes_on: Floats) -> Floats:
        """Return the return-to-go of each row, if each trajectory goes on with [trajectories]."""
        return self._to_go + self._discounts * goes_on[self.owner]


class _Means:
    """The means over some rows of a table."""

    def __init__(self, table: _Table, used: IntArray) -> None:
        self._table, self._used = table, used
        self._codes = table.codes[:, used]
        self._counts = [
            np.bincount(codes, minlength=int(every.max()) + 1)
            for codes, every in zip(self._codes, table.codes, strict=True)
        ]

    def counts_at(self, rows: IntArray) -> IntArray:
        """Return how many of the rows used each mean at `rows` is over, [levels, rows]."""
        pairs = zip(self._counts, self._table.codes, strict=True)
        return np.array([counts[codes[rows]] for counts, codes in pairs])

    def at(self, rows: IntArray, returns: Floats) -> Floats:
        """Return the value of the states of some rows, [rows], from returns-to-go, [all rows]."""
        known = returns[self._used]
        value, prior = np.zeros(len(rows)), 0.0
        for used, codes, counts in zip(self._codes, self._table.codes, self._counts, strict=True):
            here = codes[rows]
            total = np.bincount(used, known, minlength=len(counts))[here]
            value = (total + prior * value) / np.maximum(counts[here] + prior, 1e-300)
            prior = PRIOR
        return value

    def going_on(self) -> Floats:
        """Return what each trajectory's return goes on with, [trajectories].

        Values depend on each other where episodes were left, so they are computed until they stay.
        The slowest part of their change shrinks by a constant factor, by which it is extrapolated
        (Aitken's method).
        """
        goes_on = np.zeros(len(self._table.starts))
        ends = self._table.ends
        left, before = self._table.owner[ends], np.zeros(len(ends))
        for number in range(1, PASSES + 1 if len(ends) else 1):
            found = self.at(ends, self._table.returns(goes_on))
            change = found - goes_on[left]
            goes_on[left] = found
            if np.abs(change).max() <= CLOSE * np.abs(found).max():
                break
            if number % EXTRAPOLATED == 0:
                factor = float(change @ before) / float(before @ before)
                if 0 < factor < 1 - CLOSE:
                    goes_on[left] += change * factor / (1 - factor)
            before = change
        return goes_on


def _keys(trajectory: Trajectory) -> list[tuple[Hashable, ...]]:
    """Return what each row has in common with others of one mean, from coarse to fine."""
    role, visit = trajectory.role, trajectory.turns[0].id.episode.visit_id
    states = [require_state_key(turn, "gae") for turn in trajectory.turns]
    states += [] if trajectory.next_key is None else [trajectory.next_key]
    return [
        (role, (role, number), (role, state), (role, state, visit))
        for number, state in enumerate(states)
    ]
