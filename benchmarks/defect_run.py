"""Run the command line of turnwise with replaced functions, and count their calls.

    python benchmarks/defect_run.py one-reward COUNTS.json train plan-path-two-policy --run RUN

The names of `defects.REPLACED` are separated by commas. COUNTS.json gets, for each name, the number
of its calls and of those whose result differed from the original's. Numbers that the file holds are
added to, so that a run that goes on keeps them. The exit code is 1 if a command that succeeded
leaves a number at 0: the defect was then not in the run.
"""

from __future__ import annotations

import json
import runpy
import sys
import time
from collections.abc import Mapping, Sequence
from pathlib import Path

from defects import REPLACED, Count, defective

SECONDS = 5.0
"""How often the counts are written while a command runs, so that a kill loses few."""
UNUSED = (
    "the function that {name!r} replaces was called {calls} times, and its result differed from the "
    "original's {differed} times: the defect was not in this run; expected both above 0"
)


def read_counts(file: Path) -> dict[str, dict[str, int]]:
    """Return the counts of a file by name, none where there is no file."""
    return json.loads(file.read_text()) if file.is_file() else {}


def unused(counts: Mapping[str, Mapping[str, int]], names: Sequence[str]) -> list[str]:
    """Return a sentence for each name whose function was not called or made no difference."""
    none = {"calls": 0, "differed": 0}
    found = {name: counts.get(name, none) for name in names}
    return [UNUSED.format(name=n, **each) for n, each in found.items() if not each["differed"]]


def run(names: Sequence[str], file: Path, words: Sequence[str]) -> int:
    """Run a command of turnwise with defects; return its exit code, 1 if a defect was not used."""
    before = read_counts(file)
    due = time.monotonic() + SECONDS
    counts: Mapping[str, Count] = {}

    def write() -> None:
        known = {n: before.get(n, {"calls": 0, "differed": 0}) for n in names}
        total = {
            n: {
                "calls": known[n]["calls"] + each.calls,
                "differed": known[n]["differed"] + each.differed,
            }
            for n, each in counts.items()
        }
        part = file.with_suffix(".part")
        part.write_text(json.dumps(total))
        part.replace(file)

    def note() -> None:
        nonlocal due
        if time.monotonic() > due:
            due = time.monotonic() + SECONDS
            write()

    argv, code = sys.argv, 0
    with defective(names, note) as counts:
        sys.argv = ["turnwise", *words]
        try:
            runpy.run_module("turnwise", run_name="__main__")
        except SystemExit as ended:
            code = ended.code if isinstance(ended.code, int) else int(ended.code is not None)
        finally:
            sys.argv = argv
            write()
    if code == 0 and (problems := unused(read_counts(file), names)):
        sys.stderr.write("\n".join(problems) + "\n")
        return 1
    return code


def main() -> None:
    """Run the command that the arguments name."""
    if len(sys.argv) < 4 or not set(sys.argv[1].split(",")) <= set(REPLACED):
        known = ", ".join(REPLACED)
        sys.exit(f"usage: defect_run.py NAME[,NAME] COUNTS.json COMMAND ...; names: {known}")
    names, file, *words = sys.argv[1:]
    sys.exit(run(names.split(","), Path(file), words))


if __name__ == "__main__":
    main()
