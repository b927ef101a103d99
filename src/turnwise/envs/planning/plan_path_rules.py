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


@lru_cache(maxsize=32)
def beside(cells: int, columns: int) -> tuple[dict[str, int], ...]:
    """Return for each cell of a board the cells beside it, by direction."""
    found = []
    for cell in range(cells):
        row, column = divmod(cell, columns)
        near = {move: (row + down, column + right) for move, (down, right) in STEPS.items()}
        found.append(
            {
                move: r * columns + c
                for move, (r, c) in near.items()
                if 0 <= r < cells // columns and 0 <= c < columns
            }
        )
    return tuple(found)


def apply(position: Position, move: str) -> Position | None:
    """Return the position after a step; None into a wall, off the board, or for other texts."""
    board, columns, at, goal = position
    cell = beside(len(board), columns)[at].get(move)
    if cell is None or board[cell] == WALL:
        return None
    return Position(board, columns, cell, goal)


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
