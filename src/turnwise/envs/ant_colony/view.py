"""What an ant sees, smells and knows, as text.

Provides `text_of`, `description_of`, `picture_of` and `vocabulary`. Positions are words such as
`x3 y1`. Places relative to the ant are directions with numbers of steps, such as `E 2 N 1`: a model
reads them without arithmetic, and copies a direction into its move.
"""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from functools import lru_cache
from typing import NamedTuple

import numpy as np

from turnwise.envs.ant_colony.actions import SLOTS
from turnwise.envs.ant_colony.grid import COMPASS, OPEN, SIGHT, Grid, around, visible
from turnwise.envs.ant_colony.notes import noted_cell
from turnwise.envs.ant_colony.scents import SCENTS, Fields
from turnwise.envs.ant_colony.state import Ant, Colony, World
from turnwise.envs.ant_colony.tiers import LARGEST, Scents
from turnwise.seeding import generator

NEST, FOOD, OTHER, SELF, HIDDEN = "N", "F", "a", "A", "?"
EMPTY, LOADED = "empty", "loaded"
"""The first word of a description, by what the ant carries: what it needs depends on it."""
SIDE = 2 * SIGHT + 1
Smell = list[list[float]]
"""The levels of each scent in an ant's cell and to the N, E, S and W."""
NOTHING: Smell = [[0.0] * 5] * len(SCENTS)
RESULTS = (
    *("moved", "bumped", "took", "dropped", "delivered", "signalled", "reinforced", "noted"),
    *("forgot", "invalid"),
)
"""The results of lines in an observation."""
LABELS = (
    *("tier", "turn", "of", "at", "on", "carry", "food", "none", "home", "nest", "here"),
    *("unseen", "last", "nothing", "scent", "alarm", "note", "wall", "trail"),
    *(EMPTY, LOADED),
)
"""The other words of observations and descriptions."""


def relative(dx: int, dy: int) -> str:
    """Return a place relative to an ant in words.

    Example:
        >>> relative(2, -1), relative(0, 0)
        ('E 2 N 1', 'here')
    """
    east = f"{'E' if dx > 0 else 'W'} {abs(dx)}" if dx else ""
    south = f"{'S' if dy > 0 else 'N'} {abs(dy)}" if dy else ""
    return " ".join(word for word in (east, south) if word) or "here"


class _Place(NamedTuple):
    """What does not change of what an ant sees from a cell: its words, and the cells around it."""

    at: str
    nest: str
    walls: str
    window: tuple[str, ...]


@lru_cache(maxsize=1 << 15)
def _place(world: World, cell: int) -> _Place:
    grid, width = world.grid, world.grid.width
    x, y = grid.at(cell)
    steps = zip(COMPASS, grid.steps(), strict=True)
    walls = [name for name, step in steps if grid.cells[cell + step] != OPEN]
    first = cell - SIGHT * width - SIGHT
    window = "".join(grid.cells[first + row * width :][:SIDE] for row in range(SIDE))
    nest = _way(grid, cell, world.nest)
    if not world.far:
        seen = visible(grid, cell)
        window = "".join(m if clear else HIDDEN for m, clear in zip(window, seen, strict=True))
        nest = nest if world.nest in around(grid, cell, False) else "unseen"
    return _Place(
        f"x{x} y{y}", nest, " ".join(["", "wall", *walls] if walls else []), tuple(window)
    )


def text_of(colony: Colony, number: int, smell: Smell, *, clock: bool) -> str:
    """Return all that an ant is shown, in about 100 words of a small vocabulary."""
    world, ant = colony.world, colony.ants[number]
    place = _place(world, ant.cell)
    when = f" turn {colony.tick} of {world.ticks}" if clock else ""
    carries = "food" if ant.carrying else "none"
    lines = [
        f"tier {world.tier}{when}",
        f"at {place.at} on {_ground(colony, ant.cell)} carry {carries} home {colony.delivered}",
        f"nest {place.nest}",
        f"last {' '.join(ant.last) or 'nothing'}",
        *_map(colony, ant.cell, place.window),
        f"scent food {_digits(smell[0])} home {_digits(smell[1])} alarm {round(smell[2][0])}",
        *_notes(world.grid, ant),
    ]
    return "\n".join(lines)


def _notes(grid: Grid, ant: Ant) -> list[str]:
    """Return the notes, each with the relative place of the cell that it names."""
    lines = []
    for place, note in enumerate(ant.notes, start=1):
        cell = noted_cell(grid, note)
        way = "" if cell is None else f" {_way(grid, ant.cell, cell)}"
        lines.append(f"note {place} {note}{way}")
    return lines


def _way(grid: Grid, here: int, cell: int) -> str:
    """Return the place of a cell relative to another one."""
    (x, y), (to_x, to_y) = grid.at(here), grid.at(cell)
    return relative(to_x - x, to_y - y)


def _ground(colony: Colony, cell: int) -> str:
    if cell == colony.world.nest:
        return "nest"
    return "food" if cell in colony.food else "none"


def _digits(levels: Sequence[float]) -> str:
    if levels is NOTHING[0]:
        return "0 0 0 0 0"
    return " ".join([str(min(round(level), 9)) for level in levels])


def smelled(colony: Colony, number: int, scents: Scents) -> Smell:
    """Return the level of each scent in the ant's cell and in those to the N, E, S and W.

    With `shuffled` it is that of other open cells, drawn anew in every tick.
    """
    if scents == "hidden":
        return NOTHING
    cell = colony.ants[number].cell
    cells = [cell, *(cell + step for step in colony.world.grid.steps())]
    if scents == "shuffled":
        return _shuffled(colony).take(cells, axis=1).tolist()
    return colony.fields.take(cells, axis=1).tolist()


def _shuffled(colony: Colony) -> Fields:
    grid = colony.world.grid
    cells = grid.open
    mixed = np.zeros_like(colony.fields)
    order = generator(colony.world.nest, "shuffled scents", colony.tick).permutation(cells)
    mixed[:, cells] = colony.fields[:, order]
    return mixed


def _map(colony: Colony, here: int, window: Sequence[str]) -> list[str]:
    """Return the rows of what an ant sees around it."""
    width = colony.world.grid.width
    first, shown = here - SIGHT * width - SIGHT, list(window)
    things = [(colony.world.nest, NEST), *((cell, FOOD) for cell in colony.food)]
    things += [(ant.cell, OTHER) for ant in colony.ants]
    for cell, mark in things:
        dy, dx = divmod(cell - first, width)
        if 0 <= dy < SIDE and dx < SIDE and shown[dy * SIDE + dx] != HIDDEN:
            shown[dy * SIDE + dx] = mark
    shown[len(shown) // 2] = SELF
    return [" ".join(shown[first : first + SIDE]) for first in range(0, len(shown), SIDE)]


def food_seen(colony: Colony, number: int) -> list[int]:
    """Return the cells with food that an ant sees."""
    if not colony.food:
        return []
    world = colony.world
    cells = around(world.grid, colony.ants[number].cell, world.far)
    return [cell for cell in cells if cell in colony.food]


def description_of(colony: Colony, number: int, smell: Smell) -> str:
    """Return whether an ant carries food, the nearest food that it sees, and its nest.

    Walls, the strongest trail next to it and the nearest noted place follow, where there are any,
    and the direction of its last step.
    """
    ant = colony.ants[number]
    grid, place = colony.world.grid, _place(colony.world, ant.cell)
    food = _nearest(grid, ant.cell, food_seen(colony, number))
    noted = [cell for note in ant.notes if (cell := noted_cell(grid, note)) is not None]
    note = f" note {_nearest(grid, ant.cell, noted)}" if noted else ""
    levels = smell[0][1:]
    most = max(levels)
    trail = f" trail {COMPASS[levels.index(most)]}" if round(most) else ""
    step = "".join(f" {result}" for result in ant.last if result.startswith("moved"))
    return (
        f"{LOADED if ant.carrying else EMPTY} food {food or 'none'} "
        f"nest {place.nest}{place.walls}{trail}{note}{step}"
    )


def _nearest(grid: Grid, here: int, cells: Sequence[int]) -> str:
    """Return the relative place of the nearest of some cells; nothing where there are none."""
    x, y = grid.at(here)
    places = [(a - x, b - y) for a, b in map(grid.at, cells)]
    nearest = min(places, key=lambda at: (abs(at[0]) + abs(at[1]), at), default=None)
    return relative(*nearest) if nearest else ""


def picture_of(colony: Colony) -> str:
    """Return the map for people: walls, the nest, units of food, ants by number, and the score."""
    world, grid = colony.world, colony.world.grid
    marks = {cell: str(units) for cell, units in colony.food.items()} | {world.nest: NEST}
    for number, ant in reversed(list(enumerate(colony.ants, start=1))):
        marks[ant.cell] = chr(ord("a") + number - 1).upper() if ant.carrying else (
            chr(ord("a") + number - 1)
        )  # fmt: skip
    rows = ["".join(marks.get(cell, grid.cells[cell]) for cell in row) for row in rows_of(colony)]
    told = f"tick {colony.tick} of {world.ticks}, home {colony.delivered} of {colony.appeared}"
    return "\n".join([*rows, told])


def rows_of(colony: Colony) -> Iterator[range]:
    """Return the cells of each row of the map, without the border."""
    grid = colony.world.grid
    for y in range(grid.size):
        first = grid.cell(0, y)
        yield range(first, first + grid.size)


def vocabulary() -> tuple[str, ...]:
    """Return the words of observations and of actions."""
    places = (f"{axis}{number}" for axis in "xy" for number in range(LARGEST))
    acts = (*SLOTS, *COMPASS, *SCENTS)
    marks = (NEST, FOOD, OTHER, SELF, HIDDEN, "#", ".")
    return (*LABELS, *RESULTS, *marks, *acts, *places, *map(str, range(10)))
