"""A sandbox for programs that a model wrote: the result is a value or a named failure.

`run`, `run_async`, `run_batch` and `run_batch_async` use one sandbox for the whole process, whose
options `configure` sets; `Sandbox` makes another. Expected results of a program are not passed to
the sandbox.
"""

from __future__ import annotations

from turnwise.sandbox.config import SandboxConfig
from turnwise.sandbox.marks import is_marked, runs_programs
from turnwise.sandbox.pool import Sandbox
from turnwise.sandbox.result import FailureName, Job, Limits, Result
from turnwise.sandbox.shared import configure, run, run_async, run_batch, run_batch_async, shared

__all__ = [
    "FailureName",
    "Job",
    "Limits",
    "Result",
    "Sandbox",
    "SandboxConfig",
    "configure",
    "is_marked",
    "run",
    "run_async",
    "run_batch",
    "run_batch_async",
    "runs_programs",
    "shared",
]
