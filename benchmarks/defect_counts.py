"""How often the functions that defects replace were called, in a file beside a run.

Provides `read_counts`, `CountFile`, which adds to such a file, and `unused`. Imports no turnwise.
"""

from __future__ import annotations

import json
import time
from collections.abc import Mapping, Sequence
from pathlib import Path

Counts = Mapping[str, Mapping[str, int]]
"""Name -> `calls`, and `differed`: the calls whose result differed from the original's."""
NONE = {"calls": 0, "differed": 0}
SECONDS = 5.0
"""How often counts are written while a command runs, so that a kill loses few."""
UNUSED = (
    "the function that {name!r} replaces was called {calls} times, and its result differed from "
    "the original's {differed} times: the defect was not in this run; expected both above 0"
)


def read_counts(file: Path) -> dict[str, dict[str, int]]:
    """Return the counts of a file, none where there is no file."""
    return json.loads(file.read_text()) if file.is_file() else {}


def unused(counts: Counts, names: Sequence[str]) -> list[str]:
    """Return a sentence for each name whose function was not called or made no difference."""
    found = {name: counts.get(name, NONE) for name in names}
    return [UNUSED.format(name=n, **each) for n, each in found.items() if not each["differed"]]


class CountFile:
    """Writes the counts of a process to a file, added to those that the file held before."""

    def __init__(self, file: Path) -> None:
        self._file, self._before = file, read_counts(file)
        self._due = time.monotonic() + SECONDS

    def write_when_due(self, counts: Counts) -> None:
        """Write the counts so far, if they were not written lately."""
        if time.monotonic() > self._due:
            self.write(counts)

    def write(self, counts: Counts) -> None:
        """Write the counts so far."""
        total = dict(self._before)
        for name, own in counts.items():
            before = self._before.get(name, NONE)
            total[name] = {key: before[key] + own[key] for key in NONE}
        part = self._file.with_suffix(".part")
        part.write_text(json.dumps(total))
        part.replace(self._file)
        self._due = time.monotonic() + SECONDS
