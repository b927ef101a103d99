"""The walls around a worker, and those that each of its children adds for one program.

Provides `enter`, for the worker, and `Walls.close_in`, for a child. With namespaces a child takes a
second user namespace and mount namespace of its own (`plan`): its mounts are locked, its folder to
write in is a file system of its own, and it has no capability. Landlock only closes paths, ports
and signals of the host's. seccomp (`filters`) is put on inside all of these.
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
"""The user that programs run as, inside: it owns nothing."""
DEVICES = ("full", "null", "random", "urandom")
"""What programs may read and write. Not "zero": whoever opens it for writing can map memory that is
on no account that a limit is kept of."""
PREFIX = "turnwise-scratch-"
"""Begins the names of folders that workers make on the host; their owners hold a lock on them."""
MOUNTED = "/turnwise/scratch"
"""Where a container has a file system for workers to write in."""
OLDEST = (5, 14)
"""The first kernel that counts processes by user namespace, and so bounds a program's exactly."""
_SPACES = kernel.CLONE_NEWNS | kernel.CLONE_NEWPID | kernel.CLONE_NEWIPC | kernel.CLONE_NEWUTS
_QUIET = kernel.MS_NOSUID | kernel.MS_NODEV
LONE_USERS = 1_800_000_000
"""Host users from here on are nobody's: a worker behind Landlock that root starts takes one."""

Kind = Literal["bubblewrap", "namespaces", "landlock", "container", "none"]


class RefusedError(Exception):
    """The kernel refuses a kind of walls; the message says which call, and why."""


@dataclass(frozen=True, kw_only=True, slots=True)
class Walls:
    """The walls that stand around a worker.

    `scratch` is where programs write, and `place` an open descriptor of it where it is a folder of
    somebody's file system. `counted` says that no process of the user is anything but a worker's
    own, so that the kernel can bound how many a program has.

    Example:
        >>> Walls(kind="none", scratch="/tmp/x").nested
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
        """Whether each child has a mount namespace and a folder to write in of its own."""
        return self.kind in ("bubblewrap", "namespaces")

    @property
    def mounted(self) -> bool:
        """Whether programs write to a file system that is the worker's alone."""
        return self.scratch == MOUNTED

    @property
    def zero_closed(self) -> bool:
        """Whether no device can be mapped that gives shared memory."""
        return self.kind != "container" or kernel.landlock_version() > 0

    @property
    def filtered(self) -> bool:
        """Whether system calls are filtered."""
        return self.kind != "none"

    def close_in(self, folder: str) -> None:
        """Put this process, a child that is about to run a program, behind its own walls.

        Args:
            folder: where the program may write.

        Where walls are nested that is done by calls prepared for it (`plan`).
        """
        os.setsid()
        os.chdir(folder)
        if self.kind == "landlock" or (self.kind == "container" and kernel.landlock_version()):
            _close_paths(self.readable, (folder,), self.network)
        if self.filtered:
            kernel.drop_capabilities()
        if sys.platform == "linux":
            kernel.prctl(kernel.PR_SET_PDEATHSIG, signal.SIGKILL)


def enter(kind: Kind, readable: Sequence[str], network: bool) -> Walls:
    """Put this process behind walls of a kind, and return them.

    For "namespaces" another process returns than the one that called: the first one waits for it,
    and ends with it.

    Args:
        kind: "bubblewrap" and "container" mean that these stand already.
        readable: folders that may be read.
        network: whether other machines may be reached.

    Raises:
        RefusedError: if the kernel does not grant them.
    """
    if kind == "none":
        return _with_scratch(Walls(kind=kind, scratch=_new_folder()))
    if sys.platform != "linux" or not kernel.MACHINE:
        raise RefusedError(f"not known for {sys.platform} on {os.uname().machine}")
    if kind == "container":
        mounted = os.path.ismount(MOUNTED)
        scratch = MOUNTED if mounted else _new_folder()
        walls = Walls(kind=kind, scratch=scratch, readable=("/",), network=network, counted=True)
        return _with_scratch(walls)
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
            raise RefusedError("no walls of that name are known")
        elif os.geteuid() == 0:
            _become(NOBODY)
        kernel.prctl(kernel.PR_SET_PDEATHSIG, signal.SIGKILL)
        return Walls(kind=kind, scratch=scratch_among(readable), network=network, counted=True)
    except OSError as error:
        raise RefusedError(error.strerror or type(error).__name__) from None


def scratch_among(readable: Sequence[str]) -> str:
    """Return where programs write in a root folder of their own: it covers nothing readable."""
    return "/scratch" if any(f"{path}/".startswith("/tmp/") for path in readable) else "/tmp"


def _new_folder() -> str:
    """Make a folder on the host; what that takes is not imported behind other walls."""
    from tempfile import mkdtemp

    return mkdtemp(prefix=PREFIX)


def _with_scratch(walls: Walls) -> Walls:
    return replace(walls, place=_held(walls.scratch))


def _held(scratch: str) -> int:
    """Return a descriptor of a folder, locked for as long as this process lives."""
    place = os.open(scratch, os.O_RDONLY | os.O_DIRECTORY | os.O_CLOEXEC)
    with suppress(OSError):  # a file system without locks
        fcntl.flock(place, fcntl.LOCK_EX | fcntl.LOCK_NB)
    return place


def _enter_landlock(readable: Sequence[str], network: bool) -> Walls:
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
    return Walls(
        kind="landlock",
        scratch=scratch,
        place=place,
        readable=readable,
        network=network,
        counted=root,
    )


def _close_paths(readable: Sequence[str], writable: Sequence[str], network: bool) -> None:
    """Close the file system to this process but for some folders and harmless devices."""
    devices = tuple(f"/dev/{name}" for name in DEVICES)
    opening = kernel.Opening(readable=tuple(readable), writable=(*writable, *devices))
    kernel.landlock(opening, network)


def _become(user: int) -> None:
    """Become a user without any privilege, for good."""
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
    """Go on as the first process of new namespaces, and as a user without privileges."""
    spaces = _SPACES | (0 if network else kernel.CLONE_NEWNET)
    root = os.geteuid() == 0
    if root:
        try:
            kernel.unshare(spaces)
        except PermissionError:  # root of a container, say: what an ordinary user may is left
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
    """Wait until `child` ends, without holding anything open, and end as it did."""
    os.closerange(0, 1 << 10)
    for number in (signal.SIGINT, signal.SIGTERM):
        signal.signal(number, signal.SIG_DFL)
    _, status = os.waitpid(child, 0)
    os._exit(os.waitstatus_to_exitcode(status) & 0xFF)


def _build_root(readable: Sequence[str]) -> None:
    """Make a root folder of what may be read, /proc and an empty folder to mount on; enter it."""
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
    """Return a descriptor that stands for what is at `path` now; None for a link."""
    return None if os.path.islink(path) else os.open(path, os.O_PATH | os.O_CLOEXEC)


def _write(path: str, text: str) -> None:
    descriptor = os.open(path, os.O_WRONLY)
    try:
        os.write(descriptor, text.encode())
    finally:
        os.close(descriptor)
