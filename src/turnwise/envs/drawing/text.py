"""Grids and programs as text, for models with few tokens and for others.

Provides `grid_text`, `call_text` and `program_text`. With `spaced`, every colour of a grid and
every number of a program, with the marks beside it, is a word of its own, so that each digit is one
token of a model made on the spot; and a program is its calls alone. With `compact` texts are as in
github.com/ironbar/arc25.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from typing import Literal, TypeAlias

Spacing: TypeAlias = Literal["spaced", "compact"]
Arguments: TypeAlias = Mapping[str, "int | tuple[int, int]"]


def grid_text(grid: Sequence[str], spacing: Spacing = "spaced") -> str:
    r"""Return a grid with its shape, one line for each row, with its number in front.

    A grid of one colour is one line, if spaced.

    Example:
        >>> print(grid_text(("012", "345")))
        2 x 3
        0 0 1 2
        1 3 4 5
        >>> grid_text(("00", "00"))
        '2 x 2 of 0'
        >>> print(grid_text(("00", "01"), "compact"))
        ```grid shape: 2x2
        0 00
        1 01
        ```
    """
    rows, columns = len(grid), len(grid[0])
    if spacing == "compact":
        lines = [f"{number} {row}" for number, row in enumerate(grid)]
        return "\n".join([f"```grid shape: {rows}x{columns}", *lines, "```"])
    shape = f"{rows} x {columns}"
    if len(set("".join(grid))) == 1:
        return f"{shape} of {grid[0][0]}"
    lines = [" ".join([str(number), *row]) for number, row in enumerate(grid)]
    return "\n".join([shape, *lines])


def call_text(name: str, arguments: Arguments, spacing: Spacing = "spaced") -> str:
    """Return a call of a primitive on `img`.

    Example:
        >>> call_text("draw_pixel", {"point": (0, 12), "color": 3})
        'draw_pixel(img, (0, 12), 3)'
        >>> call_text("draw_pixel", {"point": (0, 12), "color": 3}, "compact")
        'draw_pixel(img, point=(0, 12), color=3)'
    """
    if spacing == "compact":
        named = ", ".join(f"{key}={value}" for key, value in arguments.items())
        return f"{name}(img, {named})"
    return f"{name}(img, {', '.join(map(str, arguments.values()))})"


def program_text(calls: Sequence[str], spacing: Spacing = "spaced") -> str:
    r"""Return the program of some calls: the calls alone, or the function of them.

    Example:
        >>> program_text(["draw_pixel(img, (0, 0), 1)"], "compact")
        'def task(img):\n    draw_pixel(img, (0, 0), 1)\n    return img'
    """
    if spacing == "spaced":
        return "\n".join(calls)
    return "\n".join(["def task(img):", *(f"    {call}" for call in calls), "    return img"])
