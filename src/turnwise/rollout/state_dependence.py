"""How much the choice of actions depends on the state, as a metric of an iteration's episodes.

Provides `state_dependence`. Two turns agree if their actions are equal. A policy that ignores what
it observes agrees with itself in different states as often as in equal ones.
"""

from __future__ import annotations

from collections.abc import Hashable, Sequence

import numpy as np
from numpy.typing import NDArray

from turnwise.types import Episode

STATE_DEPENDENCE = "rollout/state_dependence"
LEAST_PAIRS = 100
"""Pairs of turns in equal states, and in different ones, without which nothing is measured."""
LEAST_AGREEMENT = 0.02
"""The share of all pairs with equal actions below which actions are free text."""

Codes = NDArray[np.int64]


def state_dependence(episodes: Sequence[Episode]) -> dict[str, float]:
    """Return by how much more often actions agree in equal states than in different ones.

    Pairs of turns of one role and of different episodes are counted, which makes both shares
    unbiased. Turns with a single legal action are left out. The difference is 0 for a policy that
    ignores the state, and 1 minus the agreement in different states for one that has one action for
    each state.

    Returns:
        The metric, or nothing where states or actions hardly recur, or where there is one state.

    Example:
        >>> state_dependence([])
        {}
    """
    rows = [
        (trajectory.role, (trajectory.role, turn.state_key), turn.action, number)
        for number, episode in enumerate(episodes)
        if not episode.broken
        for trajectory in episode.trajectories
        if not trajectory.player
        for turn in trajectory.turns
        if turn.state_key is not None and turn.action is not None and not turn.forced
    ]
    if not rows:
        return {}
    role, state, action, episode = (_codes(column) for column in zip(*rows, strict=True))
    equal, agree_equal = _pairs(state, action, episode)
    every, agree_every = _pairs(role, action, episode)
    different, agree_different = every - equal, agree_every - agree_equal
    if min(equal, different) < LEAST_PAIRS or agree_every < LEAST_AGREEMENT * every:
        return {}
    return {STATE_DEPENDENCE: agree_equal / equal - agree_different / different}


def _pairs(group: Codes, action: Codes, episode: Codes) -> tuple[int, int]:
    """Return the pairs of one group and of different episodes, and those with equal actions."""
    together = _within(group) - _within(group, episode)
    return together, _within(group, action) - _within(group, action, episode)


def _within(*columns: Codes) -> int:
    """Return the number of pairs of rows that are equal in all columns."""
    code = columns[0]
    for column in columns[1:]:
        code = code * (int(column.max()) + 1) + column
    _, counts = np.unique(code, return_counts=True)
    return int((counts * (counts - 1) // 2).sum())


def _codes(values: Sequence[Hashable]) -> Codes:
    """Return a number for each value, equal for equal ones."""
    known: dict[Hashable, int] = {}
    return np.array([known.setdefault(value, len(known)) for value in values], dtype=np.int64)
