"""The map of an ant colony: cells, distances, and what is seen from a cell.

Provides `Grid`, `distances`, `steps_to` and `visible`. A cell is a number: maps have a border of
two walls, so that what an ant sees around it never leaves the map.
"""

from __future__ import annotations

from collections import deque
from collections.abc import Container, Iterable, Mapping
from dataclasses import dataclass
from functools import lru_cache

SIGHT = 2
"""The cells that an ant sees in each direction, and the width of the border."""
WALL, OPEN = "#", "."
COMPASS = "NESW"
STEPS: Mapping[str, tuple[int, int]] = {"N": (0, -1), "E": (1, 0), "S": (0, 1), "W": (-1, 0)}


@dataclass(frozen=True, slots=True)
class Grid:
    """The walls of a map as one text, row by row, with the border; `width` is that of a row.

    Example:
        >>> grid = Grid.of(["..", "#."])
        >>> grid.at(grid.cell(1, 1)), grid.cells[grid.cell(0, 1)], len(grid.open)
        ((1, 1), '#', 3)
    """

    cells: str
    width: int

    @classmethod
    def of(cls, rows: Iterable[str]) -> Grid:
        """Return the grid of square rows of `#` and `.`."""
        known = list(rows)
        width, border = len(known) + 2 * SIGHT, WALL * SIGHT
        blank = WALL * width * SIGHT
        inner = "".join(border + row + border for row in known)
        return cls(blank + inner + blank, width)

    def cell(self, x: int, y: int) -> int:
        """Return the number of a cell."""
        return (y + SIGHT) * self.width + x + SIGHT

    def at(self, cell: int) -> tuple[int, int]:
        """Return the column and the row of a cell."""
        y, x = divmod(cell, self.width)
        return x - SIGHT, y - SIGHT

    @property
    def size(self) -> int:
        """The number of rows."""
        return self.width - 2 * SIGHT

    @property
    def open(self) -> list[int]:
        """The cells without a wall."""
        return [cell for cell, kind in enumerate(self.cells) if kind == OPEN]

    @property
    def rows(self) -> list[str]:
        """The rows without the border."""
        starts = (self.cell(0, y) for y in range(self.size))
        return [self.cells[start : start + self.size] for start in starts]

    def steps(self) -> tuple[int, int, int, int]:
        """Return what N, E, S and W add to the number of a cell."""
        return (-self.width, 1, self.width, -1)


def distances(grid: Grid, start: int, known: Container[int] | None = None) -> dict[int, int]:
    """Return the number of steps from `start` to every cell that can be reached.

    Args:
        grid: the map.
        start: a cell.
        known: the cells that may be walked on; None is all.
    """
    found, waiting, cells = {start: 0}, deque([start]), grid.cells
    steps = grid.steps()
    while waiting:
        cell = waiting.popleft()
        further = found[cell] + 1
        for step in steps:
            near = cell + step
            if near not in found and cells[near] == OPEN and (known is None or near in known):
                found[near] = further
                waiting.append(near)
    return found


@lru_cache(maxsize=4096)
def steps_to(grid: Grid, goal: int) -> dict[int, int]:
    """Return the number of steps to `goal` from every cell that can be reached, kept for later."""
    return distances(grid, goal)


OFFSETS = tuple((dx, dy) for dy in range(-SIGHT, SIGHT + 1) for dx in range(-SIGHT, SIGHT + 1))


@lru_cache(maxsize=1 << 15)
def visible(grid: Grid, cell: int) -> tuple[bool, ...]:
    """Return for each of the cells around `cell`, row by row, whether no wall hides it."""
    return tuple(_clear(grid, cell, dx, dy) for dx, dy in OFFSETS)


def _clear(grid: Grid, cell: int, dx: int, dy: int) -> bool:
    """Whether one of the straight ways to a cell has no wall before its end.

    A cell two steps away is seen past the cell between; one a knight's move away past either of
    the two cells next to the middle of the line.
    """
    long = max(abs(dx), abs(dy))
    if long < 2:
        return True
    if abs(dx) == abs(dy) or 0 in (dx, dy):
        between = [(dx // 2, dy // 2)]
    elif abs(dx) > abs(dy):
        between = [(dx // 2, 0), (dx // 2, dy)]
    else:
        between = [(0, dy // 2), (dx, dy // 2)]
    return any(grid.cells[cell + y * grid.width + x] == OPEN for x, y in between)


@lru_cache(maxsize=1 << 15)
def around(grid: Grid, cell: int, far: bool) -> tuple[int, ...]:
    """Return the cells that are seen from `cell`; with `far` walls hide nothing."""
    width = grid.width
    cells = [cell + dy * width + dx for dx, dy in OFFSETS]
    if far:
        return tuple(cells)
    return tuple(c for c, seen in zip(cells, visible(grid, cell), strict=True) if seen)
