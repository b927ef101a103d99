"""The rows of results in a file, one JSON object a line, and the commit that they are of.

Provides `kept_rows`, `add_row` and `commit`.
"""

from __future__ import annotations

import json
import subprocess
from contextlib import suppress
from pathlib import Path
from typing import Any


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
