"""The rules of `sokoban`: boxes are pushed onto goals; and the queries of its tool.

The standard library alone is imported: this source also runs in the sandbox.
"""

from __future__ import annotations

from collections.abc import Callable, Mapping
from functools import lru_cache
from itertools import permutations
from math import inf
from typing import NamedTuple

MOVES = ("UP", "DOWN", "LEFT", "RIGHT")
WALL = "#"


class Position(NamedTuple):
    """A board of `.` and `#` with an outer wall, row by row, and numbers of cells.

    `at` is the player's cell; `boxes` and `goals` are in ascending order.
    """

    board: str
    columns: int
    at: int
    boxes: tuple[int, ...]
    goals: tuple[int, ...]


def moves(position: Position) -> tuple[str, ...]:
    """Return the four directions."""
    return MOVES


def move_length(word: str) -> int:
    """Return 1: a move is one word."""
    return 1


@lru_cache(maxsize=32)
def offsets(columns: int) -> dict[str, int]:
    """Return what a step in each direction adds to the number of a cell."""
    return {"UP": -columns, "DOWN": columns, "LEFT": -1, "RIGHT": 1}


def apply(position: Position, move: str) -> Position | None:
    """Return the position after a step, which pushes a box that is in the way.

    None where a wall is in the way, or another box is behind the box, and for other texts.
    """
    board, columns, at, boxes, goals = position
    offset = offsets(columns).get(move)
    if offset is None or board[at + offset] == WALL:
        return None
    cell = at + offset
    if cell in boxes:
        behind = cell + offset
        if board[behind] == WALL or behind in boxes:
            return None
        boxes = tuple(sorted(behind if box == cell else box for box in boxes))
    return Position(board, columns, cell, boxes, goals)


def solved(position: Position) -> bool:
    """Return whether every box is on a goal."""
    return position.boxes == position.goals


def name(position: Position, cell: int) -> str:
    """Return a cell's name, as in `r1c2`."""
    row, column = divmod(cell, position.columns)
    return f"r{row}c{column}"


def walk_length(columns: int, cell: int, other: int) -> int:
    """Return the number of steps between two cells without walls."""
    row, column = divmod(cell, columns)
    to_row, to_column = divmod(other, columns)
    return abs(row - to_row) + abs(column - to_column)


@lru_cache(maxsize=4096)
def push_lengths(board: str, columns: int, goal: int) -> dict[int, int]:
    """Return the fewest pushes that bring a box from each cell to a goal, if it were alone.

    The player is taken to reach every cell. Cells from which no pushes lead there are left out.
    """
    lengths, waiting = {goal: 0}, [goal]
    for cell in waiting:  # it grows
        for offset in offsets(columns).values():
            box, player = cell - offset, cell - 2 * offset
            if board[box] == WALL or box in lengths or board[player] == WALL:
                continue
            lengths[box] = lengths[cell] + 1
            waiting.append(box)
    return lengths


@lru_cache(maxsize=65536)
def pushes_left(board: str, columns: int, boxes: tuple[int, ...], goals: tuple[int, ...]) -> float:
    """Return the fewest pushes that bring each box to a goal of its own, if it were alone.

    Infinite where no assignment of goals is possible.
    """
    tables = [push_lengths(board, columns, goal) for goal in goals]
    best = inf
    for order in permutations(boxes):
        total = 0.0
        for box, table in zip(order, tables, strict=True):
            total += table.get(box, inf)
        best = min(best, total)
    return best


def frozen(position: Position, box: int, as_walls: frozenset[int] = frozenset()) -> bool:
    """Return whether a box can never be moved again.

    Along an axis a box is blocked by a wall on one side, or by a box that is itself frozen.

    Args:
        position: where the boxes are.
        box: the cell of the box.
        as_walls: boxes that count as walls, because they are blocked if `box` is.
    """
    fixed = as_walls | {box}
    for offset in (1, position.columns):
        sides = (box - offset, box + offset)
        if any(position.board[side] == WALL or side in as_walls for side in sides):
            continue
        if not any(side in position.boxes and frozen(position, side, fixed) for side in sides):
            return False
    return True


def deadlock(position: Position) -> bool:
    """Return whether the position is known to be unsolvable.

    It is where the boxes cannot be assigned to goals that each would reach alone, or where a box
    off the goals is frozen. Other deadlocks are not found.
    """
    board, columns, _, boxes, goals = position
    if pushes_left(board, columns, boxes, goals) == inf:
        return True
    return any(box not in goals and frozen(position, box) for box in boxes)


def report(position: Position) -> str:
    """Return the player's cell, the boxes, and how many of them are on goals."""
    boxes = " ".join(name(position, box) for box in position.boxes)
    count = sum(box in position.goals for box in position.boxes)
    return f"{name(position, position.at)} boxes {boxes} on {count}"


@lru_cache(maxsize=32)
def cell_numbers(cells: int, columns: int) -> dict[str, int]:
    """Return the number of each cell by its name."""
    return {f"r{cell // columns}c{cell % columns}": cell for cell in range(cells)}


def ask_distance(position: Position, words: list[str]) -> str:
    """Return the number of steps from the player to the cell that one word names, without walls.

    Raises:
        ValueError: if the words do not name one cell of the board.
    """
    cells = cell_numbers(len(position.board), position.columns)
    if len(words) != 1 or words[0] not in cells:
        raise ValueError("give one cell, as in r1c2")
    length = walk_length(position.columns, position.at, cells[words[0]])
    return f"{words[0]} distance {length}"


def ask_deadlock(position: Position, words: list[str]) -> str:
    """Return whether the position after moves is a known deadlock; without words the current one.

    Raises:
        ValueError: if a word is no move, or there are more than 16.
    """
    if len(words) > 16 or not set(words) <= set(MOVES):
        raise ValueError("give at most 16 moves")
    for word in words:
        position = apply(position, word) or position
    return "dead" if deadlock(position) else "alive"


QUERIES: Mapping[str, Callable[[Position, list[str]], str]] = {
    "distance": ask_distance,
    "deadlock": ask_deadlock,
}
