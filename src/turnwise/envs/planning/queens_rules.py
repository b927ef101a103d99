"""The rules of `n-queens`: queens on a board that must not attack each other, and queries.

The standard library alone is imported: this source also runs in the sandbox.
"""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from functools import lru_cache
from typing import NamedTuple

NONE = "."


class Position(NamedTuple):
    """For each row the column of its queen, a digit, or `.` where it has none."""

    rows: str


@lru_cache(maxsize=16)
def cells(size: int) -> tuple[str, ...]:
    """Return the names of all cells, row by row."""
    return tuple(f"r{row}c{column}" for row in range(size) for column in range(size))


def moves(position: Position) -> Sequence[str]:
    """Return all cells."""
    return cells(len(position.rows))


def move_length(word: str) -> int:
    """Return 1: a move is the name of a cell."""
    return 1


def queens(rows: str) -> list[tuple[int, int]]:
    """Return the row and the column of every queen.

    Example:
        >>> queens(".30.")
        [(1, 3), (2, 0)]
    """
    return [(row, int(column)) for row, column in enumerate(rows) if column != NONE]


def attacks(row: int, column: int, other_row: int, other_column: int) -> bool:
    """Whether a queen on one cell attacks the other cell; no queen stands in between."""
    down, right = other_row - row, other_column - column
    return not down or not right or abs(down) == abs(right)


def free_columns(rows: str, row: int) -> list[int]:
    """Return the columns of a row that no queen attacks.

    Example:
        >>> free_columns("1...", 2), free_columns("1...", 0)
        ([0, 2], [])
    """
    taken = queens(rows)
    return [
        column
        for column in range(len(rows))
        if not any(attacks(row, column, *queen) for queen in taken)
    ]


def apply(position: Position, move: str) -> Position | None:
    """Return the position with a queen more; None on an attacked cell, and for other texts.

    Example:
        >>> apply(Position("1..."), "r1c3"), apply(Position("1..."), "r1c2")
        (Position(rows='13..'), None)
    """
    rows = position.rows
    names = cells(len(rows))
    if move not in names:
        return None
    row, column = divmod(names.index(move), len(rows))
    if any(attacks(row, column, *queen) for queen in queens(rows)):
        return None
    return Position(f"{rows[:row]}{column}{rows[row + 1 :]}")


def solved(position: Position) -> bool:
    """Whether every row has a queen; moves place none that is attacked."""
    return NONE not in position.rows


def report(position: Position) -> str:
    """Return how many rows have no queen, and how many of these have no free cell."""
    empty = [row for row, column in enumerate(position.rows) if column == NONE]
    blocked = sum(not free_columns(position.rows, row) for row in empty)
    return f"missing {len(empty)} blocked {blocked}"


def attacked(position: Position, words: list[str]) -> str:
    """Answer which cells of a row a queen attacks or stands on."""
    row = _row(position, words)
    free = free_columns(position.rows, row)
    return " ".join(f"r{row}c{c}" for c in range(len(position.rows)) if c not in free) or "none"


def free(position: Position, words: list[str]) -> str:
    """Answer how many cells of a row no queen attacks."""
    row = _row(position, words)
    return f"r{row} free {len(free_columns(position.rows, row))}"


QUERIES: Mapping[str, Callable[[Position, list[str]], str]] = {"attacked": attacked, "free": free}


def _row(position: Position, words: list[str]) -> int:
    names = {f"r{row}": row for row in range(len(position.rows))}
    if len(words) != 1 or words[0] not in names:
        raise ValueError(f"give one row, from r0 to r{len(names) - 1}")
    return names[words[0]]
