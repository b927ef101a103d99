"""Whether a second core of this machine and memory are free for another process.

Provides `second_core_is_free` and `free_memory`. The numbers of cores and bytes of the machine do
not tell: other programs may use them, a container may be allowed less than it sees, and two cores
may be threads of one.
"""

from __future__ import annotations

import hashlib
import os
import threading
import time
from collections.abc import Callable, Iterator
from contextlib import suppress
from pathlib import Path

ROUNDS = 6
PIECES, PIECE = 64, bytes(1 << 20)
"""The work of a thread in a round: bytes to hash, which the interpreter lock does not hold back."""
SLOWER = 1.25
"""How much longer two threads may take than the seconds of a core that the work of one needs."""
CGROUPS, OWN_CGROUP = Path("/sys/fs/cgroup"), Path("/proc/self/cgroup")
MEMORY = Path("/proc/meminfo")


def second_core_is_free() -> bool:
    """Measure whether two threads each have a core to themselves; it takes about half a second.

    Other programs that use the cores make the threads wait. The fastest of a few rounds counts, so
    that a moment's work of another program does not decide. What a container is allowed is read:
    it acts in the mean over tenths of a second, and a round is shorter.
    """
    if usable_cores() < 2:
        return False
    needed = min(_round(1, time.thread_time) for _ in range(ROUNDS))
    return min(_round(2, time.perf_counter) for _ in range(ROUNDS)) <= SLOWER * needed


def usable_cores() -> float:
    """Return how many cores this process may use, by its affinity and its Linux control groups."""
    if hasattr(os, "sched_getaffinity"):
        cores = float(len(os.sched_getaffinity(0)))
    else:
        cores = float(os.cpu_count() or 1)
    first = zip(_limits("cpu/cpu.cfs_quota_us"), _limits("cpu/cpu.cfs_period_us"), strict=False)
    for pair in (*(text.split() for text in _limits("cpu.max")), *first):
        if len(pair) == 2 and all(map(str.isdigit, pair)) and int(pair[1]):  # "max", -1: no limit
            cores = min(cores, int(pair[0]) / int(pair[1]))
    return cores


def free_memory() -> float:
    """Return the bytes of memory that are available; infinite where the system does not say."""
    free = float("inf")
    with suppress(OSError, ValueError, IndexError):
        lines = dict(line.split(":", 1) for line in MEMORY.read_text().splitlines())
        free = int(lines.get("MemAvailable", "").split()[0]) * 1024.0
    for name in ("memory.max", "memory/memory.limit_in_bytes"):
        for limit in _limits(name):
            if limit.isdigit():
                free = min(free, float(limit))
    return free


def _limits(name: str) -> Iterator[str]:
    """Yield what a file of this process's control group and of all groups above it says.

    A container sees its own group as the topmost one.
    """
    places = {CGROUPS}
    with suppress(OSError):
        for line in OWN_CGROUP.read_text().splitlines():
            own = CGROUPS / line.rpartition(":")[2].lstrip("/")
            places |= {own, *(each for each in own.parents if each.is_relative_to(CGROUPS))}
    for place in sorted(places):
        with suppress(OSError):
            yield (place / name).read_text().strip()


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
