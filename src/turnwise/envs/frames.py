"""Pictures of states for people: rows of coloured cells with a text below.

Provides `Cell` and `Frame`, which `Env.frame` returns. `turnwise play` shows them in the terminal
one after another, and `turnwise render` writes them to a file.
"""

from __future__ import annotations

from dataclasses import dataclass
from typing import Any, NamedTuple

Rgb = tuple[int, int, int]
BLACK: Rgb = (0, 0, 0)
WHITE: Rgb = (255, 255, 255)


class Cell(NamedTuple):
    """One cell: at most one character, its colour, and the colour behind it (red, green, blue)."""

    text: str = ""
    colour: Rgb = BLACK
    behind: Rgb = WHITE


@dataclass(frozen=True, kw_only=True, slots=True)
class Frame:
    """A picture: the rows of its cells, all of one length, and a line of text.

    Example:
        >>> Frame(cells=((Cell("N"), Cell()),), caption="tick 3").size
        (1, 2)
    """

    cells: tuple[tuple[Cell, ...], ...]
    caption: str

    @property
    def size(self) -> tuple[int, int]:
        """The numbers of rows and columns."""
        return len(self.cells), len(self.cells[0])


def is_drawable(found: Any) -> bool:
    """Return whether a value is a frame with cells, in rows of one length, and text.

    Example:
        >>> is_drawable(Frame(cells=((Cell("N"),),), caption="")), is_drawable("a picture")
        (True, False)
        >>> is_drawable(Frame(cells=((Cell(),), (Cell(), Cell())), caption="two lengths"))
        False
    """
    if not isinstance(found, Frame) or not isinstance(found.caption, str):
        return False
    if not isinstance(found.cells, tuple) or not found.cells:
        return False
    rows = [len(row) if isinstance(row, tuple) else 0 for row in found.cells]
    return min(rows) == max(rows) > 0 and all(
        isinstance(cell, Cell) and isinstance(cell.text, str) for row in found.cells for cell in row
    )


def mixed(colours: list[tuple[Rgb, float]], ground: Rgb = WHITE) -> Rgb:
    """Return the colour of a ground on which colours lie, each with its strength from 0 to 1.

    Example:
        >>> mixed([((0, 0, 0), 0.5)])
        (128, 128, 128)
    """
    red, green, blue = ground
    for (r, g, b), strength in colours:
        red += (r - red) * strength
        green += (g - green) * strength
        blue += (b - blue) * strength
    return round(red), round(green), round(blue)
