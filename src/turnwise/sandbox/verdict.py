"""The `Result` of a program, from its worker's measurements and the program's record.

Provides `read_result`. Everything that the program wrote is data of bounded size: it determines its
own value and the message of its own failure, and nothing else.
"""

from __future__ import annotations

import os
import signal
from typing import Any, cast

import numpy

from turnwise.sandbox.inside import frames, wire
from turnwise.sandbox.inside.frames import Report
from turnwise.sandbox.result import FailureName, Job, Result

_TOLD: dict[str, FailureName] = {
    name: name for name in ("syntax", "exception", "memory", "output", "forbidden", "cpu", "crash")
}
"""The failures that a program's own process reports."""
_LONGEST = 1000
_UNREADABLE = "its result cannot be read"


def read_result(job: Job, report: Report, record: bytes, stdout: bytes, stderr: bytes) -> Result:
    """Return the result of a job."""
    value, failure, message, line = _judged(job, report, record)
    return Result(
        value=value,
        failure=failure,
        message=_printable(message)[:_LONGEST],
        line=line,
        stdout=stdout.decode(errors="replace"),
        stderr=stderr.decode(errors="replace"),
        cpu_seconds=report.cpu,
        wall_seconds=report.wall,
        peak_memory=report.peak,
    )


def _judged(job: Job, report: Report, record: bytes) -> tuple[Any, FailureName | None, str, int]:
    """Return value, failure, message and line."""
    limits = job.limits
    beyond: dict[int, tuple[FailureName, str]] = {
        frames.CPU: ("cpu", f"more than {limits.cpu:g} s of CPU time"),
        frames.TIMEOUT: ("timeout", f"more than {limits.wall:g} s"),
        frames.FILES: ("output", f"more than {limits.files} MB in files"),
        frames.THREADS: ("forbidden", f"more than {limits.threads} threads beside the first"),
        frames.STDOUT: ("output", f"more than {limits.output} bytes printed"),
        frames.STDERR: ("output", f"more than {limits.output} bytes of errors printed"),
    }
    ended = frames.CPU if not report.ended and report.cpu >= limits.cpu else report.ended
    if ended != frames.NONE:
        return None, *beyond.get(ended, ("crash", _UNREADABLE)), 0
    if os.WIFSIGNALED(report.status):
        return None, *_of_signal(os.WTERMSIG(report.status)), 0
    if not record:
        code = os.WEXITSTATUS(report.status)
        return None, "crash", f"it ended its process, with status {code}", 0
    try:
        said = wire.load(record, lambda: numpy)
    except wire.NotPlainError:
        return None, "crash", _UNREADABLE, 0
    return _told(said)


def _told(said: Any) -> tuple[Any, FailureName | None, str, int]:
    """Return the content of a record, if it is well-formed."""
    if type(said) is tuple and len(said) == 2 and type(said[0]) is str and said[0] == "value":
        return said[1], None, "", 0
    if type(said) is tuple and tuple(map(type, said)) == (str, str, str, int):
        mark, kind, message, line = cast("tuple[str, str, str, int]", said)
        if mark == "failed" and kind in _TOLD and 0 <= line < 1 << 31:
            return None, _TOLD[kind], message, line
    return None, "crash", _UNREADABLE, 0


def _of_signal(number: int) -> tuple[FailureName, str]:
    """Return the failure for a process that was ended by a signal not sent by the worker."""
    if number == signal.SIGSYS:
        return "forbidden", "it made a system call that programs may not make"
    if number == signal.SIGXCPU:
        return "cpu", "more CPU time than allowed"
    if number == signal.SIGXFSZ:
        return "output", "a larger file than allowed"
    try:
        name = signal.Signals(number).name
    except ValueError:
        name = f"signal {number}"
    return "crash", f"it was ended by {name}"


def _printable(text: str) -> str:
    """Return text that can be encoded; lone surrogates are escaped."""
    return text.encode("utf-8", "backslashreplace").decode()
