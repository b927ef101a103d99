"""The data of a task: its map, its ants, and where an episode begins.

Provides `MapData` and `read_map`.
"""

from __future__ import annotations

from collections.abc import Sequence
from typing import NamedTuple

from pydantic import Field

from turnwise.envs.ant_colony.grid import OPEN, WALL, Grid, steps_to
from turnwise.envs.ant_colony.notes import LONGEST_NOTE, MOST_NOTES, is_note
from turnwise.envs.ant_colony.state import World
from turnwise.envs.ant_colony.tiers import LARGEST
from turnwise.envs.task_data import read_data
from turnwise.errors import DataError
from turnwise.settings import Settings
from turnwise.types import Task

MOST = 10**6
"""The most units, ticks and ants of a task."""


class StartData(Settings):
    """Where the ants of a task are when an episode begins, what they noted, and what food is left.

    `notes` are those of each ant; none at all where it is empty.
    """

    at: tuple[tuple[int, int, int], ...]
    left: tuple[int, ...]
    notes: tuple[tuple[str, ...], ...] = ()


class MapData(Settings):
    """The data of a task."""

    rows: tuple[str, ...]
    nest: tuple[int, int]
    food: tuple[tuple[int, int, int], ...]
    tier: int
    ants: int = Field(ge=1, le=MOST)
    ticks: int = Field(ge=1, le=MOST)
    units: int = Field(ge=1, le=MOST)
    respawn: int = Field(ge=0, le=MOST)
    far: bool
    order: tuple[int, ...]
    start: StartData | None = None


class Beginning(NamedTuple):
    """What an episode begins with.

    Attributes:
        world: the map and the parameters.
        food: the units that lie in each cell.
        at: of each ant its place and whether it carries food.
        notes: of each ant.
        order: in which the ants act.
        units: of food in all: those that lie somewhere, are carried or are in the nest.
    """

    world: World
    food: dict[int, int]
    at: Sequence[tuple[int, int, int]]
    notes: Sequence[tuple[str, ...]]
    order: tuple[int, ...]
    units: int


def read_map(task: Task, seats: int) -> Beginning:
    """Return what an episode of a task begins with, for an env with so many seats.

    Raises:
        DataError: if the map is not a square of `#` and `.` whose food and ants are in open cells
            that can be reached from the nest, if it has more ants than there are seats, or if
            nothing is left to do.
    """
    data = read_data(MapData, task)
    if data.ants > seats or sorted(data.order) != list(range(data.ants)):
        raise DataError(
            f"task {task.id!r} has {data.ants} ants in the order {list(data.order)}: give 1 to "
            f"{seats} ants, each once in the order; the option seats has more"
        )
    grid = _grid(task, data.rows)
    nest = _cell(task, grid, "the nest", data.nest)
    world = World(
        grid=grid, nest=nest, tier=data.tier, ticks=data.ticks, units=data.units,
        respawn=data.respawn, far=data.far,
    )  # fmt: skip
    food = {_cell(task, grid, "food", (x, y), nest): units for x, y, units in data.food}
    if len(food) < len(data.food) or not all(1 <= units <= MOST for units in food.values()):
        raise DataError(
            f"task {task.id!r} has food = {list(data.food)}: give each stack a cell of its own and "
            "1 unit or more"
        )
    whole, at = sum(food.values()), [(*data.nest, 0)] * data.ants
    notes: Sequence[tuple[str, ...]] = [()] * data.ants
    if data.start is not None:
        food, at = _begin(task, grid, nest, food, data.start, data.ants)
        notes = _notes(task, data.start, data.ants)
    if not (food or data.respawn or any(carries for *_, carries in at)):
        raise DataError(f"task {task.id!r} has no food left: give it some, or respawn")
    return Beginning(world=world, food=food, at=at, notes=notes, order=data.order, units=whole)


def _grid(task: Task, rows: Sequence[str]) -> Grid:
    size = len(rows)
    square = 0 < size <= LARGEST and all(len(row) == size for row in rows)
    if not square or not set("".join(rows)) <= {OPEN, WALL}:
        raise DataError(
            f"task {task.id!r} has rows = {list(rows)!r:.80}: give a square of '#' and '.', of at "
            f"most {LARGEST} rows"
        )
    return Grid.of(rows)


def _cell(
    task: Task, grid: Grid, what: str, place: tuple[int, int], nest: int | None = None
) -> int:
    """Return the open cell of a place, which can be reached from the nest if that is given."""
    x, y = place
    inside = 0 <= x < grid.size and 0 <= y < grid.size
    if not (inside and grid.cells[cell := grid.cell(x, y)] == OPEN):
        raise DataError(f"task {task.id!r} has {what} in [{x}, {y}]: give an open cell")
    if nest is not None and cell not in steps_to(grid, nest):
        raise DataError(
            f"task {task.id!r} has {what} in [{x}, {y}], and no way leads there from the nest: "
            "give a cell that can be reached"
        )
    return cell


def _notes(task: Task, start: StartData, ants: int) -> Sequence[tuple[str, ...]]:
    """Return the notes of each ant when an episode begins."""
    notes = start.notes or ((),) * ants
    if (
        len(notes) != ants
        or max(map(len, notes)) > MOST_NOTES
        or not all(is_note(note) for each in notes for note in each)
    ):
        raise DataError(
            f"task {task.id!r} has notes = {notes!r:.200}: give each of {ants} ants a list of at "
            f"most {MOST_NOTES} notes of letters, digits and blanks, each of at most "
            f"{LONGEST_NOTE} characters"
        )
    return notes


def _begin(
    task: Task, grid: Grid, nest: int, food: dict[int, int], start: StartData, ants: int
) -> tuple[dict[int, int], Sequence[tuple[int, int, int]]]:
    """Return the food that is left by cell, and of each ant its place and whether it carries food.

    `food` is that of the whole map, in the order of the task.
    """
    at, left = start.at, start.left
    carried = sum(carries for *_, carries in at)
    fits = len(at) == ants and len(left) == len(food) and min(left, default=0) >= 0
    fits = fits and all(carries in (0, 1) for *_, carries in at)
    if not fits or sum(left) + carried > sum(food.values()):
        raise DataError(
            f"task {task.id!r} has start = {task.data['start']!r:.200}: give each ant an open cell "
            "[x, y] and 1 or 0 for food carried, and each stack the units left of it"
        )
    for x, y, _ in at:
        _cell(task, grid, "an ant", (x, y), nest)
    return {cell: units for cell, units in zip(food, left, strict=True) if units}, at
