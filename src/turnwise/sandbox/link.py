"""One worker, seen from the library: a process, what it is asked and what it answers.

Owns the worker's process and its pipes. Every wait has an end, every size a bound, and what a
program wrote is data (`verdict`).
"""

from __future__ import annotations

import json
import os
import signal
import subprocess
import tempfile
import time
from contextlib import suppress

from turnwise.errors import SandboxError
from turnwise.sandbox.backends import BACKENDS, ENVIRONMENT, ONE_THREAD, Name
from turnwise.sandbox.config import SandboxConfig
from turnwise.sandbox.inside import files, frames, wire
from turnwise.sandbox.inside.frames import BrokenFrameError, Order, Report, Task
from turnwise.sandbox.result import Job, Limits, Result
from turnwise.sandbox.verdict import read_result

START = 120.0
"""Seconds in which a worker must have imported its modules and built its walls."""
GRACE = 30.0
"""Seconds beyond a program's own by the clock, after which its worker counts as lost."""
LARGEST_JOB = 256 << 20
ON_HOST = ("landlock", "subprocess")
"""Backends whose programs write in folders of the host."""
_ENDED = "its worker ended"
_CANARY = Job(program="result = 6 * 7", limits=Limits(cpu=60.0, wall=60.0))


class LostError(Exception):
    """A worker died, hung or could not do its part: nothing that a program is to blame for."""


class RefusedError(Exception):
    """The kernel does not grant a backend's walls; the message says why."""


class WorkerLink:
    """A worker that waits for programs, and has run one.

    Raises:
        RefusedError: if its walls cannot be had.
        SandboxError: if it does not start for another reason.
        MissingDependencyError: if the program is not installed that starts it.
    """

    def __init__(self, config: SandboxConfig, name: Name) -> None:
        backend = BACKENDS[name]
        self.name: Name = name
        command = backend.command(config)
        self._scratch = ""
        self._errors = tempfile.TemporaryFile()  # noqa: SIM115
        self._process = subprocess.Popen(
            command,
            stdin=subprocess.PIPE,
            stdout=subprocess.PIPE,
            stderr=self._errors,
            env=ENVIRONMENT | ONE_THREAD | _paths(name),
            cwd="/",
            start_new_session=True,
        )
        assert self._process.stdin and self._process.stdout
        self._to, self._from = self._process.stdin.fileno(), self._process.stdout.fileno()
        for end in (self._to, self._from):
            os.set_blocking(end, False)
        self._alive = -1
        with suppress(OSError, AttributeError):  # where the kernel has no such descriptors
            self._alive = os.pidfd_open(self._process.pid)
        try:
            self._start(json.dumps(backend.setup(config)).encode())
        except BaseException:
            self.kill()
            raise

    def _start(self, setup: bytes) -> None:
        try:
            frames.write_text(self._to, setup, START)
            told = json.loads(frames.read_text(self._from, time.monotonic() + START))
        except (BrokenFrameError, OSError, ValueError) as cause:
            words = self._last_words() or str(cause)
            if words.startswith("bwrap: ") or words == _ENDED:  # as a filter of calls ends it
                raise RefusedError(words.removeprefix("bwrap: ")) from None
            raise SandboxError(f"a worker of the sandbox did not start: {words}") from None
        if "refused" in told:
            raise RefusedError(told["refused"])
        self._scratch = told["scratch"]
        try:
            result = self.run(_CANARY, wire.dump([], 100))
        except LostError as lost:
            raise RefusedError(str(lost)) from None
        if result.value != 42:
            raise RefusedError(f"a first program did not end well: {result.message}")

    def run(self, job: Job, inputs: bytes) -> Result:
        """Run one program.

        Raises:
            LostError: if the worker is lost before it answers.
        """
        limits = job.limits
        stdin = _encoded(job.stdin)
        data = Task(job.program, job.call, stdin, inputs, job.seed, limits.steps).pack()
        if len(data) > LARGEST_JOB:
            raise SandboxError(
                f"a program and its inputs take {len(data)} bytes: at most {LARGEST_JOB} can be run"
            )
        order = limits.order(len(data))
        deadline = time.monotonic() + limits.wall + GRACE
        try:
            frames.write_all(self._to, order.pack() + data, limits.wall + GRACE)
            report, parts = self._answer(order, deadline)
        except (BrokenFrameError, OSError) as cause:
            raise LostError(self._last_words() or f"{_ENDED}: {cause}") from None
        reason, record, stdout, stderr = parts
        if not report.stood:
            raise LostError(f"its walls did not stand: {reason.decode(errors='replace')[-300:]}")
        return read_result(job, report, record, stdout, stderr)

    def _answer(self, order: Order, deadline: float) -> tuple[Report, list[bytes]]:
        """Return the worker's report, and what follows it."""
        report = Report.unpack(self._read(frames.REPORT_SIZE, deadline))
        sizes = (report.reason, report.record, report.stdout, report.stderr)
        bounds = (frames.ROOM, order.output + frames.ROOM, order.output, order.output)
        if any(size > bound for size, bound in zip(sizes, bounds, strict=True)):
            raise BrokenFrameError("a report of more than was allowed")
        return report, [self._read(size, deadline) for size in sizes]

    def _read(self, size: int, deadline: float) -> bytes:
        return frames.read_exactly(self._from, size, deadline, self._alive)

    def close(self) -> None:
        """Let the worker end."""
        self._hang_up()
        with suppress(subprocess.TimeoutExpired):
            self._process.wait(5.0)
        self.kill()

    def end(self) -> None:
        """End the worker now, from any thread; its own finds it lost and clears it away."""
        if self._process.returncode is None:  # its number is still its own
            with suppress(ProcessLookupError, PermissionError):
                os.killpg(self._process.pid, signal.SIGKILL)

    def kill(self) -> None:
        """End the worker now, and clear away what it leaves. Never raises: threads serve on."""
        for step in (self.end, self._reap, self._hang_up, self._errors.close, self._clear):
            with suppress(Exception):  # the boundary: one step that fails must not keep the others
                step()

    def _reap(self) -> None:
        with suppress(ProcessLookupError):
            self._process.kill()
        self._process.wait()

    def _clear(self) -> None:
        if self._scratch and self.name in ON_HOST:
            files.remove_path(self._scratch)

    def _hang_up(self) -> None:
        for pipe in (self._process.stdin, self._process.stdout):
            if pipe is not None:
                with suppress(OSError):
                    pipe.close()
        if self._alive >= 0:
            os.close(self._alive)
            self._alive = -1

    def _last_words(self) -> str:
        """Return what the worker said before it ended, "" if it still runs."""
        self.end()  # before its number is given up: what it started goes with it
        with suppress(subprocess.TimeoutExpired):
            self._process.wait(1.0)
        if self._process.returncode is None:
            return ""
        self._errors.seek(0)
        lines = self._errors.read(1 << 16).decode(errors="replace").strip().splitlines()
        if lines and lines[-1].startswith("bwrap: "):
            return lines[-1][:300]
        return f"{_ENDED}: {' '.join(lines[-3:])[-300:]}" if lines else _ENDED


def _encoded(stdin: str) -> bytes:
    """Return text as a program reads it from standard input: half characters are bytes again."""
    try:
        return stdin.encode("utf-8", "surrogateescape")
    except UnicodeEncodeError:
        return stdin.encode("utf-8", "surrogatepass")


def _paths(name: Name) -> dict[str, str]:
    """Return what an interpreter, or a program that runs containers, needs of the environment."""
    names = ("LD_LIBRARY_PATH", "PYTHONHOME")
    if name == "container":
        names = ("PATH", "HOME", "XDG_RUNTIME_DIR", "DOCKER_HOST", "DOCKER_CONTEXT")
    return {name: os.environ[name] for name in names if name in os.environ}
