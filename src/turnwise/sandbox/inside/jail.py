"""The walls around a worker and all that it starts: a file system, users, processes of their own.

Owns two ways to build them. Namespaces: a root folder with nothing in it but the interpreter and
libraries, read-only, no network, no other process to be seen. Where the kernel refuses those,
Landlock: the host's file system, closed but for the same folders. seccomp stands inside both,
around each program (`filters`). Neither needs rights that an ordinary user lacks.
"""

from __future__ import annotations

import os
import signal
import socket
import sys
import tempfile
from collections.abc import Sequence
from contextlib import suppress
from dataclasses import dataclass
from typing import Literal, NoReturn

from turnwise.sandbox.inside import kernel

NOBODY = 65534
"""The user that programs run as, inside: it owns nothing."""
DEVICES = ("full", "null", "random", "urandom", "zero")
_SPACES = (
    kernel.CLONE_NEWUSER
    | kernel.CLONE_NEWNS
    | kernel.CLONE_NEWPID
    | kernel.CLONE_NEWIPC
    | kernel.CLONE_NEWUTS
)


class RefusedError(Exception):
    """The kernel refuses a kind of walls; the message says which call, and why."""


@dataclass(frozen=True, kw_only=True, slots=True)
class Walls:
    """The walls that stand, the folder that may be written, and the user that programs become.

    `own_root` means that the whole file system and all processes in sight belong to the worker.
    `user` is None where programs stay the user that they are.

    Example:
        >>> Walls(kind="none", scratch="/tmp/x", user=None).own_root
        False
    """

    kind: Literal["namespaces", "landlock", "container", "none"]
    scratch: str
    user: int | None

    @property
    def own_root(self) -> bool:
        """Whether there is nothing in reach that is not the worker's."""
        return self.kind == "namespaces"


def enter(ways: Sequence[str], readable: Sequence[str], network: bool) -> Walls:
    """Put this process behind the first of some kinds of walls that the kernel grants.

    The process returns as another one where those are namespaces: the first one waits for it, and
    ends with it.

    Args:
        ways: kinds of walls, the best first; without any, none are built.
        readable: folders that may be read.
        network: whether other machines may be reached.

    Raises:
        RefusedError: if it grants none.
    """
    if not ways or ways == ["container"]:
        return Walls(kind="container" if ways else "none", scratch=_make_scratch(), user=None)
    if sys.platform != "linux":
        raise RefusedError(f"walls are built by Linux, and this is {sys.platform}")
    if not kernel.MACHINE:
        raise RefusedError(f"no system calls are known for the processor {os.uname().machine}")
    reasons: list[str] = []
    for way in ways:
        try:
            if way == "namespaces":
                return _enter_namespaces(readable, network)
            if way == "landlock":
                return _enter_landlock(readable, network)
            raise RefusedError("nothing of that name is known")
        except RefusedError as refused:
            reasons.append(f"{way}: {refused}")
    raise RefusedError("; ".join(reasons))


def _enter_landlock(readable: Sequence[str], network: bool) -> Walls:
    if not kernel.landlock_version():
        raise RefusedError("the kernel has none")
    scratch = _make_scratch()
    devices = [f"/dev/{name}" for name in DEVICES]
    readable = [path for path in readable if os.path.exists(path)]
    try:
        opening = kernel.Opening(readable=tuple(readable), writable=(scratch, *devices))
        kernel.landlock(opening, network)
    except OSError as error:
        os.rmdir(scratch)
        raise RefusedError(f"{error.strerror}") from None
    return Walls(kind="landlock", scratch=scratch, user=_lesser_user())


def _make_scratch() -> str:
    """Make a folder that programs may write in."""
    scratch = tempfile.mkdtemp(prefix="turnwise-sandbox-")
    os.chmod(scratch, 0o777 if os.geteuid() == 0 else 0o700)
    return scratch


def _lesser_user() -> int | None:
    """Return the user that programs become if the worker is root, and nobody can read the library.

    Behind walls that leave paths as they are, an interpreter in root's own folders is out of reach
    for others: then programs stay root, without root's capabilities.
    """
    if os.geteuid() != 0:
        return None
    asked = os.fork()
    if asked == 0:
        try:
            os.setgroups([])
            os.setresgid(NOBODY, NOBODY, NOBODY)
            os.setresuid(NOBODY, NOBODY, NOBODY)
            os._exit(not os.access(os.__file__, os.R_OK))
        finally:  # root of a container may have lost the right to become somebody else
            os._exit(1)
    _, status = os.waitpid(asked, 0)
    return NOBODY if status == 0 else None


def _enter_namespaces(readable: Sequence[str], network: bool) -> Walls:
    """Go on as the first process of new namespaces.

    Two processes stay outside: one that maps users, as only an outsider may, and one between.
    """
    asked, answered = os.pipe(), os.pipe()
    between = os.fork()
    if between == 0:
        os.close(asked[0])
        os.close(answered[1])
        return _go_inside(readable, network, asked[1], answered[0])
    os.close(asked[1])
    os.close(answered[0])
    if _line(asked[0]) == "unshared":
        with suppress(OSError):
            _map_users(between)
        with suppress(OSError):
            os.write(answered[1], b"mapped\n")
    told = _line(asked[0])
    os.close(asked[0])
    os.close(answered[1])
    if told != "inside":
        os.waitpid(between, 0)
        raise RefusedError(told or "the kernel ended the process that asked for namespaces")
    _outlive_nothing(between)


def _map_users(process: int) -> None:
    """Give `process`, in its new namespace, one user, or root and nobody."""
    place = f"/proc/{process}"
    if os.geteuid() == os.getegid() == 0:
        with suppress(PermissionError):  # root of a container may have lost the right to
            _write(f"{place}/uid_map", f"0 0 1\n{NOBODY} {NOBODY} 1\n")
            _write(f"{place}/gid_map", f"0 0 1\n{NOBODY} {NOBODY} 1\n")
            return
    _write(f"{place}/setgroups", "deny")
    _write(f"{place}/uid_map", f"{NOBODY} {os.geteuid()} 1\n")
    _write(f"{place}/gid_map", f"{NOBODY} {os.getegid()} 1\n")


def _outlive_nothing(child: int) -> NoReturn:
    """Wait until `child` ends, without holding anything open, and end as it did."""
    os.closerange(0, 64)
    for number in (signal.SIGINT, signal.SIGTERM):
        signal.signal(number, signal.SIG_DFL)
    _, status = os.waitpid(child, 0)
    os._exit(os.waitstatus_to_exitcode(status) & 0xFF)


def _go_inside(readable: Sequence[str], network: bool, out: int, back: int) -> Walls:
    """Leave for new namespaces and go on as their first process; tell the one that waits."""
    try:
        kernel.prctl(kernel.PR_SET_PDEATHSIG, signal.SIGKILL)
        kernel.unshare(_SPACES | (0 if network else kernel.CLONE_NEWNET))
        os.write(out, b"unshared\n")
        if _line(back) != "mapped":
            raise OSError(0, "nobody mapped the users")
        first = os.fork()
        if first:
            os.close(out)
            os.close(back)
            _outlive_nothing(first)
        kernel.prctl(kernel.PR_SET_PDEATHSIG, signal.SIGKILL)
        for number in (signal.SIGINT, signal.SIGTERM):
            signal.signal(number, signal.SIG_DFL)  # what the first process has no handler for
        user = NOBODY if os.geteuid() == 0 and _is_mapped(NOBODY) else None
        scratch = _build_root(readable)
        socket.sethostname("sandbox")
    except OSError as error:
        os.write(out, f"{error.strerror}\n".encode())
        os._exit(1)
    os.write(out, b"inside\n")
    os.close(out)
    os.close(back)
    return Walls(kind="namespaces", scratch=scratch, user=user)


def _is_mapped(user: int) -> bool:
    with open("/proc/self/uid_map", encoding="ascii") as maps:
        return any(line.split()[:1] == [str(user)] for line in maps)


def _build_root(readable: Sequence[str]) -> str:
    """Make a root folder of what may be read, a few devices and an empty scratch; enter it.

    Returns:
        Where programs may write: /tmp, unless something to be read is there.
    """
    scratch = "/scratch" if any(path.startswith("/tmp/") for path in readable) else "/tmp"
    kernel.mount("", "/", "", kernel.MS_REC | kernel.MS_PRIVATE)
    sources = [(path, _hold(path)) for path in readable if os.path.exists(path)]
    devices = [(f"/dev/{name}", _hold(f"/dev/{name}")) for name in DEVICES]
    base = "/tmp" if os.path.isdir("/tmp") else "/mnt"
    flags = kernel.MS_NOSUID | kernel.MS_NODEV
    kernel.mount("tmpfs", base, "tmpfs", flags, "size=4m,mode=755")
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
        if not path.startswith("/dev/"):
            kernel.make_read_only(target)
        os.close(descriptor)
    os.makedirs(base + scratch, exist_ok=True)
    kernel.pivot_root_here()
    mount_scratch(scratch, 1 << 20)
    flags |= kernel.MS_RDONLY | kernel.MS_REMOUNT | kernel.MS_BIND
    kernel.mount("", "/", "", flags)
    return scratch


def _hold(path: str) -> int | None:
    """Return a descriptor that stands for what is at `path` now; None for a link."""
    return None if os.path.islink(path) else os.open(path, os.O_PATH | os.O_CLOEXEC)


def mount_scratch(scratch: str, size: int) -> None:
    """Put an empty folder of `size` bytes where programs may write."""
    flags = kernel.MS_NOSUID | kernel.MS_NODEV
    size = max(size, 4096)
    kernel.mount("tmpfs", scratch, "tmpfs", flags, f"size={size},nr_inodes=1024,mode=1777")


def _write(path: str, text: str) -> None:
    with open(path, "w", encoding="ascii") as file:
        file.write(text)


def _line(descriptor: int) -> str:
    """Return the next line from a pipe, "" at its end."""
    said = b""
    while not said.endswith(b"\n"):
        part = os.read(descriptor, 1)
        if not part:
            break
        said += part
    return said.decode(errors="replace").strip()
