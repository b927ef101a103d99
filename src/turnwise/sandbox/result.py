"""The result of running a program: a value or a named failure, its output and its use of resources.

Provides `Limits`, `Job` and `Result`.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field
from typing import Any, Literal

from pydantic import Field, model_validator

from turnwise.sandbox.inside.frames import Order
from turnwise.settings import Settings

FailureName = Literal[
    "timeout", "cpu", "memory", "crash", "syntax", "exception", "output", "forbidden"
]
MEGABYTE = 1 << 20


class Limits(Settings):
    """The limits of one program. CPU time and steps do not depend on the load of the machine."""

    cpu: float = Field(default=1.0, gt=0, le=3600, allow_inf_nan=False)
    """Seconds of CPU time of all processes and threads of the program together."""
    wall: float = Field(default=10.0, gt=0, le=3600, allow_inf_nan=False)
    """Seconds of wall-clock time."""
    steps: int = Field(default=0, ge=0)
    """Number of executed lines, the same on every machine; 0 does not count lines, which is several
    times as fast. Work in C counts as one line."""
    memory: int = Field(default=256, ge=1)
    """Megabytes of memory beside that of the interpreter."""
    output: int = Field(default=1 << 20, ge=256)
    """Bytes of output on each of two streams, and bytes of the serialised value."""
    files: int = Field(default=16, ge=0)
    """Megabytes of files; all files are deleted afterwards."""
    processes: int = Field(default=1, ge=1, le=1000)
    """Processes at once, including its own. With 2 or more it may start other programs, each of
    which has all of `memory`; every thread then counts as a process."""
    threads: int = Field(default=8, ge=0, le=1000)
    """Threads at once beside the main thread, if `processes` is 1."""

    @model_validator(mode="after")
    def _check_threads(self) -> Limits:
        if self.processes > 1 and "threads" in self.model_fields_set:
            raise ValueError(
                f"threads = {self.threads} does not apply to processes = {self.processes}: the "
                "kernel counts both alike, so leave threads out and count them in processes"
            )
        return self

    def order(self, size: int) -> Order:
        """Return the limits for a worker, for a program of `size` bytes."""
        return Order(
            size=size,
            cpu=self.cpu,
            wall=self.wall,
            memory=self.memory * MEGABYTE,
            output=self.output,
            files=self.files * MEGABYTE,
            processes=self.processes,
            threads=self.threads,
        )


@dataclass(frozen=True, kw_only=True, slots=True)
class Job:
    """One program to run.

    `inputs` are the arguments of `call`, by position or by name. Without `call` the program is a
    script: inputs by name are its variables, others its variable `inputs`, and its value is its
    final variable `result`. Inputs and values are plain: None, bool, int, float, complex,
    str, bytes, lists, tuples, dicts, sets, and numpy's arrays of numbers.

    Example:
        >>> Job(program="def double(x): return 2 * x", inputs=(4,), call="double").stdin
        ''
    """

    program: str
    inputs: Sequence[Any] | Mapping[str, Any] = ()
    limits: Limits = field(default_factory=Limits)
    call: str = ""
    stdin: str = ""
    seed: int = 0


@dataclass(frozen=True, kw_only=True, slots=True)
class Result:
    """The outcome of a program. Every `failure` is the program's; a failed sandbox raises instead.

    `failure` is None, with the program's `value`; or it is "timeout" (wall-clock time), "cpu" (time
    or steps), "memory", "crash" (its process ended unexpectedly), "syntax", "exception", "output"
    (too much printed, written or returned) or "forbidden" (refused by isolation or limits).
    `message` has details, partly in the program's words. `line` is the program's line, 0 if
    none is known. Seconds are of CPU time and of the clock; `peak_memory` is in bytes, the
    interpreter's included.

    Example:
        >>> Result(value=8).ok, Result(failure="cpu", message="more than 1 s").ok
        (True, False)
    """

    value: Any = None
    failure: FailureName | None = None
    message: str = ""
    line: int = 0
    stdout: str = ""
    stderr: str = ""
    cpu_seconds: float = 0.0
    wall_seconds: float = 0.0
    peak_memory: int = 0

    @property
    def ok(self) -> bool:
        """Whether the program ended without a failure."""
        return self.failure is None
