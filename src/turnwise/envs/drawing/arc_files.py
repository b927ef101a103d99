"""Tasks of ARC-AGI in their JSON format.

Provides `read_task`. Files are read up to a size, and checked cell by cell.
"""

from __future__ import annotations

import json
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
            "pairs": [_grids(pair) for pair in train],
            "tests": [_grids(pair) for pair in tests if "output" in pair],
            "asked": [_rows(pair["input"]) for pair in tests if "output" not in pair],
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


def _pairs(pairs: Any, name: str) -> list[dict[str, Any]]:
    """Return the pairs of a task, whose grids are not checked yet."""
    if not isinstance(pairs, list) or not all(isinstance(pair, dict) for pair in pairs):
        raise ValueError(f"{name} is no list of objects")
    return pairs


def _grids(pair: dict[str, Any]) -> list[list[str]]:
    """Return the input and the output of a pair."""
    return [_rows(pair["input"]), _rows(pair["output"])]


def _rows(grid: Any) -> list[str]:
    """Return the rows of a grid as texts of digits."""
    if not isinstance(grid, list) or not 1 <= len(grid) <= LARGEST_SIDE:
        raise ValueError(f"a grid is no list of 1 to {LARGEST_SIDE} rows")
    widths = {len(row) if isinstance(row, list) else 0 for row in grid}
    if len(widths) > 1 or not 1 <= min(widths) <= LARGEST_SIDE:
        raise ValueError(f"the rows of a grid are no lists of equally many, 1 to {LARGEST_SIDE}")
    if not all(type(cell) is int and 0 <= cell <= 9 for row in grid for cell in row):
        raise ValueError("a cell is no whole number from 0 to 9")
    return ["".join(map(str, row)) for row in grid]
