"""Linux system calls without a Python function: namespaces, mounts, capabilities, Landlock.

Provides one function per call, with numbers and structures by processor. An error is an `OSError`
that names the call.
"""

from __future__ import annotations

import ctypes
import os
from collections.abc import Sequence
from contextlib import suppress
from dataclasses import dataclass
from typing import Any

MACHINES = {"x86_64": "x86_64", "aarch64": "aarch64", "arm64": "aarch64"}
MACHINE = MACHINES.get(os.uname().machine, "") if hasattr(os, "uname") else ""
"""The name of the processor, if its call numbers are known here; else empty."""

CLONE_NEWNS, CLONE_NEWUTS, CLONE_NEWIPC = 0x20000, 0x4000000, 0x8000000
CLONE_NEWUSER, CLONE_NEWPID, CLONE_NEWNET = 0x10000000, 0x20000000, 0x40000000
MS_RDONLY, MS_NOSUID, MS_NODEV, MS_REMOUNT, MS_BIND = 1, 2, 4, 32, 4096
MS_REC, MS_PRIVATE = 16384, 1 << 18
MS_NOEXEC = 8
MNT_DETACH = 2
PR_SET_PDEATHSIG, PR_SET_DUMPABLE, PR_CAPBSET_DROP, PR_SET_CHILD_SUBREAPER = 1, 4, 24, 36
PR_SET_NO_NEW_PRIVS, PR_SET_SECCOMP, SECCOMP_MODE_FILTER = 38, 22, 2
AT_FDCWD, AT_RECURSIVE = -100, 0x8000
MOUNT_ATTR_RDONLY, MOUNT_ATTR_NOSUID, MOUNT_ATTR_NODEV = 1, 2, 4

_PIVOT_ROOT = {"x86_64": 155, "aarch64": 41}
_CAPSET = {"x86_64": 126, "aarch64": 91}
_MOUNT_SETATTR = 442
_LANDLOCK_CREATE, _LANDLOCK_ADD, _LANDLOCK_RESTRICT = 444, 445, 446

_libc = ctypes.CDLL(None, use_errno=True)
_libc_with_lock = ctypes.PyDLL(None)


def _checked(name: str, result: int) -> int:
    if result < 0:
        number = ctypes.get_errno()
        raise OSError(number, f"{name}: {os.strerror(number)}")
    return result


def _call(name: str, number: int, *args: Any) -> int:
    wide = [ctypes.c_long(arg) if isinstance(arg, int) else arg for arg in args]
    return _checked(name, _libc.syscall(ctypes.c_long(number), *wide))


def fork() -> int:
    """Fork a process that has one thread; return the child's number, 0 in the child.

    What `os.fork` does beyond that, for processes with several threads and for `random`, is left
    out: it takes a child half a millisecond.
    """
    return _checked("fork", _libc_with_lock.fork())


def unshare(flags: int) -> None:
    """Move this process to new namespaces, named by `flags`."""
    _checked("unshare", _libc.unshare(ctypes.c_int(flags)))


def mount(source: str, target: str, kind: str, flags: int, options: str = "") -> None:
    """Mount `source` on `target`."""
    given = [text.encode() or None for text in (source, target, kind)]
    result = _libc.mount(*given, ctypes.c_ulong(flags), options.encode() or None)
    _checked(f"mount {target}", result)


def unmount(target: str) -> None:
    """Unmount `target`, even if it is in use."""
    _checked(f"umount {target}", _libc.umount2(target.encode(), ctypes.c_int(MNT_DETACH)))


def read_only(target: str, devices: bool) -> tuple[Any, ...]:
    """Return number and arguments of the call of `make_read_only`."""
    nodev = 0 if devices else MOUNT_ATTR_NODEV
    given = (ctypes.c_uint64 * 4)(MOUNT_ATTR_RDONLY | MOUNT_ATTR_NOSUID | nodev, 0, 0, 0)
    path = ctypes.c_char_p(target.encode())
    size = ctypes.sizeof(given)
    return _MOUNT_SETATTR, AT_FDCWD, path, AT_RECURSIVE, ctypes.byref(given), size


def make_read_only(target: str, devices: bool = False) -> None:
    """Make all that is mounted on and below `target` read-only and without set-user-ids.

    Devices can be opened, if at all, only with `devices`; their times cannot be changed.
    """
    _call("mount_setattr", *read_only(target, devices))


def set_host_name(name: str) -> None:
    """Set the host name in the namespace."""
    given = name.encode()
    _checked("sethostname", _libc.sethostname(given, ctypes.c_size_t(len(given))))


def pivot_root_here() -> None:
    """Make the working directory, a mount, the root, and unmount the old root."""
    here = ctypes.c_char_p(b".")
    _call("pivot_root", _PIVOT_ROOT[MACHINE], here, here)
    unmount(".")
    os.chdir("/")


def prctl(option: int, value: int) -> None:
    """Set a property of this process."""
    rest = (ctypes.c_ulong(0), ctypes.c_ulong(0), ctypes.c_ulong(0))
    _checked("prctl", _libc.prctl(ctypes.c_int(option), ctypes.c_ulong(value), *rest))


def put_on(program: ctypes.Structure) -> None:
    """Install a filter of system calls for this process."""
    _checked("seccomp", _libc.prctl(PR_SET_SECCOMP, SECCOMP_MODE_FILTER, ctypes.byref(program)))


def drop_capabilities(bounding: bool = False) -> None:
    """Drop all capabilities, permanently if no new privileges can be gained.

    Args:
        bounding: also give up what programs with capabilities could bring, if that is allowed.
    """
    if bounding:
        with suppress(OSError):
            for number in range(64):
                prctl(PR_CAPBSET_DROP, number)
    _call("capset", *no_capabilities())


def no_capabilities() -> tuple[Any, ...]:
    """Return number and arguments of the call that drops all capabilities."""
    version = (ctypes.c_uint32 * 2)(0x20080522, 0)
    nothing = (ctypes.c_uint32 * 6)()
    return _CAPSET[MACHINE], ctypes.byref(version), ctypes.byref(nothing)


# Landlock: https://docs.kernel.org/userspace-api/landlock.html

_EXECUTE, _WRITE_FILE, _READ_FILE, _READ_DIR = 1, 2, 4, 8
_REFER, _TRUNCATE, _IOCTL_DEV = 1 << 13, 1 << 14, 1 << 15
_FIRST_RIGHTS = (1 << 13) - 1
_SPECIAL_FILES = (1 << 6) | (1 << 9) | (1 << 10) | (1 << 11)
"""The rights to make character devices, sockets, pipes and block devices."""


@dataclass(frozen=True, kw_only=True, slots=True)
class Opening:
    """The paths that Landlock leaves open: readable folders, writable folders and files.

    Example:
        >>> Opening(readable=("/usr",), writable=("/tmp/scratch",)).readable
        ('/usr',)
    """

    readable: tuple[str, ...]
    writable: tuple[str, ...]


def landlock_version() -> int:
    """Return the kernel's version of Landlock; 0 if it has none."""
    try:
        return _call("landlock", _LANDLOCK_CREATE, ctypes.c_void_p(None), 0, 1)
    except OSError:
        return 0


def landlock(opening: Opening, network: bool) -> None:
    """Restrict files, ports and signals to other processes, for this process and its children.

    Args:
        opening: what of the file system stays open.
        network: whether ports do.
    """
    version = landlock_version()
    rights = _FIRST_RIGHTS
    for since, right in ((2, _REFER), (3, _TRUNCATE), (5, _IOCTL_DEV)):
        rights |= right if version >= since else 0
    ports, scopes = 3 if version >= 4 and not network else 0, 3 if version >= 6 else 0
    given = (ctypes.c_uint64 * 3)(rights, ports, scopes)
    size = 24 if version >= 6 else 16 if version >= 4 else 8
    rules = _call("landlock", _LANDLOCK_CREATE, ctypes.byref(given), size, 0)
    read = _EXECUTE | _READ_FILE | _READ_DIR
    _open_paths(rules, opening.readable, read)
    _open_paths(rules, opening.writable, rights & ~_SPECIAL_FILES & ~_IOCTL_DEV)
    prctl(PR_SET_NO_NEW_PRIVS, 1)
    _call("landlock", _LANDLOCK_RESTRICT, rules, 0)
    os.close(rules)


def _open_paths(rules: int, paths: Sequence[str], rights: int) -> None:
    for path in paths:
        descriptor = os.open(path, os.O_PATH | os.O_CLOEXEC)
        allowed = rights if os.path.isdir(path) else rights & (_WRITE_FILE | _READ_FILE | _TRUNCATE)
        rule = ctypes.create_string_buffer(
            allowed.to_bytes(8, "little") + descriptor.to_bytes(4, "little"), 12
        )
        _call("landlock", _LANDLOCK_ADD, rules, 1, ctypes.byref(rule), 0)
        os.close(descriptor)
