"""Starts in the middle of an episode: where ants are, what they carry, and what food is left.

Provides `draw_start` and `ants_at`.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from typing import Any

import numpy as np

from turnwise.envs.ant_colony.grid import Grid, around, steps_to
from turnwise.envs.ant_colony.notes import noted_cell
from turnwise.envs.ant_colony.rules import seen_from
from turnwise.envs.ant_colony.state import Ant, World

CARRYING, AT_GOAL = 0.5, 0.25
"""The probabilities that an ant carries food, and that it stands where it can deposit or pick up,
which random play rarely leads to."""
RIGHT = 0.75
"""The probability that a note is of a stack."""
SEARCHING, DRAWS = 0.5, 20
"""The probability that an ant without food that stands on no stack sees no food, and the most cells
that are drawn to find such a place. Whole episodes have long ways without food in sight, and
uniform cells are rarely far from it."""


def draw_start(
    data: Mapping[str, Any], rng: np.random.Generator, noted: float = 0.0
) -> dict[str, Any]:
    """Draw a start on the map of a task.

    A random number of units is in the nest, such that those left are as many as the ants or more,
    where there are so many. An ant carries a unit with probability 1/2. With probability 1/4 it
    stands where it can act on that: in the nest, or on a stack without food of its own. An ant
    without food that stands elsewhere sees none with probability 1/2, where there is such a cell.
    The other cells are uniform. With probability `noted` an ant has a note of a place: three times
    in four of a stack that is left, and else of a uniform cell.

    Args:
        data: a task that begins in the nest.
        rng: draws.
        noted: the probability that an ant has a note.

    Returns:
        `at`, of each ant [x, y, whether it carries food], `left`, the units of each stack, and
        where `noted` is above 0 `notes`, of each ant.
    """
    grid = Grid.of(data["rows"])
    reached = sorted(steps_to(grid, grid.cell(*data["nest"])))
    left = [units for *_, units in data["food"]]
    for _ in range(rng.integers(max(sum(left) - data["ants"], 0) + 1)):
        _take(left, rng)
    carry = []
    for _ in range(data["ants"]):
        carry.append(bool(sum(left) and rng.random() < CARRYING))
        if carry[-1]:
            _take(left, rng)
    stacks = [place for (*place, _), units in zip(data["food"], left, strict=True) if units]
    at = []
    for carries in carry:
        goals = [data["nest"]] if carries else stacks
        if goals and rng.random() < AT_GOAL:
            place = goals[rng.integers(len(goals))]
        elif not carries and rng.random() < SEARCHING:
            place = grid.at(_out_of_sight(grid, reached, stacks, data["far"], rng))
        else:
            place = grid.at(reached[rng.integers(len(reached))])
        at.append([*place, int(carries)])
    if not noted:
        return {"at": at, "left": left}
    places = [grid.at(cell) for cell in reached]
    notes = [_drawn_notes(stacks, places, rng) if rng.random() < noted else [] for _ in at]
    return {"at": at, "left": left, "notes": notes}


def _seen_on_ways(world: World, cell: int, notes: Sequence[str]) -> int:
    """Return what an ant sees from its cell, and has seen on a shortest way from each noted one."""
    grid, far = world.grid, world.far
    seen = seen_from(grid, cell, far)
    for noted in (noted_cell(grid, note) for note in notes):
        steps = {} if noted is None else steps_to(grid, noted)
        here = cell
        while steps.get(here, 0):
            nearer = (here + step for step in grid.steps())
            here = next(near for near in nearer if steps.get(near, steps[here]) < steps[here])
            seen |= seen_from(grid, here, far)
    return seen


def _drawn_notes(
    stacks: Sequence[Sequence[int]], places: Sequence[Sequence[int]], rng: np.random.Generator
) -> list[str]:
    """Return a note of a place, most often of a stack."""
    among = stacks if stacks and rng.random() < RIGHT else places
    x, y = among[int(rng.integers(len(among)))]
    return [f"at x{x} y{y}"]


def _out_of_sight(
    grid: Grid,
    cells: Sequence[int],
    stacks: Sequence[Sequence[int]],
    far: bool,
    rng: np.random.Generator,
) -> int:
    """Return a random cell from which no stack, each [x, y], is seen, if one is found."""
    food = {grid.cell(x, y) for x, y in stacks}
    cell = cells[0]
    for _ in range(DRAWS):
        cell = cells[int(rng.integers(len(cells)))]
        if food.isdisjoint(around(grid, cell, far)):
            break
    return cell


def _take(left: list[int], rng: np.random.Generator) -> None:
    """Take a unit of a random stack."""
    stacks = [stack for stack, units in enumerate(left) if units]
    left[stacks[rng.integers(len(stacks))]] -= 1


def ants_at(
    world: World, at: Sequence[tuple[int, int, int]], notes: Sequence[tuple[str, ...]]
) -> tuple[Ant, ...]:
    """Return ants in [x, y], carrying food or not, that came from the places of their notes."""
    cells = [world.grid.cell(x, y) for x, y, _ in at]
    return tuple(
        Ant(
            cell=cell,
            carrying=bool(carries),
            notes=own,
            visited=1 << cell,
            seen=_seen_on_ways(world, cell, own),
        )
        for cell, (_, _, carries), own in zip(cells, at, notes, strict=True)
    )
