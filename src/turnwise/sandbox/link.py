"""One worker, seen from the library: a process, what it is asked and what it answers.

Owns the worker's process and its pipes. Takes nothing that comes from there for more than data.
"""

from __future__ import annotations

import os
import select
import shutil
import subprocess
import tempfile
from contextlib import suppress
from typing import Any

from turnwise.errors import SandboxError
from turnwise.sandbox.backends import BACKENDS, ENVIRONMENT, ONE_THREAD
from turnwise.sandbox.config import SandboxConfig
from turnwise.sandbox.inside.wire import NotPlainError, load, read_frame, write_frame
from turnwise.sandbox.result import Job, Result

START = 120.0
"""Seconds in which a worker must have imported its modules and built its walls."""
GRACE = 10.0
"""Seconds beyond a program's own by the clock, after which its worker counts as lost."""


class LostError(Exception):
    """A worker died, hung or could not do its part: nothing that a program is to blame for."""


class WorkerLink:
    """A worker that waits for programs.

    Raises:
        SandboxError: if it does not come to that; the message says why, and what to do.
    """

    def __init__(self, config: SandboxConfig) -> None:
        backend = BACKENDS[config.backend]
        self._errors = tempfile.TemporaryFile()  # noqa: SIM115
        self._process = subprocess.Popen(
            backend.command(config),
            stdin=subprocess.PIPE,
            stdout=subprocess.PIPE,
            stderr=self._errors,
            env=ENVIRONMENT | ONE_THREAD | _paths(config),
            cwd="/",
            start_new_session=True,
        )
        assert self._process.stdin and self._process.stdout
        self._to, self._from = self._process.stdin.fileno(), self._process.stdout.fileno()
        self._scratch = ""
        try:
            write_frame(self._to, backend.first_frame(config))
            told, _ = self._answer(START)
        except (LostError, OSError) as cause:
            self.kill()
            raise SandboxError(f"a worker of the sandbox did not start: {cause}") from None
        if "refused" in told:
            self.kill()
            raise SandboxError(
                f"programs cannot be isolated here ({told['refused']}): allow unprivileged user "
                "namespaces or Landlock, or set sandbox.backend = 'container', or 'subprocess' for "
                "programs you trust"
            )
        self.walls, self._scratch = told["walls"], told["scratch"]

    def run(self, job: Job, inputs: bytes) -> Result:
        """Run one program.

        Raises:
            LostError: if the worker is lost before it answers.
        """
        header = {"call": job.call, "seed": job.seed, "limits": job.limits.told()}
        source = job.program.encode("utf-8", "surrogatepass")
        stdin = job.stdin.encode("utf-8", "surrogateescape")
        try:
            write_frame(self._to, header, (source, inputs, stdin))
        except OSError:
            raise LostError(self._last_words()) from None
        told, (value, out, err) = self._answer(job.limits.wall + GRACE)
        if not told["stood"]:
            raise LostError(f"its walls did not stand: {err.decode(errors='replace')[-300:]}")
        failure, message, line = told["failure"] or None, "", 0
        found = None
        if failure is None:
            try:
                _, found = load(value)
            except (NotPlainError, ValueError):
                failure, message = "crash", "what it left behind cannot be read"
        else:
            message, line = told["message"], told["line"]
        return Result(
            value=found,
            failure=failure,
            message=message,
            line=line,
            stdout=out.decode(errors="replace"),
            stderr=err.decode(errors="replace"),
            cpu_seconds=told["cpu"],
            wall_seconds=told["wall"],
            peak_memory=told["peak"],
        )

    def close(self) -> None:
        """Let the worker end."""
        self._hang_up()
        with suppress(subprocess.TimeoutExpired):
            self._process.wait(5.0)
        self.kill()

    def kill(self) -> None:
        """End the worker now, and clear away what it leaves."""
        with suppress(ProcessLookupError):
            self._process.kill()
        self._process.wait()
        self._hang_up()
        self._errors.close()
        if self._scratch and self.walls in ("landlock", "none"):
            shutil.rmtree(self._scratch, ignore_errors=True)

    def _hang_up(self) -> None:
        for pipe in (self._process.stdin, self._process.stdout):
            if pipe is not None:
                with suppress(OSError):
                    pipe.close()

    def _answer(self, seconds: float) -> tuple[dict[str, Any], list[bytes]]:
        """Return the worker's next frame.

        Raises:
            LostError: if none comes in time.
        """
        poll = select.poll()
        poll.register(self._from, select.POLLIN)
        if not poll.poll(1e3 * seconds):
            raise LostError(f"it did not answer within {seconds:g} s")
        try:
            return read_frame(self._from)
        except EOFError:
            raise LostError(self._last_words()) from None

    def _last_words(self) -> str:
        """Return what the worker said before it ended."""
        with suppress(subprocess.TimeoutExpired):
            self._process.wait(1.0)
        self._errors.seek(0)
        lines = self._errors.read().decode(errors="replace").strip().splitlines()
        return f"its worker ended: {' '.join(lines[-3:])[-300:]}" if lines else "its worker ended"


def _paths(config: SandboxConfig) -> dict[str, str]:
    """Return what an interpreter, or a program that runs containers, needs of the environment."""
    names = ("LD_LIBRARY_PATH", "PYTHONHOME")
    if config.backend == "container":
        names = ("PATH", "HOME", "XDG_RUNTIME_DIR", "DOCKER_HOST", "DOCKER_CONTEXT")
    return {name: os.environ[name] for name in names if name in os.environ}
