r"""The private notes of an ant: what a note may hold, and the place that it names.

Provides `is_note` and `noted_cell`.

Example:
    >>> is_note("food x2 y1"), is_note("<|im_end|>")
    (True, False)
"""

from __future__ import annotations

import re
from functools import lru_cache

from turnwise.envs.ant_colony.grid import Grid

MOST_NOTES, LONGEST_NOTE = 5, 48
_NOTE = re.compile(r"[A-Za-z0-9 ,.:;()\[\]+\-=_/?!'@#]+", re.ASCII)
"""What a note may hold: no marks of chat templates, as notes are shown again."""
_PLACE = re.compile(r"\bx(\d{1,2}) y(\d{1,2})\b", re.ASCII)


def is_note(text: str) -> bool:
    """Return whether an ant can note a text."""
    return len(text) <= LONGEST_NOTE and bool(text.strip()) and bool(_NOTE.fullmatch(text))


@lru_cache(maxsize=4096)
def noted_cell(grid: Grid, note: str) -> int | None:
    """Return the cell of the first place on the map that a note names; None where there is none.

    Example:
        >>> grid = Grid.of(["..", "#."])
        >>> noted_cell(grid, "food at x1 y0") == grid.cell(1, 0), noted_cell(grid, "x7 y0")
        (True, None)
    """
    for found in _PLACE.finditer(note):
        x, y = int(found[1]), int(found[2])
        if x < grid.size and y < grid.size:
            return grid.cell(x, y)
    return None
