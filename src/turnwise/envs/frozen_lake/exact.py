"""Exact measures of a policy on a lake, from the Markov chain of its actions.

Provides `measures`, in numpy, for policies whose action depends on the cell only. Shapes: C cells,
A = 4 actions. A policy is a table [C, A] of probabilities. A row may sum to less than 1; the rest
is the probability of an illegal answer, which ends the episode.
"""

from __future__ import annotations

import numpy as np

from turnwise.envs.frozen_lake.maps import MapRows, lake_of
from turnwise.envs.frozen_lake.solver import (
    Array,
    action_values,
    advantages,
    success_chances,
    transitions,
)

DEMO_STEPS = 100
"""Gymnasium's step limit on 4x4 lakes, which the published demonstrations used."""


def free_cells(rows: MapRows) -> tuple[int, ...]:
    """Return the cells that are neither hole nor goal.

    Example:
        >>> free_cells(("SF", "HG"))
        (0, 1)
    """
    return tuple(cell for cell, letter in enumerate(lake_of(rows).letters) if letter in "SF")


def occupancy(rows: MapRows, slippery: bool, limit: int, start: int, player: Array) -> Array:
    """Return the distribution over cells before each step and at the end, [limit + 1, C].

    Row t is the distribution after t steps; holes and goals are absorbing.
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


def success_of(rows: MapRows, slippery: bool, limit: int, start: int, player: Array) -> float:
    """Return the probability that a player reaches a goal from `start` within `limit` steps.

    Example:
        >>> success_of(("SF", "HG"), False, 2, 0, np.full((4, 4), 0.25))
        0.0625
    """
    goal = np.array([letter == "G" for letter in lake_of(rows).letters])
    return float(occupancy(rows, slippery, limit, start, player)[-1] @ goal)


def measures(
    rows: MapRows, slippery: bool, limit: int, start: int, player: Array
) -> dict[str, float]:
    """Return the exact measures of a policy.

    - `success`: the probability of reaching a goal from `start` within `limit` steps;
    - `of_optimum`: `success` divided by that of the best policy, which may depend on the step;
    - `advantage`: the expected normalised advantage, averaged over all free cells;
    - `published`: half the probability of a legal answer plus half the advantage, over the cells
      that an optimal policy visits: the reward of the published Gemma run, where always DOWN has
      0.653 on gymnasium's slippery 4x4 lake, without its bonus (which its cap cancels).

    Example:
        >>> down = np.tile([0.0, 1.0, 0.0, 0.0], (16, 1))
        >>> found = measures(("SFFF", "FHFH", "FFFH", "HFFG"), True, 100, 0, down)
        >>> round(found["published"], 3), round(found["advantage"], 3)
        (0.653, 0.352)
    """
    free = list(free_cells(rows))
    worth = (player * np.array(advantages(rows, slippery))).sum(axis=1)
    best = np.eye(4)[action_values(rows, slippery).argmax(axis=1)]
    visits = occupancy(rows, slippery, DEMO_STEPS, lake_of(rows).start, best)[:-1].sum(axis=0)
    shares = visits[free] / visits[free].sum()
    success = success_of(rows, slippery, limit, start, player)
    optimum = float(success_chances(rows, slippery, limit)[limit, start].max())
    return {
        "success": success,
        "of_optimum": success / optimum if optimum else 1.0,
        "advantage": float(worth[free].mean()),
        "published": float(shares @ (player.sum(axis=1) + worth)[free]) / 2,
    }
