"""The processes of a program as its worker sees them: CPU time, threads, and termination.

Provides `Clock`, `threads_of`, `end_all_others` and `end_all_below`. They read /proc without the
codecs that `open` may import.
"""

from __future__ import annotations

import os
import signal
import time
from contextlib import suppress


class Clock:
    """CPU time since a program began: of one process, or of all processes of a namespace.

    `start` is the CPU time at that moment. With `others` the clock must be read often: the time of
    a process since the last reading is lost when it ends.
    """

    def __init__(self, pid: int, others: bool, start: float) -> None:
        self.pid, self.others, self.start = pid, others, start
        self._ended = 0.0
        self._running: dict[int, float] = {}

    def read(self) -> float:
        """Return the seconds."""
        if not self.others:
            used = _used(self.pid)
            self._running[self.pid] = max(used, self._running.get(self.pid, 0.0))
        else:
            own = os.getpid()
            for name in os.listdir("/proc"):
                if name.isdigit() and int(name) != own:
                    self._note(int(name), _used(int(name)))
        return self._ended + sum(self._running.values()) - self.start

    def _note(self, pid: int, used: float) -> None:
        before = self._running.get(pid, 0.0)
        if used < before:  # the process has ended, or another one has its id
            self._ended += before
        self._running[pid] = used


def _used(pid: int) -> float:
    """Return the CPU time of a process, 0 if it does not exist."""
    try:
        return time.clock_gettime((~pid << 3) | 2)  # CLOCK_PROCESS_CPUTIME_ID of another process
    except OSError:
        return 0.0


def threads_of(pid: int) -> int:
    """Return the number of threads of a process; 1 if it is unknown."""
    try:
        return int(contents(f"/proc/{pid}/stat").rpartition(b")")[2].split()[17])
    except (OSError, ValueError, IndexError):
        return 1


def end_all_others() -> None:
    """Kill all other processes of this namespace, whose first process this is.

    Anywhere else this would end every process of the user, or of the machine.
    """
    if os.getpid() != 1:
        raise RuntimeError("only the first process of a namespace may end all others")
    while True:
        with suppress(ProcessLookupError):
            os.kill(-1, signal.SIGKILL)
        try:
            os.waitpid(-1, 0)
        except ChildProcessError:
            return


def end_all_below() -> None:
    """Kill all descendants of this process until none is left."""
    while True:
        children = _children()
        for child in children:
            with suppress(ProcessLookupError, PermissionError):
                os.kill(child, signal.SIGKILL)
        with suppress(ChildProcessError):
            while os.waitpid(-1, 0 if children else os.WNOHANG)[0]:
                pass
        if not children:
            return


def _children() -> list[int]:
    """Return the children of this process, including those inherited from ended processes."""
    try:
        return [int(word) for word in contents(f"/proc/self/task/{os.getpid()}/children").split()]
    except OSError:  # this isolation hides /proc, and no way to start processes
        return []


def contents(path: str) -> bytes:
    """Return the content of a file of /proc."""
    descriptor = os.open(path, os.O_RDONLY | os.O_CLOEXEC)
    try:
        parts: list[bytes] = []
        while part := os.read(descriptor, 1 << 16):
            parts.append(part)
        return b"".join(parts)
    finally:
        os.close(descriptor)
