"""Run the command line of turnwise with replaced functions, and count their calls.

    python benchmarks/defect_run.py one-reward COUNTS.json train plan-path-two-policy --run RUN

The names of `defects.REPLACED` are separated by commas. COUNTS.json gets, for each name, the number
of its calls and of those whose result differed from the original's. Numbers that the file holds are
added to, so that a run that goes on keeps them. The exit code is 1 if a command that succeeded
leaves a number at 0: the defect was then not in the run.
"""

from __future__ import annotations

import runpy
import sys
from collections.abc import Sequence
from pathlib import Path

from defect_counts import CountFile, read_counts, unused
from defects import REPLACED, defective


def run(names: Sequence[str], file: Path, words: Sequence[str]) -> int:
    """Run a command of turnwise with defects; return its exit code, 1 if a defect was not used."""
    kept, argv = CountFile(file), sys.argv
    with defective(names, kept.write_when_due) as counts:
        sys.argv = ["turnwise", *words]
        try:
            runpy.run_module("turnwise", run_name="__main__")
            code = 0
        except SystemExit as ended:
            code = ended.code if isinstance(ended.code, int) else int(ended.code is not None)
        finally:
            sys.argv = argv
            kept.write(counts)
    problems = unused(read_counts(file), names) if code == 0 else []
    if problems:
        sys.stderr.write("\n".join(problems) + "\n")
    return 1 if problems else code


def main() -> None:
    """Run the command that the arguments name."""
    if len(sys.argv) < 4 or not set(sys.argv[1].split(",")) <= set(REPLACED):
        known = ", ".join(REPLACED)
        sys.exit(f"usage: defect_run.py NAME[,NAME] COUNTS.json COMMAND ...; names: {known}")
    names, file, *words = sys.argv[1:]
    sys.exit(run(names.split(","), Path(file), words))


if __name__ == "__main__":
    main()
