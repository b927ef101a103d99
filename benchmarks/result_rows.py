"""The rows of results in a file, one JSON object a line, their commit, and intervals over seeds.

Provides `kept_rows`, `add_row`, `commit` and `half_interval`.
"""

from __future__ import annotations

import json
import subprocess
from collections.abc import Sequence
from contextlib import suppress
from math import sqrt
from pathlib import Path
from statistics import stdev
from typing import Any

STUDENT = (12.706, 4.303, 3.182, 2.776, 2.571, 2.447, 2.365, 2.306, 2.262)
"""97.5th percentile of Student's t for 2 to 10 seeds."""


def kept_rows(file: Path) -> list[dict[str, Any]]:
    """Return the rows of a file; what a kill cut off is left out."""
    rows: list[dict[str, Any]] = []
    for line in file.read_text().splitlines() if file.is_file() else ():
        with suppress(json.JSONDecodeError):
            rows.append(json.loads(line))
    return rows


def add_row(file: Path, row: dict[str, Any]) -> None:
    """Append a row to a file, on a new line also where a kill has cut the last one off."""
    is_cut = file.is_file() and file.read_bytes()[-1:] not in (b"", b"\n")
    with file.open("a") as out:
        out.write("\n" * is_cut + json.dumps(row) + "\n")


def commit() -> str:
    """Return the commit of this checkout, marked where files differ from it."""
    asked = ["git", "-C", str(Path(__file__).parent), "describe", "--always", "--dirty"]
    return subprocess.run(asked, capture_output=True, text=True, check=False).stdout.strip()


def half_interval(values: Sequence[float]) -> float:
    """Return half of the 95 % interval of the mean of two values or more.

    With more than 10 values the quantile is that of 10, which is a little too large.
    """
    return STUDENT[: len(values) - 1][-1] * stdev(values) / sqrt(len(values))
