"""Drawing programs as Python, in the sandbox.

Provides `run_python` and `PythonRunner`, which runs equal programs once. Programs may then use all
of Python. The source of the primitives runs before the program, so that both ways of running it
draw alike.
"""

from __future__ import annotations

import inspect
import re
from collections.abc import Sequence
from functools import lru_cache
from typing import Any

from turnwise.envs.drawing import primitives
from turnwise.envs.drawing.interpreter import END_OF_LINE, Grid, ProgramFailure
from turnwise.sandbox import Limits, run

LIMITS = Limits(cpu=1.0, wall=10.0)
KEPT = 4096
"""The results that a `PythonRunner` keeps, those that were asked for last."""
_SOURCE = inspect.getsource(primitives)
_PRIMITIVES = f"exec(compile({_SOURCE!r}, '<primitives>', 'exec'))"
"""One line that defines the primitives under a file name of their own: errors tell the line of the
program that called them."""
_FUNCTION = re.compile(r"^def[ \t]+task[ \t]*\(", re.MULTILINE)
_CALL = """

def draw_all(grids):
    return [task([[int(cell) for cell in row] for row in grid]) for grid in grids]
"""


def run_python(text: str, grids: Sequence[Grid], limits: Limits = LIMITS) -> tuple[Grid, ...]:
    """Return what a program makes of each grid: its function `task`, or its calls alone, of `img`.

    Raises:
        ProgramFailure: if the program fails, or a result is no grid.
        SandboxError: if the sandbox itself fails.
    """
    written, before = as_function(text)
    result = run(f"{_PRIMITIVES}\n{written}{_CALL}", [list(grids)], limits, call="draw_all")
    if result.failure is not None:
        line, last = result.line - 1 - before, len(END_OF_LINE.split(text))
        if line > last:  # an end that is missing is noticed after the program
            line = last if result.failure == "syntax" else 0
        raise ProgramFailure(result.failure, max(0, line))
    if not isinstance(result.value, list) or len(result.value) != len(grids):
        raise ProgramFailure("result")
    return tuple(_grid(made) for made in result.value)


class PythonRunner:
    """Runs programs as `run_python` does, and keeps results: an equal program is not run again.

    The reward of a batch and hindsight need what a step drew once more. A `SandboxError` is not
    kept.
    """

    def __init__(self) -> None:
        self._outcome = lru_cache(KEPT)(_outcome)

    def run(self, text: str, grids: Sequence[Grid]) -> tuple[Grid, ...]:
        """Return what a program makes of each grid.

        Raises:
            ProgramFailure: if the program fails, or a result is no grid.
            SandboxError: if the sandbox itself fails.
        """
        found = self._outcome(text, tuple(grids))
        if isinstance(found, ProgramFailure):
            raise ProgramFailure(found.failure, found.line)
        return found


def _outcome(text: str, grids: tuple[Grid, ...]) -> tuple[Grid, ...] | ProgramFailure:
    try:
        return run_python(text, grids)
    except ProgramFailure as failure:
        return ProgramFailure(failure.failure, failure.line)  # without the frames that it came by


def as_function(text: str) -> tuple[str, int]:
    r"""Return a program with a function `task`, and how many lines were put before its first one.

    Example:
        >>> as_function("draw_pixel(img, (0, 0), 1)")
        ('def task(img):\n    draw_pixel(img, (0, 0), 1)\n    return img', 1)
    """
    lines = END_OF_LINE.split(text)
    text = "\n".join(lines)
    if _FUNCTION.search(text):
        return text, 0
    return "\n".join(["def task(img):", *(f"    {line}" for line in lines), "    return img"]), 1


def _grid(made: Any) -> Grid:
    """Return a result as a grid; it is whatever the program returned."""
    most = primitives.LARGEST_SIDE
    if not isinstance(made, (list, tuple)) or not 1 <= len(made) <= most:
        raise ProgramFailure("result")
    if not all(isinstance(row, (list, tuple)) and 1 <= len(row) <= most for row in made):
        raise ProgramFailure("result")
    if len({len(row) for row in made}) > 1:
        raise ProgramFailure("result")
    if not all(type(cell) is int and 0 <= cell <= 9 for row in made for cell in row):
        raise ProgramFailure("result")
    return tuple("".join(map(str, row)) for row in made)
