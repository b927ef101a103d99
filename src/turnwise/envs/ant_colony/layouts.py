"""The maps of ant colonies: open ground, single walls, rooms and mazes, with a nest and food.

Provides `draw_map`. All food can be reached from the nest, and is at least two steps away.
"""

from __future__ import annotations

from functools import lru_cache
from typing import NamedTuple

import numpy as np
from numpy.typing import NDArray

from turnwise.envs.ant_colony.grid import OPEN, WALL, Grid, distances
from turnwise.envs.ant_colony.tiers import Tier
from turnwise.errors import ConfigError

Walls = NDArray[np.bool_]
ATTEMPTS = 200
ROOM = 5
"""The rows and columns of a room, its wall included."""
LEAST_STEPS = 2
"""The least distance of food from the nest."""
LEAST_REACHED = 0.9
"""The least share of open cells that can be reached from the nest."""


class Map(NamedTuple):
    """A drawn map: the rows of its grid, and the positions [x, y] of its nest and of food."""

    rows: list[str]
    nest: list[int]
    food: list[list[int]]


def draw_map(tier: Tier, rng: np.random.Generator) -> Map:
    """Return a random map of a tier.

    Raises:
        ConfigError: if the food has no place in `ATTEMPTS` maps.
    """
    for _ in range(ATTEMPTS):
        walls = _walls(tier, rng)
        grid = Grid.of(["".join(WALL if wall else OPEN for wall in row) for row in walls])
        cells = grid.open
        if not cells:
            continue
        nest = cells[rng.integers(len(cells))]
        if len(distances(grid, nest)) < LEAST_REACHED * len(cells):
            continue
        places = places_of_food(grid, nest)
        if len(places) < tier.stacks:
            continue
        chosen = rng.choice(places, tier.stacks, replace=False)
        food = [list(grid.at(int(cell))) for cell in chosen]
        return Map(grid.rows, list(grid.at(nest)), food)
    raise ConfigError(
        f"size = {tier.size}, layout = {tier.layout!r} and walls = {tier.walls} leave no place for "
        f"stacks = {tier.stacks} in {ATTEMPTS} maps: give a larger size, or fewer walls or stacks"
    )


@lru_cache(maxsize=256)
def places_of_food(grid: Grid, nest: int) -> tuple[int, ...]:
    """Return the cells in which food may lie, in order: at least `LEAST_STEPS` from the nest."""
    found = distances(grid, nest).items()
    return tuple(sorted(cell for cell, steps in found if steps >= LEAST_STEPS))


def _walls(tier: Tier, rng: np.random.Generator) -> Walls:
    """Return a random array [rows, columns] of walls."""
    size = tier.size
    if tier.layout == "open":
        return np.zeros((size, size), dtype=bool)
    if tier.layout == "walls":
        return rng.random((size, size)) < tier.walls
    if tier.layout == "rooms":
        numbers = np.arange(size) % ROOM == ROOM - 1
        lines = numbers[:, None] | numbers[None, :]
        return lines & (rng.random((size, size)) >= tier.walls)
    return _maze(size, tier.walls, rng)


def _maze(size: int, opened: float, rng: np.random.Generator) -> Walls:
    """Return a maze of corridors in every other row and column, found by depth-first search.

    `opened` is the share of the walls between two corridors that are opened afterwards.
    """
    walls = np.ones((size, size), dtype=bool)
    many = (size + 1) // 2
    path = [(0, 0)]
    walls[0, 0] = False
    while path:
        y, x = path[-1]
        near = [(y + dy, x + dx) for dy, dx in ((-1, 0), (0, 1), (1, 0), (0, -1))]
        free = [(b, a) for b, a in near
                if 0 <= b < many and 0 <= a < many and walls[2 * b, 2 * a]]  # fmt: skip
        if not free:
            path.pop()
            continue
        b, a = free[rng.integers(len(free))]
        walls[2 * b, 2 * a] = walls[y + b, x + a] = False
        path.append((b, a))
    between = np.add.outer(np.arange(size), np.arange(size)) % 2 == 1
    between[2 * many - 1 :] = between[:, 2 * many - 1 :] = False
    return walls & ~(between & (rng.random((size, size)) < opened))
