"""Exact values of frozen lakes: discounted, and by steps left. In numpy, cached by map.

Provides the optimal values that rewards and baselines use.
"""

from __future__ import annotations

from functools import lru_cache

import numpy as np
from numpy.typing import NDArray

from turnwise.envs.frozen_lake.maps import ACTIONS, MapRows, lake_of

Array = NDArray[np.float64]
GAMMA = 0.99
SIDEWAYS = (1.0 - 1.0 / 3.0) / 2.0
"""Gymnasium's probability of each of the two slips, with its rounding, so that draws are equal."""
SLIPPERY = (SIDEWAYS, 1.0 / 3.0, SIDEWAYS)
FIRST = SIDEWAYS
SECOND = SIDEWAYS + 1.0 / 3.0


def slide(action: int, uniform: float) -> int:
    """Return the direction of a step on slippery ice: that of the action or one beside it.

    Gymnasium's categorical draw from (left of it, the action, right of it) by one uniform.

    Example:
        >>> [slide(1, u) for u in (0.1, 0.5, 0.9)]
        [0, 1, 2]
    """
    turn = 0 if uniform < FIRST else 1 if uniform < SECOND else 2
    return (action + turn - 1) % 4


def transitions(rows: MapRows, slippery: bool) -> tuple[NDArray[np.int64], Array]:
    """Return gymnasium's transition table: next cells [C, A, K] and probabilities [K].

    Holes and goals lead to themselves.
    """
    lake = lake_of(rows)
    moves = np.array(lake.moves)
    ended = np.array([letter in "HG" for letter in lake.letters])
    moves[ended] = np.flatnonzero(ended)[:, None]
    if not slippery:
        return moves[:, :, None], np.ones(1)
    directions = (np.arange(4)[:, None] + np.array([-1, 0, 1])) % 4
    return moves[:, directions], np.array(SLIPPERY)


@lru_cache(maxsize=4096)
def action_values(rows: MapRows, slippery: bool) -> Array:
    """Return the optimal discounted action values [C, A] without a step limit, read-only.

    Policy iteration is exact: the values of each policy solve a linear system. It starts from the
    shortest paths and ends when no action improves the policy (Howard 1960). The reward is 1 on
    reaching a goal; values of holes and goals are 0.
    """
    after, chance = transitions(rows, slippery)
    letters = lake_of(rows).letters
    ended = np.array([letter in "HG" for letter in letters])
    gain = np.array([letter == "G" for letter in letters], dtype=float)
    near = np.minimum(np.array(lake_of(rows).distances), 1e9)
    policy = near[transitions(rows, False)[0][:, :, 0]].argmin(axis=1)
    cells = np.arange(len(letters))
    while True:
        follow = np.zeros((len(cells), len(cells)))
        np.add.at(follow, (cells[:, None], after[cells, policy]), chance * ~ended[:, None])
        values = np.linalg.solve(np.eye(len(cells)) - GAMMA * follow, follow @ gain)
        table = ((gain + GAMMA * values)[after] @ chance) * ~ended[:, None]
        own = table[cells, policy]
        better = table.max(axis=1) > own + 1e-10 * np.abs(own)
        if not better.any():
            table.setflags(write=False)
            return table
        policy = np.where(better, table.argmax(axis=1), policy)


@lru_cache(maxsize=4096)
def advantages(rows: MapRows, slippery: bool) -> tuple[tuple[float, ...], ...]:
    """Return the optimal action values min-max normalised in each cell, [C][A] in [0, 1].

    Where all four are equal (no way to a goal, or no difference) each is 1.

    Example:
        >>> advantages(("SF", "HG"), False)[0]
        (0.99, 0.0, 1.0, 0.99)
    """
    scaled = normalised(action_values(rows, slippery))
    return tuple(tuple(row) for row in scaled.tolist())


def normalised(values: Array) -> Array:
    """Return action values [..., A] scaled to [0, 1] between the worst and the best action.

    If all are equal, each is 1.

    Example:
        >>> normalised(np.array([[1.0, 2.0, 1.5, 1.0], [3.0, 3.0, 3.0, 3.0]])).tolist()
        [[0.0, 1.0, 0.5, 0.0], [1.0, 1.0, 1.0, 1.0]]
    """
    low, high = values.min(axis=-1, keepdims=True), values.max(axis=-1, keepdims=True)
    spread = high - low
    equal = spread <= 1e-9 * np.abs(high)
    scaled = np.where(equal, 1.0, (values - low) / np.where(equal, 1.0, spread))
    return np.asarray(np.round(scaled, 12), dtype=np.float64)


@lru_cache(maxsize=256)
def success_chances(rows: MapRows, slippery: bool, limit: int) -> Array:
    """Return the best probability of reaching a goal in time, [limit + 1, C, A], read-only.

    Index 0 is the number of steps left before the action. Backward induction, undiscounted.
    """
    after, chance = transitions(rows, slippery)
    letters = lake_of(rows).letters
    goal = np.array([letter == "G" for letter in letters])
    ended = np.array([letter in "HG" for letter in letters])
    table = np.zeros((limit + 1, len(letters), len(ACTIONS)))
    for left in range(1, limit + 1):
        values = np.where(ended, goal, table[left - 1].max(axis=1))
        table[left] = values[after] @ chance * ~ended[:, None]
    table.setflags(write=False)
    return table
