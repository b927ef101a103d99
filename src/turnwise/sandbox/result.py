"""What comes of running a program: a value, or a named failure; and what it said and used.

Owns the nouns `Limits`, `Job` and `Result`. Knows nothing of how programs are run.
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
    """What one program may use. What decides is CPU time or steps, which load does not change."""

    cpu: float = Field(default=1.0, gt=0, le=3600, allow_inf_nan=False)
    """Seconds of CPU time of the program's processes, all their threads together."""
    wall: float = Field(default=10.0, gt=0, le=3600, allow_inf_nan=False)
    """Seconds by the clock, for programs that wait for nothing."""
    steps: int = Field(default=0, ge=0)
    """Lines that may run, to the line the same on every machine; 0 does not count them, which is
    several times as fast. What one line does in C counts as one."""
    memory: int = Field(default=256, ge=1)
    """Megabytes that it may take beside what the interpreter has already."""
    output: int = Field(default=1 << 20, ge=256)
    """Bytes that it may print, on each of two streams, and bytes of its value as written."""
    files: int = Field(default=16, ge=0)
    """Megabytes of files that it may write, all of which are gone afterwards."""
    processes: int = Field(default=1, ge=1, le=1000)
    """Processes at once, its own counted. From 2 on it may start other programs, each of which has
    all of `memory`; every thread then counts as a process."""
    threads: int = Field(default=8, ge=0, le=1000)
    """Threads at once beside the first, where `processes` is 1."""

    @model_validator(mode="after")
    def _check_threads(self) -> Limits:
        if self.processes > 1 and "threads" in self.model_fields_set:
            raise ValueError(
                f"threads = {self.threads} does not apply to processes = {self.processes}: the "
                "kernel counts both alike, so leave threads out and count them in processes"
            )
        return self

    def order(self, size: int) -> Order:
        """Return the limits as a worker takes them, for a program of `size` bytes."""
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
    script: inputs by name are its variables, others its variable `inputs`, and what it calls
    `result` in the end is its value. Inputs and values are plain: None, bool, int, float, complex,
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
    """How a program ended. Every `failure` is the program's own; a broken sandbox raises instead.

    `failure` is None, and `value` the program's; or it is "timeout" (by the clock), "cpu" (time or
    steps), "memory", "crash" (its process ended before it did), "syntax", "exception", "output"
    (too much printed, written or returned) or "forbidden" (what the walls or limits refuse), and
    `message` says more, in words that are partly the program's. `line` is the program's line, 0 if
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
        """Whether the program came to its end."""
        return self.failure is None
