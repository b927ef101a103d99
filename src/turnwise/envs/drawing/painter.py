"""A program for any target, row by row.

Provides `painted`.
"""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from itertools import groupby

from turnwise.envs.drawing.text import Arguments, Spacing, call_text, program_text


def painted(given: Sequence[str], target: Sequence[str], spacing: Spacing = "spaced") -> str:
    """Return a program that turns `given` into `target`, with one call for each run of a row.

    Where there is nothing to paint, it sets the first cell to what it is.

    Example:
        >>> print(painted(("00", "00", "00"), ("11", "12", "00"), "compact"))
        def task(img):
            draw_horizontal_line(img, y=0, color=1)
            draw_pixel(img, point=(1, 0), color=1)
            draw_pixel(img, point=(1, 1), color=2)
            return img
    """
    shape = (len(target), len(target[0]))
    calls: list[str] = []
    if (len(given), len(given[0])) != shape:
        given = ("0" * shape[1],) * shape[0]
        calls.append(new_grid(shape, spacing))
    for row, (before, after) in enumerate(zip(given, target, strict=True)):
        calls += [call_text(name, found, spacing) for name, found in _runs(row, before, after)]
    if not calls:
        calls = [call_text("draw_pixel", {"point": (0, 0), "color": int(target[0][0])}, spacing)]
    return program_text(calls, spacing)


def new_grid(shape: tuple[int, int], spacing: Spacing) -> str:
    """Return the statement that begins an empty grid.

    Example:
        >>> new_grid((2, 3), "spaced"), new_grid((2, 3), "compact")
        ('img = create_img((2, 3), 0)', 'img = create_img(shape=(2, 3), color=0)')
    """
    if spacing == "compact":
        return f"img = create_img(shape={shape}, color=0)"
    return f"img = create_img({shape}, 0)"


def _runs(row: int, before: str, after: str) -> Iterator[tuple[str, Arguments]]:
    """Yield a call for each run of cells of one colour that is to change."""
    if len(set(after)) == 1:
        if before != after:
            yield "draw_horizontal_line", {"y": row, "color": int(after[0])}
        return
    cells = list(zip(range(len(after)), before, after, strict=True))
    for (color, right), run in groupby(cells, lambda cell: (cell[2], cell[1] == cell[2])):
        places = [place for place, *_ in run]
        if right:
            continue
        if len(places) == 1:
            yield "draw_pixel", {"point": (row, places[0]), "color": int(color)}
        else:
            ends = {"point1": (row, places[0]), "point2": (row, places[-1])}
            yield "draw_line", {**ends, "color": int(color)}
