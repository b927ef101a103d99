"""Cells of a square board: their names, seen from one of them, and the 8 symmetries.

Provides `SquaresConfig`, with the names of cells that it asks for, and `symmetries`.
"""

from __future__ import annotations

from functools import cache
from typing import Literal

from turnwise.envs.planning.state import PlanningConfig


class SquaresConfig(PlanningConfig):
    """Options of planning envs with a player on a square board."""

    cells: Literal["absolute", "relative"] = "absolute"
    """How observations name walls, boxes and goals: `absolute` by row and column, as in `r2c3`, or
    `relative` by the steps from the player, as in `u2l1` (2 up and 1 left). Functions take and
    return absolute names."""

    def names(self, columns: int, at: int) -> tuple[str, ...]:
        """Return the name of each cell of a board with the player at `at`."""
        return offset_names(columns, at) if self.relative else absolute_names(columns)

    @property
    def relative(self) -> bool:
        """Whether cells are named from the player."""
        return self.cells == "relative"

    def cell_words(self, size: int) -> tuple[str, ...]:
        """Return all names of the cells of a board of `size` rows."""
        words = dict.fromkeys(absolute_names(size))
        if self.relative:
            cells = range(size * size)
            words |= dict.fromkeys(name for at in cells for name in offset_names(size, at))
        return tuple(words)


@cache
def absolute_names(columns: int) -> tuple[str, ...]:
    """Return the name of each cell of a board by row and column.

    Example:
        >>> absolute_names(2)
        ('r0c0', 'r0c1', 'r1c0', 'r1c1')
    """
    return tuple(f"r{row}c{column}" for row in range(columns) for column in range(columns))


@cache
def offset_names(columns: int, at: int) -> tuple[str, ...]:
    """Return the name of each cell of a board by the steps from the cell `at`; its own is "here".

    Example:
        >>> offset_names(3, 0)[:4], offset_names(3, 7)[:4]
        (('here', 'r1', 'r2', 'd1'), ('u2l1', 'u2', 'u2r1', 'u1l1'))
    """
    row, column = divmod(at, columns)
    found = []
    for cell in range(columns * columns):
        down, right = cell // columns - row, cell % columns - column
        vertical = f"{'d' if down > 0 else 'u'}{abs(down)}" if down else ""
        across = f"{'r' if right > 0 else 'l'}{abs(right)}" if right else ""
        found.append(vertical + across or "here")
    return tuple(found)


@cache
def symmetries(size: int) -> tuple[tuple[int, ...], ...]:
    """Return the permutations; the first one leaves all cells where they are.

    In each of them, entry i is the cell that is moved to cell i.

    Example:
        >>> len(set(symmetries(3))), symmetries(2)[0]
        (8, (0, 1, 2, 3))
    """
    cells = [(row, column) for row in range(size) for column in range(size)]
    last = size - 1
    found = []
    for transposed in (False, True):
        for upside_down in (False, True):
            for left_right in (False, True):
                moved = [
                    (last - row if upside_down else row, last - column if left_right else column)
                    for row, column in cells
                ]
                found.append(tuple(c * size + r if transposed else r * size + c for r, c in moved))
    return tuple(found)
