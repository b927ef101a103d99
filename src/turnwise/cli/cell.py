"""`python -m turnwise.cli.cell PARENT ...`: the command `turnwise ...`, which ends with PARENT.

A sweep that is killed leaves no run behind it that would hold the lock of a folder: the system
sends SIGTERM to each, which saves what it has.
"""

from __future__ import annotations

import os
import signal
import sys

from turnwise.__main__ import main
from turnwise.utils.parents import end_with


def run() -> None:
    """Run the command line, less the number of the process that started it."""
    end_with(int(sys.argv.pop(1)), signal.SIGTERM)
    if os.name == "posix":
        signal.signal(signal.SIGHUP, signal.SIG_IGN)  # the sweep says when to stop
    main()


if __name__ == "__main__":
    run()
