"""The library's connection to one worker: its process and its pipes.

Provides `Worker`. Every wait has a limit and every size a bound. Output of a program is parsed as
data (`verdict`).
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
"""Seconds in which a worker must import its modules and complete its isolation."""
GRACE = 30.0
"""Seconds of wall-clock time beyond a program's limit, after which its worker counts as lost."""
LARGEST_JOB = 256 << 20
ON_HOST = ("landlock", "subprocess")
"""Backends whose programs write to folders of the host."""
_ENDED = "its worker ended"
_CANARY = Job(program="result = 6 * 7", limits=Limits(cpu=60.0, wall=60.0))


class LostError(Exception):
    """A worker died, hung or failed in its own work; the program is not at fault."""


class RefusedError(Exception):
    """The kernel does not allow the isolation of a backend; the message has the reason."""


class WorkerLink:
    """A running worker that waits for programs and has run one.

    Raises:
        RefusedError: if the kernel refuses its isolation.
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
        with suppress(OSError, AttributeError):  # kernels without pidfds
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
            if words.startswith("bwrap: ") or words == _ENDED:  # ended by a filter of system calls
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
            raise RefusedError(f"a first program failed: {result.message}")

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
        if not report.isolated:
            raise LostError(
                f"its isolation could not be completed: {reason.decode(errors='replace')[-300:]}"
            )
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
        """Tell the worker to end."""
        self._hang_up()
        with suppress(subprocess.TimeoutExpired):
            self._process.wait(5.0)
        self.kill()

    def end(self) -> None:
        """Kill the worker from any thread; its own thread then finds it lost and cleans up."""
        if self._process.returncode is None:  # its process id is still valid
            with suppress(ProcessLookupError, PermissionError):
                os.killpg(self._process.pid, signal.SIGKILL)

    def kill(self) -> None:
        """Kill the worker and clean up after it. Never raises, because its thread must continue."""
        for step in (self.end, self._reap, self._hang_up, self._errors.close, self._clear):
            with suppress(Exception):  # the boundary: a failed step must not prevent the others
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
        """Return the last output of the worker, "" if it still runs."""
        self.end()  # before its process id is released, so that its children end with it
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
    """Return text as standard input bytes; lone surrogates become bytes again."""
    try:
        return stdin.encode("utf-8", "surrogateescape")
    except UnicodeEncodeError:
        return stdin.encode("utf-8", "surrogatepass")


def _paths(name: Name) -> dict[str, str]:
    """Return the environment variables that an interpreter or a container program needs."""
    names = ("LD_LIBRARY_PATH", "PYTHONHOME")
    if name == "container":
        names = ("PATH", "HOME", "XDG_RUNTIME_DIR", "DOCKER_HOST", "DOCKER_CONTEXT")
    return {name: os.environ[name] for name in names if name in os.environ}
