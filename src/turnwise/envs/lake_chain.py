"""What a player of a lake is worth, computed and not played: the Markov chain of its choices.

Owns the exact measures of a player whose choice depends on the cell alone. Numpy only; knows no
models. Shapes: C cells, A = 4 actions. A player is a table [C, A] of chances; a row may sum to less
than 1: with the rest nothing legal is answered, which ends the episode.
"""

from __future__ import annotations

import numpy as np

from turnwise.envs.lake_maps import Rows, lake_of
from turnwise.envs.lake_solver import (
    Array,
    action_values,
    advantages,
    success_chances,
    transitions,
)

DEMO_STEPS = 100
"""Gymnasium's step limit on 4x4 lakes, within which the published demonstrations were played."""


def free_cells(rows: Rows) -> tuple[int, ...]:
    """Return the cells in which there is something to decide: neither hole nor goal.

    Example:
        >>> free_cells(("SF", "HG"))
        (0, 1)
    """
    return tuple(cell for cell, letter in enumerate(lake_of(rows).letters) if letter in "SF")


def occupancy(rows: Rows, slippery: bool, limit: int, start: int, player: Array) -> Array:
    """Return how often each cell is expected before each step, [limit + 1, C]; the last is the end.

    Row t is the distribution after t steps; holes and goals keep what reached them.
    """
    after, chance = transitions(rows, slippery)
    cells = len(after)
    ended = np.array([letter in "HG" for letter in lake_of(rows).letters])
    follow = np.zeros((cells, cells))
    for action in range(4):
        for place, probability in zip(after[:, action].T, chance, strict=True):
            np.add.at(follow, (np.arange(cells), place), player[:, action] * probability)
    follow[ended] = np.eye(cells)[ended]
    flow = np.zeros((limit + 1, cells))
    flow[0, start] = 1.0
    for step in range(limit):
        flow[step + 1] = flow[step] @ follow
    return flow


def measures(rows: Rows, slippery: bool, limit: int, start: int, player: Array) -> dict[str, float]:
    """Return the exact measures of a player.

    - `success`: the probability of reaching a goal from `start` within `limit` steps;
    - `of_optimum`: that, divided by the best one by any player, who may count steps;
    - `advantage`: the expected normalised advantage, the mean over all free cells;
    - `published`: half the chance of a legal answer, half the advantage, both in the cells as an
      optimal player visits them: the reward of the published Gemma run, in which always DOWN has
      0.653 on gymnasium's slippery 4x4 lake, without its bonus (which its cap cancels).

    Example:
        >>> down = np.tile([0.0, 1.0, 0.0, 0.0], (16, 1))
        >>> found = measures(("SFFF", "FHFH", "FFFH", "HFFG"), True, 100, 0, down)
        >>> round(found["published"], 3), round(found["advantage"], 3)
        (0.653, 0.352)
    """
    free = list(free_cells(rows))
    goal = np.array([letter == "G" for letter in lake_of(rows).letters])
    worth = (player * np.array(advantages(rows, slippery))).sum(axis=1)
    best = np.eye(4)[action_values(rows, slippery).argmax(axis=1)]
    visits = occupancy(rows, slippery, DEMO_STEPS, lake_of(rows).start, best)[:-1].sum(axis=0)
    shares = visits[free] / visits[free].sum()
    success = float(occupancy(rows, slippery, limit, start, player)[-1] @ goal)
    optimum = float(success_chances(rows, slippery, limit)[limit, start].max())
    return {
        "success": success,
        "of_optimum": success / optimum if optimum else 1.0,
        "advantage": float(worth[free].mean()),
        "published": float(shares @ (player.sum(axis=1) + worth)[free]) / 2,
    }
