"""The sandbox that a whole process shares.

Owns it. A run's recipe sets its options before anything is played; without one it has the defaults.
"""

from __future__ import annotations

from collections.abc import Iterable, Mapping, Sequence
from threading import Lock
from typing import Any

from turnwise.sandbox.config import SandboxConfig
from turnwise.sandbox.pool import Sandbox
from turnwise.sandbox.result import Job, Limits, Result

_LOCK = Lock()
_SHARED: list[Sandbox] = []


def shared() -> Sandbox:
    """Return the sandbox of this process."""
    with _LOCK:
        if not _SHARED:
            _SHARED.append(Sandbox())
        return _SHARED[0]


def configure(config: SandboxConfig) -> Sandbox:
    """Set the options of the shared sandbox; what was started with others is closed."""
    with _LOCK:
        if _SHARED and _SHARED[0].config == config:
            return _SHARED[0]
        old = _SHARED[:]
        _SHARED[:] = [Sandbox(config)]
    for sandbox in old:
        sandbox.close()
    return _SHARED[0]


def run(
    program: str,
    inputs: Sequence[Any] | Mapping[str, Any] = (),
    limits: Limits | None = None,
    *,
    call: str = "",
    stdin: str = "",
    seed: int = 0,
) -> Result:
    """Run one program in the shared sandbox (`Sandbox.run`)."""
    return shared().run(program, inputs, limits, call=call, stdin=stdin, seed=seed)


async def run_async(
    program: str,
    inputs: Sequence[Any] | Mapping[str, Any] = (),
    limits: Limits | None = None,
    *,
    call: str = "",
    stdin: str = "",
    seed: int = 0,
) -> Result:
    """Run one program in the shared sandbox, and let other coroutines go on meanwhile."""
    box = shared()
    return await box.run_async(program, inputs, limits, call=call, stdin=stdin, seed=seed)


def run_batch(jobs: Iterable[Job]) -> list[Result]:
    """Run programs side by side in the shared sandbox (`Sandbox.run_batch`)."""
    return shared().run_batch(jobs)


async def run_batch_async(jobs: Iterable[Job]) -> list[Result]:
    """Run programs side by side, and let other coroutines go on meanwhile."""
    return await shared().run_batch_async(jobs)
