"""Cells of a square board: their names and maps, seen from one of them, and the 8 symmetries.

Provides `SquaresConfig`, with the names of cells that it asks for, `map_around` and `symmetries`.
"""

from __future__ import annotations

from collections.abc import Iterable, Sequence
from functools import cache
from typing import Literal, Self

from pydantic import model_validator

from turnwise.envs.planning.state import PlanningConfig

WALL = "#"
LISTING = ("walls", "floor", "none")
"""The words of `SquaresConfig.listing` beside the names of cells."""


class SquaresConfig(PlanningConfig):
    """Options of planning envs with a player on a square board."""

    cells: Literal["absolute", "relative", "map"] = "absolute"
    """How observations show walls, boxes and goals: `absolute` names them by row and column, as in
    `r2c3`, `relative` by the steps from the player, as in `u2l1` (2 up and 1 left), and `map` draws
    them on a map with the player in the centre. Functions take and return absolute names."""
    listed: Literal["walls", "floor"] = "walls"
    """The cells that observations name besides those of the player, boxes and goals: the `walls`
    inside the edge, or the `floor`, which are all cells without a wall. A map shows both, so that
    `floor` is refused there."""

    @model_validator(mode="after")
    def _check_listed(self) -> Self:
        if self.drawn and self.listed == "floor":
            raise ValueError(
                'cells = "map" draws all cells and lists none: leave out listed, or set cells to '
                '"absolute" or "relative"'
            )
        return self

    def listing(self, names: Sequence[str], board: str, walls: Iterable[int]) -> str:
        """Return the line that names the listed cells of a board with these walls inside its edge.

        Example:
            >>> SquaresConfig().listing(absolute_names(2), "..#.", [2])
            'walls r1c0'
            >>> SquaresConfig(listed="floor").listing(absolute_names(2), "..#.", [2])
            'floor r0c0 r0c1 r1c1'
        """
        if self.listed == "floor":
            walls = (cell for cell, sign in enumerate(board) if sign != WALL)
        return " ".join([self.listed, *([names[cell] for cell in walls] or ["none"])])

    def names(self, columns: int, at: int) -> tuple[str, ...]:
        """Return the name of each cell of a board with the player at `at`."""
        return offset_names(columns, at) if self.relative else absolute_names(columns)

    @property
    def relative(self) -> bool:
        """Whether cells are named from the player."""
        return self.cells != "absolute"

    @property
    def drawn(self) -> bool:
        """Whether observations have a map."""
        return self.cells == "map"

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
        found.append(_steps("u", "d", down) + _steps("l", "r", right) or "here")
    return tuple(found)


def _steps(back: str, ahead: str, steps: int) -> str:
    """Return a number of steps and their direction; nothing for 0."""
    return f"{ahead if steps > 0 else back}{abs(steps)}" if steps else ""


def map_around(signs: Sequence[str], columns: int, at: int, far: int) -> tuple[str, ...]:
    """Return the lines of a map with the cell `at` in the centre.

    Each begins with the steps to its row, as in `u2`, or `here`, and has a sign for each cell.

    Args:
        signs: of each cell of the board, [columns * columns]; none may be a space.
        columns: the width of the board.
        at: the cell in the centre.
        far: the number of cells shown on each side of it; those beyond the board are shown as `#`.

    Example:
        >>> map_around("a..b", 2, 1, 1)
        ('u1 # # #', 'here a . #', 'd1 . b #')
    """
    row, column = divmod(at, columns)
    inside, around = range(columns), range(-far, far + 1)
    found = []
    for down in around:
        cells = ((row + down, column + across) for across in around)
        shown = [signs[r * columns + c] if r in inside and c in inside else WALL for r, c in cells]
        found.append(" ".join([_steps("u", "d", down) or "here", *shown]))
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
