"""Whether a second core of this machine is free, measured.

Provides `second_core_is_free`. The number of cores does not tell: other programs may use them, a
container may be allowed less than it sees, and two of them may be threads of one core.
"""

from __future__ import annotations

import hashlib
import os
import threading
import time
from collections.abc import Callable

ROUNDS = 6
PIECES, PIECE = 64, bytes(1 << 20)
"""The work of a thread in a round: bytes to hash, which the interpreter lock does not hold back."""
SLOWER = 1.25
"""How much longer two threads may take than the seconds of a core that the work of one needs."""


def second_core_is_free() -> bool:
    """Measure whether two threads each have a core to themselves; it takes about half a second.

    Other programs that use the cores make the threads wait. The fastest of a few rounds counts, so
    that a moment's work of another program does not decide.
    """
    if usable_cores() < 2:
        return False
    needed = min(_round(1, time.process_time) for _ in range(ROUNDS))
    return min(_round(2, time.perf_counter) for _ in range(ROUNDS)) <= SLOWER * needed


def usable_cores() -> int:
    """Return how many cores this process may use."""
    if hasattr(os, "sched_getaffinity"):
        return len(os.sched_getaffinity(0))
    return os.cpu_count() or 1


def _round(threads: int, clock: Callable[[], float]) -> float:
    """Return the seconds of a clock in which so many threads do the same work side by side."""
    others = [threading.Thread(target=_work) for _ in range(threads - 1)]
    began = clock()
    for other in others:
        other.start()
    _work()
    for other in others:
        other.join()
    return clock() - began


def _work() -> None:
    digest = hashlib.sha256()
    for _ in range(PIECES):
        digest.update(PIECE)
