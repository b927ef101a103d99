"""Random drawings: a grid of one colour, a few random calls, and what they make of it.

Provides `random_drawing`. The distribution is that of github.com/ironbar/arc25
(`DrawingTaskOnEmptyImg`): sides from 3 to 10, and 1 to 5 calls of five primitives with uniform
arguments. A program that changes nothing is drawn again, up to twice on the same grid. Then calls
without effect are dropped.

As published, both kinds of diagonal lines go down to the right, and those of the second kind may
begin or end outside of the grid.
"""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass

import numpy as np

from turnwise.envs.drawing.interpreter import DrawingProgram, Grid, execute, parse_program, pruned
from turnwise.envs.drawing.text import Spacing, call_text, program_text

SIDES, DRAWS, ATTEMPTS = (3, 10), (1, 5), 3
Point = tuple[int, int]


@dataclass(frozen=True, slots=True)
class Drawing:
    """A grid, a program, and the grid that the program makes of it."""

    given: Grid
    program: DrawingProgram
    made: Grid


def random_drawing(
    rng: np.random.Generator,
    sides: tuple[int, int] = SIDES,
    draws: tuple[int, int] = DRAWS,
    spacing: Spacing = "spaced",
) -> Drawing:
    """Draw a random grid of one colour and a random program that changes it.

    Args:
        rng: draws everything.
        sides: the fewest and the most rows, and columns.
        draws: the fewest and the most calls, before those without effect are dropped.
        spacing: of the program's text.

    Example:
        >>> drawing = random_drawing(np.random.default_rng(0), sides=(3, 3), draws=(1, 1))
        >>> drawing.given, drawing.program.text, drawing.made
        (('888', '888', '888'), 'draw_vertical_line(img, 1, 2)', ('828', '828', '828'))
    """
    while True:
        rows, columns = rng.integers(sides[0], sides[1] + 1, 2).tolist()
        given = (str(rng.integers(10)) * columns,) * rows
        for _ in range(ATTEMPTS):
            program = random_program(rng, (rows, columns), draws, spacing)
            made = execute(program, given)
            if made != given:
                return Drawing(given, pruned(program, [given]), made)


def random_program(
    rng: np.random.Generator,
    shape: tuple[int, int],
    draws: tuple[int, int] = DRAWS,
    spacing: Spacing = "spaced",
) -> DrawingProgram:
    """Draw a program of random calls for grids of a shape."""
    count = int(rng.integers(draws[0], draws[1] + 1))
    calls = [random_call(rng, shape, spacing) for _ in range(count)]
    return parse_program(program_text(calls, spacing))


def random_call(
    rng: np.random.Generator, shape: tuple[int, int], spacing: Spacing = "spaced"
) -> str:
    """Draw one call of a primitive with uniform arguments.

    A grid of one row or column has no lines and rectangles of at least two points each way.
    """
    names = [name for name in _ARGUMENTS if min(shape) > 1 or name not in OF_TWO]
    name = names[rng.integers(len(names))]
    arguments = _ARGUMENTS[name](rng, *shape) | {"color": int(rng.integers(10))}
    return call_text(name, arguments, spacing)


def _line(rng: np.random.Generator, rows: int, columns: int) -> dict[str, Point | int]:
    """Draw a horizontal, vertical or diagonal line of at least two points."""
    row, column = point = _point(rng, rows, columns)
    kinds = ["horizontal", "vertical", "decreasing", "increasing"]
    kind = kinds[rng.integers(4)]
    if (kind == "increasing" and point == (0, 0)) or point == (rows - 1, columns - 1):
        kind = kinds[rng.integers(3)]
    elif (kind == "decreasing" and point == (0, columns - 1)) or point == (rows - 1, 0):
        kind = ["horizontal", "vertical", "increasing"][rng.integers(3)]
    down, right = {
        "horizontal": (0, 1),
        "vertical": (1, 0),
        "decreasing": (1, 1),
        "increasing": (-1, -1),
    }[kind]
    low, high = {
        "horizontal": (-column, columns - 1 - column),
        "vertical": (-row, rows - 1 - row),
        "decreasing": (-min(row, column), min(rows - 1 - row, columns - 1 - column)),
        "increasing": (-min(rows - 1 - row, column), min(row, columns - 1 - column)),
    }[kind]
    offset = _other_than_zero(rng, low, high)
    points = sorted([(row, column), (row + down * offset, column + right * offset)])
    return {"point1": points[0], "point2": points[1]}


def _other_than_zero(rng: np.random.Generator, low: int, high: int) -> int:
    """Draw a whole number from `low` to `high`, but not 0."""
    drawn = int(rng.integers(low, high))
    return drawn + (drawn >= 0)


def _rectangle(rng: np.random.Generator, rows: int, columns: int) -> dict[str, Point | int]:
    """Draw a rectangle of at least two rows and columns."""
    row, column = _point(rng, rows - 1, columns - 1)
    last = (int(rng.integers(row + 1, rows)), int(rng.integers(column + 1, columns)))
    return {"point1": (row, column), "point2": last}


def _point(rng: np.random.Generator, rows: int, columns: int) -> Point:
    return int(rng.integers(rows)), int(rng.integers(columns))


OF_TWO = ("draw_line", "draw_rectangle")
_ARGUMENTS: dict[str, Callable[[np.random.Generator, int, int], dict[str, Point | int]]] = {
    "draw_line": _line,
    "draw_rectangle": _rectangle,
    "draw_horizontal_line": lambda rng, rows, columns: {"y": int(rng.integers(rows))},
    "draw_vertical_line": lambda rng, rows, columns: {"x": int(rng.integers(columns))},
    "draw_pixel": lambda rng, rows, columns: {"point": _point(rng, rows, columns)},
}
"""Primitive -> its random arguments but for the colour, in a grid of some rows and columns."""
