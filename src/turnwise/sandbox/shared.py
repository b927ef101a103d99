"""The sandbox that a whole process shares.

A run's recipe sets its options before training; otherwise it has the default options.
"""

from __future__ import annotations

import functools
import inspect
from collections.abc import Callable
from threading import Lock
from typing import Concatenate, ParamSpec, TypeVar

from turnwise.sandbox.config import SandboxConfig
from turnwise.sandbox.pool import Sandbox

P = ParamSpec("P")
T = TypeVar("T")
_LOCK = Lock()
_SHARED: list[Sandbox] = []


def shared() -> Sandbox:
    """Return the sandbox of this process."""
    with _LOCK:
        if not _SHARED:
            _SHARED.append(Sandbox())
        return _SHARED[0]


def configure(config: SandboxConfig) -> Sandbox:
    """Set the options of the shared sandbox; a sandbox with other options is closed."""
    with _LOCK:
        if _SHARED and _SHARED[0].config == config:
            return _SHARED[0]
        old = _SHARED[:]
        _SHARED[:] = [Sandbox(config)]
    for sandbox in old:
        sandbox.close()
    return _SHARED[0]


def _of_the_shared(method: Callable[Concatenate[Sandbox, P], T]) -> Callable[P, T]:
    """Return a method of `Sandbox` as a function of the shared one."""

    @functools.wraps(method)
    def call(*args: P.args, **kwargs: P.kwargs) -> T:
        return method(shared(), *args, **kwargs)

    own = inspect.signature(method)
    vars(call)["__signature__"] = own.replace(parameters=list(own.parameters.values())[1:])
    return call


run = _of_the_shared(Sandbox.run)
run_async = _of_the_shared(Sandbox.run_async)
run_batch = _of_the_shared(Sandbox.run_batch)
run_batch_async = _of_the_shared(Sandbox.run_batch_async)
