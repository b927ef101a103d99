"""A trainer in a process of its own that takes one step whenever it is told to.

Owns both ends of the talk: `Side` asks, `Gate` answers. Processes are apart so that neither
trainer's memory, threads or caches touch the other's; while one works the other waits for a line
and costs nothing.
"""

from __future__ import annotations

import json
import os
import resource
import subprocess
import sys
from collections.abc import Mapping, Sequence
from pathlib import Path
from types import TracebackType
from typing import IO, Any, Self

from turnwise.errors import RunError

LAST_LINES = 12


class Side:
    """One trainer's process; what it prints goes to a log in `folder`."""

    def __init__(
        self,
        name: str,
        command: Sequence[str],
        folder: Path,
        threads: int,
        environment: Mapping[str, str] | None = None,
    ) -> None:
        self.name = name
        self._log = folder / "log.txt"
        names = ("OMP_NUM_THREADS", "MKL_NUM_THREADS", "TORCH_NUM_THREADS")
        quiet = {"HF_HUB_OFFLINE": "1", "TOKENIZERS_PARALLELISM": "false"}
        with self._log.open("w") as log:
            self._process = subprocess.Popen(
                command,
                stdin=subprocess.PIPE,
                stdout=subprocess.PIPE,
                stderr=log,
                text=True,
                env=os.environ
                | quiet
                | dict.fromkeys(names, str(threads))
                | dict(environment or {}),
            )

    def ask(self, command: str) -> dict[str, Any]:
        """Send one command and return the answer.

        Raises:
            RunError: if the process has ended instead of answering.
        """
        self.send(command)
        return self.answer()

    def send(self, command: str) -> None:
        """Send one command."""
        assert self._process.stdin is not None
        try:
            self._process.stdin.write(command + "\n")
            self._process.stdin.flush()
        except BrokenPipeError:
            pass  # why is told by the answer that does not come

    def answer(self) -> dict[str, Any]:
        """Wait for the answer to the last command."""
        assert self._process.stdout is not None
        line = self._process.stdout.readline()
        if not line:
            said = self._log.read_text(errors="replace").strip().splitlines()[-LAST_LINES:]
            raise RunError(f"the process of {self.name!r} ended: " + "\n".join(said))
        return json.loads(line)

    def __enter__(self) -> Self:
        return self

    def __exit__(
        self,
        kind: type[BaseException] | None,
        error: BaseException | None,
        trace: TracebackType | None,
    ) -> None:
        self._process.kill()
        self._process.wait()


class Over(BaseException):
    """The other end has gone: nothing more is to be done."""


class Gate:
    """The process's end: answers what was done, and waits for the next command."""

    def __init__(self) -> None:
        self._answers: IO[str] = os.fdopen(os.dup(1), "w")
        os.dup2(2, 1)  # what libraries print goes to the log

    def wait(self) -> str:
        """Return the next command.

        Raises:
            Over: if there will be none.
        """
        line = sys.stdin.readline()
        if not line:
            raise Over
        return line.strip()

    def answer(self, **values: Any) -> None:
        """Answer the last command; the process's peak memory goes with it."""
        peak = resource.getrusage(resource.RUSAGE_SELF).ru_maxrss / 1024
        self._answers.write(json.dumps(values | {"peak_mb": peak}) + "\n")
        self._answers.flush()
