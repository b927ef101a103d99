"""The backends of the sandbox: the command that starts a worker, and its isolation.

Provides the table `BACKENDS`, and `candidates`, the backends that a configuration may use. To add a
backend, write its command and add a line.
"""

from __future__ import annotations

import importlib.util
import itertools
import json
import os
import shlex
import shutil
import sys
from collections.abc import Callable, Mapping
from dataclasses import dataclass
from pathlib import Path
from typing import Any, Literal

from turnwise.errors import MissingDependencyError, SandboxError
from turnwise.sandbox.config import SandboxConfig
from turnwise.sandbox.inside.isolation import DEVICES, MOUNTED, NOBODY, Kind, scratch_among

INSIDE = Path(__file__).parent / "inside"
ENVIRONMENT = {
    "PATH": "/usr/bin:/bin",
    "LANG": "C.UTF-8",
    "PYTHONHASHSEED": "0",
    "MALLOC_ARENA_MAX": "1",
    "LD_BIND_NOW": "1",  # otherwise each child resolves the same functions
}
ONE_THREAD = {"OMP_NUM_THREADS": "1", "OPENBLAS_NUM_THREADS": "1", "MKL_NUM_THREADS": "1"}
IMAGE = "python:3.11-slim"
RUNTIMES = ("crun", "kata-runtime", "runc", "runsc", "youki")
"""Helper programs with which docker and podman start containers."""
_SHOWN = "/sandbox"
"""The folder of a worker's own modules in bubblewrap."""
_LONE_USERS, _USERS = 30_000, 30_000
_STARTED = itertools.count(os.getpid())

Name = Literal["bubblewrap", "namespaces", "landlock", "container", "subprocess"]


@dataclass(frozen=True, kw_only=True, slots=True)
class Backend:
    """A backend: the command that starts a worker, and the isolation requested from the worker.

    `promise` describes its isolation in one sentence; `warning` is printed once, at its first use.

    Example:
        >>> BACKENDS["namespaces"].warning
        ''
    """

    command: Callable[[SandboxConfig], list[str]]
    isolation: Kind
    promise: str
    warning: str = ""

    def setup(self, config: SandboxConfig) -> dict[str, Any]:
        """Return the first message to a worker, before any program."""
        return {
            "isolation": self.isolation,
            "readable": paths_to_read(config),
            "preload": list(config.preload),
            "network": config.network,
        }


def candidates(config: SandboxConfig) -> list[Name]:
    """Return the backends to try, the best first."""
    if config.backend != "isolated":
        return [config.backend]
    installed = shutil.which("bwrap") is not None
    return ["bubblewrap", "namespaces"] if installed else ["namespaces"]


def paths_to_read(config: SandboxConfig) -> list[str]:
    """Return the paths that this interpreter and its libraries require."""
    packages = ("site-packages", "dist-packages")
    listed = [sys.prefix, sys.base_prefix, "/usr", "/bin", "/lib", "/lib64", "/etc/ld.so.cache"]
    listed += [path for path in sys.path if os.path.basename(path) in packages]
    listed += [path for name in config.preload for path in _paths_of(name)]
    if config.network:
        listed += ["/etc/resolv.conf", "/etc/hosts", "/etc/nsswitch.conf", "/etc/ssl/certs"]
    wanted: list[str] = []
    both = {path for p in listed for path in (os.path.abspath(p), os.path.realpath(p))}
    for path in sorted(both, key=lambda path: (len(path), path)):
        if path != "/" and not any(path.startswith(f"{known}/") for known in wanted):
            wanted.append(path)
    return wanted


def _paths_of(module: str) -> list[str]:
    """Return the folders of a package, or the file of a module."""
    try:
        spec = importlib.util.find_spec(module.partition(".")[0])
    except (ImportError, ValueError):
        spec = None
    if spec is None:
        return []
    folders = list(spec.submodule_search_locations or ())
    return folders or ([spec.origin] if spec.origin and os.path.isabs(spec.origin) else [])


def _local(config: SandboxConfig, inside: str = str(INSIDE)) -> list[str]:
    """Return the command of a worker on this machine, with its modules in `inside`."""
    paths = json.dumps([os.path.abspath(path) for path in sys.path])
    return [sys.executable, "-s", "-P", inside, paths]


def _bubblewrapped(config: SandboxConfig) -> list[str]:
    """Return the command of a worker in namespaces made by bubblewrap.

    Root stays root until the worker has dropped its rights: it can then mount folders that an
    unprivileged user cannot reach.
    """
    program = shutil.which("bwrap")
    if program is None:
        raise MissingDependencyError(
            "sandbox.backend = 'bubblewrap' needs the program bwrap: install the package "
            "bubblewrap, or use sandbox.backend = 'isolated'"
        )
    readable = [path for path in paths_to_read(config) if os.path.exists(path)]
    spaces = ["--unshare-pid", "--unshare-ipc", "--unshare-uts", "--hostname", "sandbox"]
    spaces += [] if config.network else ["--unshare-net"]
    if os.geteuid() == 0:
        spaces += ["--cap-drop", "ALL", "--cap-add", "CAP_SETUID", "--cap-add", "CAP_SETGID"]
    else:
        spaces += ["--unshare-user", "--uid", str(NOBODY), "--gid", str(NOBODY)]
    shown: list[str] = []
    parents = {parent for path in (*readable, "/dev/null") for parent in Path(path).parents}
    for folder in sorted(map(str, parents - {Path("/")}), key=len):
        shown += ["--dir", folder]  # otherwise it would be readable for root only
    for path in readable:
        link = os.path.islink(path)
        shown += ["--symlink", os.readlink(path), path] if link else ["--ro-bind", path, path]
    for name in DEVICES:
        shown += ["--dev-bind", f"/dev/{name}", f"/dev/{name}"]
    empty = ["--proc", "/proc", "--dir", scratch_among(readable), "--remount-ro", "/"]
    worker = ["--ro-bind", str(INSIDE), _SHOWN]
    command = ["--chdir", "/", "--", *_local(config, _SHOWN)]
    return [program, "--as-pid-1", *spaces, *shown, *worker, *empty, *command]


def _contained(config: SandboxConfig) -> list[str]:
    """Return the command of a worker in a container without network, capabilities or a disk.

    Each container has its own user, so that the kernel's process limit counts it alone.
    """
    words = shlex.split(config.runtime or "docker")
    if os.path.basename(words[0]) in RUNTIMES:
        words = ["docker", f"--runtime={words[0]}", *words[1:]]
    program = shutil.which(words[0])
    if program is None:
        raise MissingDependencyError(
            f"sandbox.runtime = {words[0]!r} is not a program on the PATH: install docker or "
            "podman, or use sandbox.backend = 'isolated'"
        )
    network = [] if config.network else ["--network", "none"]
    environment = [
        word for kv in (ENVIRONMENT | ONE_THREAD).items() for word in ("--env", "=".join(kv))
    ]
    user = _LONE_USERS + next(_STARTED) % _USERS
    return [
        *(program, "run", *words[1:], "--rm", "--interactive", "--read-only", *network),
        *("--cap-drop", "ALL", "--security-opt", "no-new-privileges", "--ipc", "none"),
        *("--user", f"{user}:{user}", "--pids-limit", "1024"),
        *("--tmpfs", f"{MOUNTED}:rw,noexec,nosuid,nodev,size=256m,nr_inodes=4096,mode=1777"),
        *(*environment, "--volume", f"{INSIDE}:/turnwise/inside:ro"),
        *(config.image or IMAGE, "python3", "-s", "-P", "/turnwise/inside", "[]"),
    ]


_ISOLATED = (
    "a root folder, users, processes and network of their own, and for each program a file system "
    "of its own; system calls filtered"
)
BACKENDS: Mapping[Name, Backend] = {
    "bubblewrap": Backend(
        command=_bubblewrapped, isolation="bubblewrap", promise=f"bubblewrap: {_ISOLATED}"
    ),
    "namespaces": Backend(
        command=_local, isolation="namespaces", promise=f"namespaces: {_ISOLATED}"
    ),
    "landlock": Backend(
        command=_local,
        isolation="landlock",
        promise="Landlock: the host's files and ports closed, system calls filtered; weaker",
        warning=(
            "sandbox.backend = 'landlock' promises less than 'isolated': programs see the host's "
            "name and processes' numbers, files and threads are bounded only within milliseconds; "
            "allow user namespaces or take 'container' for programs that may be hostile"
        ),
    ),
    "container": Backend(
        command=_contained,
        isolation="container",
        promise="a container without network or rights; system calls filtered",
    ),
    "subprocess": Backend(
        command=_local,
        isolation="none",
        promise="no isolation: programs read, write and reach what you can",
        warning=(
            "sandbox.backend = 'subprocess' limits programs but does not isolate them: they read "
            "and write your files and reach the network as you do; use it for programs you trust"
        ),
    ),
}


def refused(reasons: Mapping[str, str]) -> SandboxError:
    """Return the error for backends that are all unavailable, with the reason of each."""
    told = "; ".join(f"{name}: {reason}" for name, reason in reasons.items())
    return SandboxError(
        f"programs cannot be isolated here ({told}): allow unprivileged user namespaces, or set "
        "sandbox.backend = 'container', 'landlock', which promises less, or 'subprocess' for "
        "programs you trust"
    )
