"""Levels of Sokoban: drawn by playing backwards, written as text, compared up to symmetry.

Provides `draw_level`, `level_of`, `rows_of` and `canonical_level`. Texts have the usual signs: `#`
wall, ` ` floor, `.` goal, `$` box, `*` box on a goal, `@` player, `+` player on a goal.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence

import numpy as np

from turnwise.envs.planning.sokoban_rules import WALL, Position, offsets
from turnwise.envs.planning.sokoban_solver import walks
from turnwise.envs.planning.squares import symmetries
from turnwise.errors import DataError

SIGNS = {" ": (), ".": ("goal",), "$": ("box",), "*": ("box", "goal"), "@": ("player",)}
SIGNS = SIGNS | {"+": ("player", "goal"), WALL: ("wall",)}


def draw_level(
    rng: np.random.Generator, size: int, boxes: int, walls: float, pulls: int
) -> Position | None:
    """Return the position after random pulls of boxes from their goals, or None if there is none.

    Args:
        rng: draws everything.
        size: the rows and columns, the outer wall included.
        boxes: the number of boxes.
        walls: the probability that an inner cell is a wall.
        pulls: the number of pulls.
    """
    drawn = (rng.random((size, size)) < walls).tolist()
    last = size - 1
    board = "".join(
        WALL if drawn[row][column] or row in (0, last) or column in (0, last) else "."
        for row in range(size)
        for column in range(size)
    )
    free = [cell for cell, sign in enumerate(board) if sign != WALL]
    if len(free) <= boxes:
        return None
    places = [free[i] for i in rng.permutation(len(free))[: boxes + 1].tolist()]
    at, goals = places[0], tuple(sorted(places[1:]))
    position = Position(board, size, at, goals, goals)
    for draw in rng.random(pulls).tolist():
        found = _pulls(position)
        if not found:
            break
        at, now = found[int(draw * len(found))]
        position = position._replace(at=at, boxes=now)
    reached = sorted(walks(board, size, position.at, position.boxes))
    return position._replace(at=reached[rng.integers(len(reached))])


def _pulls(position: Position) -> list[tuple[int, tuple[int, ...]]]:
    """Return the player's cell and the boxes after each pull that is possible."""
    board, columns, at, boxes, _ = position
    lengths = walks(board, columns, at, boxes)
    found = []
    for box in boxes:
        for step in offsets(columns).values():
            near, player = box + step, box + 2 * step
            if near in lengths and board[player] != WALL and player not in boxes:
                moved = tuple(sorted(near if each == box else each for each in boxes))
                found.append((player, moved))
    return found


def rows_of(position: Position) -> list[str]:
    """Return a position as text."""
    text, columns = _text(position), position.columns
    return [text[i : i + columns] for i in range(0, len(text), columns)]


def level_of(rows: Sequence[str]) -> Position:
    r"""Return the position that a text shows.

    Raises:
        DataError: if it is no square with an outer wall, a player, and as many goals as boxes.

    Example:
        >>> level_of(["#####", "#@$.#", "#####", "#####", "#####"]).boxes
        (7,)
    """
    size, text = len(rows), "".join(rows)
    if size < 3 or any(len(row) != size for row in rows) or not set(text) <= set(SIGNS):
        raise DataError(f"rows {list(rows)!r:.60}: give a square of {' '.join(SIGNS)!r}")
    cells: Mapping[str, list[int]] = {
        what: [cell for cell, sign in enumerate(text) if what in SIGNS[sign]]
        for what in ("wall", "goal", "box", "player")
    }
    columns = ["".join(column) for column in zip(*rows, strict=True)]
    if any(set(line) != {WALL} for line in (rows[0], rows[-1], columns[0], columns[-1])):
        raise DataError("a level has an outer wall: put # around it")
    if len(cells["player"]) != 1 or not cells["box"] or len(cells["box"]) != len(cells["goal"]):
        raise DataError("a level has one player, a box, and as many goals as boxes: give them")
    board = "".join(WALL if sign == WALL else "." for sign in text)
    boxes, goals = tuple(cells["box"]), tuple(cells["goal"])
    return Position(board, size, cells["player"][0], boxes, goals)


def canonical_level(position: Position) -> str:
    """Return the least text of a position over the 8 symmetries of the square."""
    text = _text(position)
    return min("".join(text[i] for i in order) for order in symmetries(position.columns))


def _text(position: Position) -> str:
    cells = [" " if sign == "." else sign for sign in position.board]
    for goal in position.goals:
        cells[goal] = "."
    for box in position.boxes:
        cells[box] = "*" if box in position.goals else "$"
    cells[position.at] = "+" if position.at in position.goals else "@"
    return "".join(cells)
