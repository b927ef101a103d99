"""Tasks of ARC-AGI in their JSON format.

Provides `read_task`. Files are read up to a size, and checked cell by cell.
"""

from __future__ import annotations

import json
from dataclasses import dataclass
from pathlib import Path
from typing import Any

from turnwise.envs.drawing.primitives import LARGEST_SIDE
from turnwise.errors import ConfigError

LARGEST_FILE = 1_000_000
"""The most bytes of a file."""


def read_task(path: Path) -> dict[str, Any]:
    """Return the pairs of a task: `pairs` to train on, and `tests`, each as rows of digits.

    Of test pairs without an output `asked` holds the inputs. A file may lack test pairs.

    Raises:
        ConfigError: if the file is no such task.
    """
    try:
        if path.exists() and not path.is_file():  # opening a pipe would wait for its writer
            raise ValueError("it is no regular file")
        with path.open("rb") as file:
            content = file.read(LARGEST_FILE + 1)
        if len(content) > LARGEST_FILE:
            raise ValueError(f"the file has more than {LARGEST_FILE} bytes")
        data = json.loads(content)
        if not isinstance(data, dict):
            raise ValueError("it is no JSON object")
        if "train" not in data and _holds_tasks(data):
            raise ValueError("it holds many tasks: write one of them into a file of its own")
        train, tests = _pairs(data["train"], "train"), _pairs(data.get("test", []), "test")
        found = {
            "pairs": [pair.both() for pair in train],
            "tests": [pair.both() for pair in tests if "output" in pair.grids],
            "asked": [pair.rows("input") for pair in tests if "output" not in pair.grids],
        }
        if not found["pairs"]:
            raise ValueError("it has no training pairs")
    except KeyError as error:
        raise ConfigError(_message(path, f"{error} is missing")) from None
    except (OSError, ValueError, RecursionError) as error:
        raise ConfigError(_message(path, str(error))) from None
    return found


def _message(path: Path, error: str) -> str:
    return (
        f"path = {str(path)!r}: {error}: expected a task of ARC-AGI, a JSON object with the keys "
        "train and test, lists of pairs with the grids input and output"
    )


def _holds_tasks(data: dict[str, Any]) -> bool:
    """Whether an object has tasks by their ids."""
    return any(isinstance(each, dict) and "train" in each for each in data.values())


def _pairs(pairs: Any, name: str) -> list[_Pair]:
    """Return the pairs of a task, whose grids are not checked yet."""
    if not isinstance(pairs, list) or not all(isinstance(pair, dict) for pair in pairs):
        raise ValueError(f"{name} is no list of objects")
    return [_Pair(f"{name} pair {at}", pair) for at, pair in enumerate(pairs, start=1)]


@dataclass(frozen=True, slots=True)
class _Pair:
    """The grids of a pair, not checked yet, and its name for errors."""

    name: str
    grids: dict[str, Any]

    def both(self) -> list[list[str]]:
        """Return the input and the output."""
        return [self.rows("input"), self.rows("output")]

    def rows(self, key: str) -> list[str]:
        """Return the rows of a grid as texts of digits."""
        if key not in self.grids:
            raise ValueError(f"{self.name}: {key!r} is missing")
        return _rows(self.grids[key], f"{self.name}: {key}")


def _rows(grid: Any, name: str) -> list[str]:
    """Return the rows of a grid as texts of digits."""
    if not isinstance(grid, list) or not 1 <= len(grid) <= LARGEST_SIDE:
        raise ValueError(f"{name} is no list of 1 to {LARGEST_SIDE} rows")
    for at, row in enumerate(grid, start=1):
        if not isinstance(row, list) or not 1 <= len(row) <= LARGEST_SIDE:
            raise ValueError(f"{name}: row {at} is no list of 1 to {LARGEST_SIDE} cells")
        if len(row) != len(grid[0]):
            raise ValueError(
                f"{name}: row {at} has another number of cells ({len(row)}) than row 1 "
                f"({len(grid[0])})"
            )
        for cell in row:
            if type(cell) is not int or not 0 <= cell <= 9:
                raise ValueError(
                    f"{name}: row {at} has the cell {cell!r:.40}, which is no whole number from 0 "
                    "to 9"
                )
    return ["".join(map(str, row)) for row in grid]
