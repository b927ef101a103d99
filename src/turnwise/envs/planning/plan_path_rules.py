"""The rules of `plan-path`: a walk on a board with walls, and the queries of its tool.

The standard library alone is imported: this source also runs in the sandbox.
"""

from __future__ import annotations

from collections.abc import Callable, Mapping
from functools import lru_cache
from typing import NamedTuple

STEPS = {"UP": (-1, 0), "DOWN": (1, 0), "LEFT": (0, -1), "RIGHT": (0, 1)}
MOVES = tuple(STEPS)
WALL = "#"


class Position(NamedTuple):
    """A board of `.` and `#`, row by row, and the numbers of the player's cell and the goal."""

    board: str
    columns: int
    at: int
    goal: int


def moves(position: Position) -> tuple[str, ...]:
    """Return the four directions."""
    return MOVES


def move_length(word: str) -> int:
    """Return 1: a move is one word."""
    return 1


def neighbour(position: Position, move: str) -> int | None:
    """Return the cell beside the player's in a direction; None off the board."""
    down, right = STEPS[move]
    row, column = divmod(position.at, position.columns)
    row, column = row + down, column + right
    cell = row * position.columns + column
    if column < 0 or column >= position.columns or row < 0 or cell >= len(position.board):
        return None
    return cell


def apply(position: Position, move: str) -> Position | None:
    """Return the position after a step; None into a wall, off the board, or for other texts."""
    cell = neighbour(position, move) if move in STEPS else None
    if cell is None or position.board[cell] == WALL:
        return None
    return Position(position.board, position.columns, cell, position.goal)


def solved(position: Position) -> bool:
    """Return whether the player is at the goal."""
    return position.at == position.goal


def name(position: Position, cell: int) -> str:
    """Return a cell's name, as in `r1c2`."""
    row, column = divmod(cell, position.columns)
    return f"r{row}c{column}"


@lru_cache(maxsize=32)
def cell_numbers(cells: int, columns: int) -> dict[str, int]:
    """Return the number of each cell by its name."""
    return {f"r{cell // columns}c{cell % columns}": cell for cell in range(cells)}


def walk_length(position: Position, cell: int) -> int:
    """Return the number of steps from the player to a cell without walls."""
    row, column = divmod(position.at, position.columns)
    to_row, to_column = divmod(cell, position.columns)
    return abs(row - to_row) + abs(column - to_column)


def report(position: Position) -> str:
    """Return the player's cell, and its distance to the goal without walls."""
    return f"{name(position, position.at)} distance {walk_length(position, position.goal)}"


def distance(position: Position, words: list[str]) -> str:
    """Return the distance from the player to the cell that one word names, without walls.

    Raises:
        ValueError: if the words do not name one cell of the board.
    """
    cells = cell_numbers(len(position.board), position.columns)
    if len(words) != 1 or words[0] not in cells:
        raise ValueError("give one cell, as in r1c2")
    return f"{words[0]} distance {walk_length(position, cells[words[0]])}"


QUERIES: Mapping[str, Callable[[Position, list[str]], str]] = {"distance": distance}
