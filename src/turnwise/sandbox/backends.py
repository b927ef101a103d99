"""The ways to keep programs apart, by name: how a worker is started, what it is to stand behind.

Owns the table. To add one: write its command and what its first frame asks for, and add a line.
"""

from __future__ import annotations

import json
import os
import shutil
import sys
from collections.abc import Callable, Mapping
from dataclasses import dataclass
from pathlib import Path
from typing import Any, Literal

from turnwise.errors import MissingDependencyError
from turnwise.sandbox.config import SandboxConfig

INSIDE = Path(__file__).parent / "inside"
ENVIRONMENT = {
    "PATH": "/usr/bin:/bin",
    "LANG": "C.UTF-8",
    "PYTHONHASHSEED": "0",
    "MALLOC_ARENA_MAX": "1",
}
ONE_THREAD = {"OMP_NUM_THREADS": "1", "OPENBLAS_NUM_THREADS": "1", "MKL_NUM_THREADS": "1"}
IMAGE = "python:3.11-slim"


@dataclass(frozen=True, kw_only=True, slots=True)
class Backend:
    """One way: the command that starts a worker, the walls it asks for, the best first.

    `warning` is said once, when it is first used; empty where nothing needs to be said.

    Example:
        >>> BACKENDS["isolated"].warning
        ''
    """

    command: Callable[[SandboxConfig], list[str]]
    walls: tuple[Literal["namespaces", "landlock", "container"], ...]
    warning: str = ""

    def first_frame(self, config: SandboxConfig) -> dict[str, Any]:
        """Return what a worker is told before any program."""
        return {
            "walls": list(self.walls),
            "readable": _paths_to_read(config.network),
            "preload": list(config.preload),
            "network": config.network,
        }


def _paths_to_read(network: bool) -> list[str]:
    """Return the paths without which this interpreter and its libraries do not work."""
    packages = ("site-packages", "dist-packages")
    listed = [sys.prefix, sys.base_prefix, "/usr", "/bin", "/lib", "/lib64", "/etc/ld.so.cache"]
    listed += [path for path in sys.path if os.path.basename(path) in packages]
    wanted: list[str] = []
    if network:
        listed += ["/etc/resolv.conf", "/etc/hosts", "/etc/nsswitch.conf", "/etc/ssl/certs"]
    both = {path for p in listed for path in (os.path.abspath(p), os.path.realpath(p))}
    for path in sorted(both, key=len):
        if path != "/" and not any(path.startswith(f"{known}/") for known in wanted):
            wanted.append(path)
    return wanted


def _local(config: SandboxConfig) -> list[str]:
    """Return the command of a worker on this machine."""
    return [
        sys.executable,
        "-s",
        "-P",
        str(INSIDE),
        json.dumps([os.path.abspath(p) for p in sys.path]),
    ]


def _contained(config: SandboxConfig) -> list[str]:
    """Return the command of a worker in a container, without network, rights or a disk."""
    asked = config.runtime or "docker"
    runtime = shutil.which(asked)
    if runtime is None:
        raise MissingDependencyError(
            f"sandbox.runtime = {asked!r} is no program on the PATH: install docker or "
            "podman, or take sandbox.backend = 'isolated'"
        )
    network = [] if config.network else ["--network", "none"]
    environment = [
        word for kv in (ENVIRONMENT | ONE_THREAD).items() for word in ("--env", "=".join(kv))
    ]
    return [
        *(runtime, "run", "--rm", "--interactive", "--read-only", *network),
        *("--cap-drop", "ALL", "--security-opt", "no-new-privileges"),
        *("--user", "65534:65534", "--pids-limit", "1024"),
        *("--tmpfs", "/tmp:rw,size=1g,mode=1777", *environment),
        *("--volume", f"{INSIDE}:/turnwise/sandbox/inside:ro"),
        *(config.image or IMAGE, "python3", "-s", "-P", "/turnwise/sandbox/inside", "[]"),
    ]


BACKENDS: Mapping[str, Backend] = {
    "isolated": Backend(command=_local, walls=("namespaces", "landlock")),
    "subprocess": Backend(
        command=_local,
        walls=(),
        warning=(
            "sandbox.backend = 'subprocess' limits programs but does not wall them in: they read "
            "and write your files and reach the network as you do; use it for programs you trust"
        ),
    ),
    "container": Backend(command=_contained, walls=("container",)),
}
