"""Drawing programs as Python, in the sandbox.

Provides `run_python`. Programs may then use all of Python. The source of the primitives stands
before the program, so that both ways of running it draw alike.
"""

from __future__ import annotations

import inspect
import re
from collections.abc import Sequence
from typing import Any

from turnwise.envs.drawing import primitives
from turnwise.envs.drawing.interpreter import Grid, ProgramFailure
from turnwise.sandbox import Limits, run

LIMITS = Limits(cpu=1.0, wall=10.0)
_SOURCE = inspect.getsource(primitives)
_FUNCTION = re.compile(r"^def task\(", re.MULTILINE)
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
    if not _FUNCTION.search(text):
        body = "\n".join(f"    {line}" for line in text.splitlines())
        text = f"def task(img):\n{body}\n    return img"
    result = run(f"{_SOURCE}\n\n{text}{_CALL}", [list(grids)], limits, call="draw_all")
    if result.failure is not None:
        raise ProgramFailure(result.failure, max(0, result.line - _SOURCE.count("\n") - 2))
    if not isinstance(result.value, list) or len(result.value) != len(grids):
        raise ProgramFailure("result")
    return tuple(_grid(made) for made in result.value)


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
