"""The player of the ant colony that knows the whole map.

Provides `oracle`.
"""

from __future__ import annotations

import numpy as np

from turnwise.envs.ant_colony.grid import COMPASS, steps_to
from turnwise.envs.ant_colony.state import Colony


def oracle(state: Colony, rng: np.random.Generator) -> str:
    """Carry food home and fetch the nearest unit that is no other ant's, on shortest paths."""
    world = state.world
    number = state.order[min(state.place, len(state.order) - 1)]
    ant = state.ants[number]
    if ant.carrying:
        return "DEPOSIT" if ant.cell == world.nest else _step(state, ant.cell, world.nest)
    target = _targets(state).get(number)
    if target is None:
        return "" if ant.cell == world.nest else _step(state, ant.cell, world.nest)
    return "PICK_UP" if ant.cell == target else _step(state, ant.cell, target)


def _targets(colony: Colony) -> dict[int, int]:
    """Return the stack of each ant that carries nothing: the nearest pairs first."""
    grid, left = colony.world.grid, dict(colony.food)
    free = {number: ant.cell for number, ant in enumerate(colony.ants) if not ant.carrying}
    pairs = sorted(
        (steps_to(grid, cell)[at] + steps_to(grid, cell)[colony.world.nest], number, cell)
        for number, at in free.items()
        for cell in left
    )
    found: dict[int, int] = {}
    for _, number, cell in pairs:
        if number not in found and left[cell]:
            found[number] = cell
            left[cell] -= 1
    return found


def _step(colony: Colony, start: int, goal: int) -> str:
    grid, steps = colony.world.grid, steps_to(colony.world.grid, goal)
    for way, step in zip(COMPASS, grid.steps(), strict=True):
        if steps.get(start + step, steps[start]) < steps[start]:
            return f"MOVE {way}"
    raise AssertionError("a cell that can be reached has a neighbour that is nearer")
