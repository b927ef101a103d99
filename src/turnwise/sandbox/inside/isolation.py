"""The isolation of a worker, and the further isolation of each of its children.

Provides `enter`, for the worker, and `Isolation.close_in`, for a child. With namespaces, a child
gets a second user namespace and mount namespace (`plan`): its mounts are locked, its writable
folder is a separate file system, and it has no capability. Landlock restricts only paths, ports and
signals of the host. seccomp (`filters`) is applied inside all of these.
"""

from __future__ import annotations

import fcntl
import os
import signal
import sys
from collections.abc import Sequence
from contextlib import suppress
from dataclasses import dataclass, replace
from typing import Literal, NoReturn

from . import kernel

NOBODY = 65534
"""The user of programs inside, which owns nothing."""
DEVICES = ("full", "null", "random", "urandom")
"""The devices that programs may read and write. "zero" is not among them: a process that opens it
for writing can map memory that no limit counts."""
PREFIX = "turnwise-scratch-"
"""Prefix of the folders that workers make on the host; their owners hold a lock on them."""
MOUNTED = "/turnwise/scratch"
"""The writable file system of a container."""
OLDEST = (5, 14)
"""The first kernel that counts processes by user namespace, and so limits a program's exactly."""
_SPACES = kernel.CLONE_NEWNS | kernel.CLONE_NEWPID | kernel.CLONE_NEWIPC | kernel.CLONE_NEWUTS
_QUIET = kernel.MS_NOSUID | kernel.MS_NODEV
LONE_USERS = 1_800_000_000
"""The first of the unused host users, one of which a worker behind Landlock takes if root starts
it."""

Kind = Literal["bubblewrap", "namespaces", "landlock", "container", "none"]


class RefusedError(Exception):
    """The kernel refuses a kind of isolation; the message names the call and the reason."""


@dataclass(frozen=True, kw_only=True, slots=True)
class Isolation:
    """The isolation of a worker.

    `scratch` is the writable folder of programs, and `place` an open descriptor of it if it is a
    folder of a shared file system. `counted` says that the user has no other processes than the
    worker's, so that the kernel can limit the number of a program's processes.

    Example:
        >>> Isolation(kind="none", scratch="/tmp/x").nested
        False
    """

    kind: Kind
    scratch: str
    place: int = -1
    readable: tuple[str, ...] = ()
    network: bool = False
    counted: bool = False

    @property
    def nested(self) -> bool:
        """Whether each child has its own mount namespace and writable folder."""
        return self.kind in ("bubblewrap", "namespaces")

    @property
    def mounted(self) -> bool:
        """Whether programs write to a file system of the worker alone."""
        return self.scratch == MOUNTED

    @property
    def zero_closed(self) -> bool:
        """Whether no device gives shared memory when it is mapped."""
        return self.kind != "container" or kernel.landlock_version() > 0

    @property
    def filtered(self) -> bool:
        """Whether system calls are filtered."""
        return self.kind != "none"

    def close_in(self, folder: str) -> None:
        """Isolate this process, a child that is about to run a program.

        Args:
            folder: where the program may write.

        With nested namespaces, prepared calls do that (`plan`).
        """
        os.setsid()
        os.chdir(folder)
        if self.kind == "landlock" or (self.kind == "container" and kernel.landlock_version()):
            _close_paths(self.readable, (folder,), self.network)
        if self.filtered:
            kernel.drop_capabilities()
        if sys.platform == "linux":
            kernel.prctl(kernel.PR_SET_PDEATHSIG, signal.SIGKILL)


def enter(kind: Kind, readable: Sequence[str], network: bool) -> Isolation:
    """Isolate this process by a kind of isolation, and return its `Isolation`.

    For "namespaces" the function returns in a new process; the calling process waits for it and
    ends with it.

    Args:
        kind: "bubblewrap" and "container" mean that these are in place already.
        readable: folders that may be read.
        network: whether other machines may be reached.

    Raises:
        RefusedError: if the kernel does not grant them.
    """
    if kind == "none":
        return _with_scratch(Isolation(kind=kind, scratch=_new_folder()))
    if sys.platform != "linux" or not kernel.MACHINE:
        raise RefusedError(f"not known for {sys.platform} on {os.uname().machine}")
    if kind == "container":
        mounted = os.path.ismount(MOUNTED)
        scratch = MOUNTED if mounted else _new_folder()
        isolation = Isolation(
            kind=kind, scratch=scratch, readable=("/",), network=network, counted=True
        )
        return _with_scratch(isolation)
    try:
        if kind == "landlock":
            return _enter_landlock(readable, network)
        release = tuple(int(word) for word in os.uname().release.split(".")[:2] if word.isdigit())
        if release < OLDEST:
            wanted = ".".join(map(str, OLDEST))
            raise RefusedError(f"the kernel is {os.uname().release}, older than {wanted}")
        if kind == "namespaces":
            _enter_namespaces(readable, network)
        elif kind != "bubblewrap":
            raise RefusedError("no isolation of that name is known")
        elif os.geteuid() == 0:
            _become(NOBODY)
        kernel.prctl(kernel.PR_SET_PDEATHSIG, signal.SIGKILL)
        return Isolation(kind=kind, scratch=scratch_among(readable), network=network, counted=True)
    except OSError as error:
        raise RefusedError(error.strerror or type(error).__name__) from None


def scratch_among(readable: Sequence[str]) -> str:
    """Return where programs write in a root folder of their own: it covers nothing readable."""
    return "/scratch" if any(f"{path}/".startswith("/tmp/") for path in readable) else "/tmp"


def _new_folder() -> str:
    """Make a folder on the host; other kinds of isolation do not import what that needs."""
    from tempfile import mkdtemp

    return mkdtemp(prefix=PREFIX)


def _with_scratch(isolation: Isolation) -> Isolation:
    return replace(isolation, place=_held(isolation.scratch))


def _held(scratch: str) -> int:
    """Return a descriptor of a folder, locked while this process lives."""
    place = os.open(scratch, os.O_RDONLY | os.O_DIRECTORY | os.O_CLOEXEC)
    with suppress(OSError):  # file systems without locks
        fcntl.flock(place, fcntl.LOCK_EX | fcntl.LOCK_NB)
    return place


def _enter_landlock(readable: Sequence[str], network: bool) -> Isolation:
    if not kernel.landlock_version():
        raise RefusedError("the kernel has none")
    readable = tuple(path for path in readable if os.path.exists(path))
    root = os.geteuid() == 0
    scratch = _new_folder()
    place = _held(scratch)
    try:
        if root:
            user = LONE_USERS + os.getpid()
            os.fchown(place, user, user)
            _become(user)
            if not os.access(os.__file__, os.R_OK):
                raise RefusedError(
                    f"no user but root may read {os.path.dirname(os.__file__)!r}: move the "
                    "interpreter where others may read it"
                )
        _close_paths((*readable, "/proc"), (scratch,), network)
    except (OSError, RefusedError):
        with suppress(OSError):
            os.rmdir(scratch)
        raise
    return Isolation(
        kind="landlock",
        scratch=scratch,
        place=place,
        readable=readable,
        network=network,
        counted=root,
    )


def _close_paths(readable: Sequence[str], writable: Sequence[str], network: bool) -> None:
    """Restrict this process to some folders and harmless devices."""
    devices = tuple(f"/dev/{name}" for name in DEVICES)
    opening = kernel.Opening(readable=tuple(readable), writable=(*writable, *devices))
    kernel.landlock(opening, network)


def _become(user: int) -> None:
    """Become a user without any privilege, permanently."""
    os.setgroups([])
    os.setresgid(user, user, user)
    os.setresuid(user, user, user)


def _map_self(inside: int, user: int, group: int) -> None:
    """Give this process, in its new user namespace, the user and group it had, as `inside`."""
    for name, text in (
        ("setgroups", "deny"),
        ("uid_map", f"{inside} {user} 1"),
        ("gid_map", f"{inside} {group} 1"),
    ):
        _write(f"/proc/self/{name}", text)


def _enter_namespaces(readable: Sequence[str], network: bool) -> None:
    """Become the first process of new namespaces, and a user without privileges."""
    spaces = _SPACES | (0 if network else kernel.CLONE_NEWNET)
    root = os.geteuid() == 0
    if root:
        try:
            kernel.unshare(spaces)
        except PermissionError:  # such as root of a container: keep an ordinary user's rights
            root = False
            _become(NOBODY)
    if not root:
        user, group = os.geteuid(), os.getegid()
        kernel.prctl(kernel.PR_SET_DUMPABLE, 1)
        kernel.unshare(spaces | kernel.CLONE_NEWUSER)
        _map_self(NOBODY, user, group)
    first = os.fork()
    if first:
        _outlive_nothing(first)
    for number in (signal.SIGINT, signal.SIGTERM):
        signal.signal(number, signal.SIG_DFL)  # what the first process has no handler for
    _build_root(readable)
    kernel.set_host_name("sandbox")
    if root:
        _become(NOBODY)


def _outlive_nothing(child: int) -> NoReturn:
    """Wait for the end of `child` with no other descriptor open, and end in the same way."""
    os.closerange(0, 1 << 10)
    for number in (signal.SIGINT, signal.SIGTERM):
        signal.signal(number, signal.SIG_DFL)
    _, status = os.waitpid(child, 0)
    os._exit(os.waitstatus_to_exitcode(status) & 0xFF)


def _build_root(readable: Sequence[str]) -> None:
    """Build a root folder of readable paths, /proc and an empty mount point, and enter it."""
    scratch = scratch_among(readable)
    kernel.mount("", "/", "", kernel.MS_REC | kernel.MS_PRIVATE)
    sources = [(path, _hold(path)) for path in readable if os.path.exists(path)]
    devices = [(f"/dev/{name}", _hold(f"/dev/{name}")) for name in DEVICES]
    base = "/tmp" if os.path.isdir("/tmp") else "/mnt"
    kernel.mount("tmpfs", base, "tmpfs", _QUIET, "size=4m,mode=755")
    os.chdir(base)
    for path, descriptor in [*sources, *devices]:
        target = base + path
        if descriptor is None:
            os.makedirs(os.path.dirname(target), exist_ok=True)
            os.symlink(os.readlink(path), target)
            continue
        if os.path.isdir(f"/proc/self/fd/{descriptor}"):
            os.makedirs(target, exist_ok=True)
        else:
            os.makedirs(os.path.dirname(target), exist_ok=True)
            os.close(os.open(target, os.O_CREAT | os.O_WRONLY, 0o644))
        kernel.mount(f"/proc/self/fd/{descriptor}", target, "", kernel.MS_BIND | kernel.MS_REC)
        kernel.make_read_only(target, devices=path.startswith("/dev/"))
        os.close(descriptor)
    os.makedirs(base + scratch, exist_ok=True)
    os.makedirs(base + "/proc", exist_ok=True)
    flags = _QUIET | kernel.MS_NOEXEC
    try:
        kernel.mount("proc", base + "/proc", "proc", flags, "subset=pid")
    except OSError:
        kernel.mount("proc", base + "/proc", "proc", flags)
    kernel.pivot_root_here()
    flags = _QUIET | kernel.MS_RDONLY | kernel.MS_REMOUNT | kernel.MS_BIND
    kernel.mount("", "/", "", flags)


def _hold(path: str) -> int | None:
    """Return a descriptor of the object at `path`; None for a link."""
    return None if os.path.islink(path) else os.open(path, os.O_PATH | os.O_CLOEXEC)


def _write(path: str, text: str) -> None:
    descriptor = os.open(path, os.O_WRONLY)
    try:
        os.write(descriptor, text.encode())
    finally:
        os.close(descriptor)
