"""Processes that end with the one that started them.

Provides `end_with`.
"""

from __future__ import annotations

import ctypes
import os
import signal
import sys

PR_SET_PDEATHSIG = 1


def end_with(parent: int, number: signal.Signals) -> None:
    """Let the system send a signal to this process when the thread that started it ends, on Linux.

    Args:
        parent: the number of the process that started this one.
        number: the signal.
    """
    if sys.platform == "linux":
        ctypes.CDLL(None).prctl(PR_SET_PDEATHSIG, number)
        if os.getppid() != parent:  # it ended before this was set
            os.kill(os.getpid(), number)
