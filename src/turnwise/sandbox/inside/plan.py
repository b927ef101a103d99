"""The system calls that a child makes before its program, prepared before the fork.

Provides `Calls` and `LaunchPlan`. A forked process copies every page that it writes, and the
interpreter writes many. A worker therefore prepares these calls once for all programs with the same
limits, so that the child looks up, converts and allocates nothing.
"""

from __future__ import annotations

import ctypes
import math
import os
import resource
import signal
from typing import Any

from . import kernel
from .frames import ROOM, Order
from .isolation import NOBODY, Isolation

DESCRIPTORS = 64
STACK = 8 << 20
FREE = 4
"""The first free descriptor of a child that has read its program."""
_MOST = (1 << 64) - 1
_QUIET = kernel.MS_NOSUID | kernel.MS_NODEV
_PROC = _QUIET | kernel.MS_RDONLY | kernel.MS_NOEXEC

_libc = ctypes.PyDLL(None)


class Calls:
    """Calls of the C library that one process prepares and its forked child makes.

    Example:
        >>> calls = Calls()
        >>> calls.add("getpid", result=os.getpid())
        >>> calls.make()
    """

    def __init__(self) -> None:
        self._calls: list[tuple[Any, tuple[Any, ...], int]] = []
        self._errno = _libc["__errno_location"]
        self._errno.restype = ctypes.POINTER(ctypes.c_int)

    def add(self, name: str, *given: Any, result: int = 0) -> None:
        """Prepare a call that must return `result`."""
        self._calls.append((getattr(_libc, name), given, result))

    def make(self) -> None:
        """Make the calls in order.

        Raises:
            OSError: if one returns something else; those after it are not made.
        """
        for function, given, result in self._calls:
            if function(*given) != result:
                number = self._errno()[0]
                raise OSError(number, f"{function.__name__}: {os.strerror(number)}")

    def system(self, number: int, *given: Any) -> None:
        """Prepare a system call without a function in the C library."""
        wide = [ctypes.c_long(part) if isinstance(part, int) else part for part in given]
        self.add("syscall", ctypes.c_long(number), *wide)

    def prctl(self, option: int, value: int) -> None:
        """Prepare to set a property of the process."""
        rest = [ctypes.c_ulong(0)] * 3
        self.add("prctl", ctypes.c_int(option), ctypes.c_ulong(value), *rest)

    def mount(self, target: str, flags: int, options: str) -> None:
        """Prepare to mount an empty file system in memory."""
        kind, wide = b"tmpfs", ctypes.c_ulong(flags)
        self.add("mount", kind, target.encode(), kind, wide, options.encode())

    def write(self, path: str, text: str) -> None:
        """Prepare to write to a file."""
        flags, place = ctypes.c_int(os.O_WRONLY | os.O_CLOEXEC), ctypes.c_int(FREE)
        self.add("open", path.encode(), flags, result=FREE)
        self.add("write", place, text.encode(), ctypes.c_size_t(len(text)), result=len(text))
        self.add("close", place)

    def bound(self, name: int, most: int) -> None:
        """Prepare to set a limit permanently, to at most what this process may have."""
        hard = resource.getrlimit(name)[1]
        most = min(most, _MOST if hard == resource.RLIM_INFINITY else hard)
        self.add("setrlimit", ctypes.c_int(name), (ctypes.c_uint64 * 2)(most, most))


class LaunchPlan:
    """The calls of a child before a program with given limits.

    Args:
        isolation: that of the worker.
        order: the limits.
        base: bytes of addresses and of memory that the interpreter itself takes.

    Example:
        >>> order = Order(9, 1.0, 10.0, 1 << 28, 1 << 20, 1 << 24, 1, 8)
        >>> LaunchPlan(Isolation(kind="none", scratch="/tmp/x"), order, (1 << 28, 1 << 24)).shared
        1056768
    """

    def __init__(self, isolation: Isolation, order: Order, base: tuple[int, int]) -> None:
        self.shared = order.output + ROOM
        """Size of the memory that the child shares with its worker, in bytes."""
        self.isolation = _isolation(isolation, order.files) if isolation.nested else Calls()
        self.no_stdin = _no_stdin()
        self.limits = _limits(isolation, order, base, self.shared)


def _isolation(isolation: Isolation, files: int) -> Calls:
    """Prepare a user namespace and mounts of the child's own, finally without any capability.

    The second user namespace locks the mounts, and its own count of processes is a program's.
    """
    calls, user, group = Calls(), os.geteuid(), os.getegid()
    calls.prctl(kernel.PR_SET_DUMPABLE, 1)  # otherwise /proc/self belongs to another user
    calls.add("unshare", ctypes.c_int(kernel.CLONE_NEWUSER | kernel.CLONE_NEWNS))
    calls.write("/proc/self/setgroups", "deny")
    calls.write("/proc/self/uid_map", f"{NOBODY} {user} 1")
    calls.write("/proc/self/gid_map", f"{NOBODY} {group} 1")
    calls.system(*kernel.read_only("/", devices=True))  # bubblewrap's devices: their times
    calls.mount(isolation.scratch, _QUIET, f"size={max(files, 4096)},nr_inodes=1024,mode=700")
    calls.mount("/proc", _PROC, "size=4k,nr_inodes=2,mode=555")
    calls.prctl(kernel.PR_SET_DUMPABLE, 0)
    calls.add("chdir", isolation.scratch.encode())
    calls.system(*kernel.no_capabilities())
    calls.prctl(kernel.PR_SET_PDEATHSIG, signal.SIGKILL)
    return calls


def _no_stdin() -> Calls:
    """Prepare an empty descriptor 0.

    After that, because /dev/null outside them would let a program change its times.
    """
    calls, place = Calls(), ctypes.c_int(FREE)
    flags = ctypes.c_int(os.O_RDONLY | os.O_CLOEXEC)
    calls.add("open", os.devnull.encode(), flags, result=FREE)
    calls.add("dup2", place, ctypes.c_int(0))
    calls.add("close", place)
    return calls


def _limits(isolation: Isolation, order: Order, base: tuple[int, int], shared: int) -> Calls:
    """Prepare to set the limits that the kernel keeps."""
    addresses, data = base
    bounds = {
        resource.RLIMIT_AS: addresses + order.memory + shared,
        resource.RLIMIT_DATA: data + order.memory,
        resource.RLIMIT_FSIZE: order.files,
        resource.RLIMIT_CPU: math.ceil(order.cpu) + 1,  # the worker watches it more exactly
        resource.RLIMIT_NOFILE: DESCRIPTORS,
        resource.RLIMIT_CORE: 0,
        resource.RLIMIT_STACK: STACK,
        resource.RLIMIT_MEMLOCK: 1 << 16,
    }
    if isolation.counted:
        own = 1 + order.threads if order.processes == 1 else order.processes
        beside = 0 if isolation.nested else 1  # a nested user namespace counts its own
        bounds[resource.RLIMIT_NPROC] = beside + own
    calls = Calls()
    for name, most in bounds.items():
        calls.bound(name, most)
    return calls
