"""A trainer in a separate process that takes one step on request.

Provides both ends of the pipe: `Worker` sends requests and `StepServer` answers them. Separate
processes keep the memory, threads and caches of the trainers apart. A process that waits for a line
uses no CPU time.
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


class Worker:
    """The process of one trainer; its output goes to a log in `folder`.

    `threads` None leaves the number of threads to torch.
    """

    def __init__(
        self,
        name: str,
        command: Sequence[str],
        folder: Path,
        threads: int | None,
        environment: Mapping[str, str] | None = None,
    ) -> None:
        self.name = name
        self._log = folder / "log.txt"
        names = ("OMP_NUM_THREADS", "MKL_NUM_THREADS", "TORCH_NUM_THREADS")
        quiet = {"HF_HUB_OFFLINE": "1", "TOKENIZERS_PARALLELISM": "false"}
        kept = {name: value for name, value in os.environ.items() if name not in names}
        count = {} if threads is None else dict.fromkeys(names, str(threads))
        with self._log.open("w") as log:
            self._process = subprocess.Popen(
                command,
                stdin=subprocess.PIPE,
                stdout=subprocess.PIPE,
                stderr=log,
                text=True,
                env=kept | quiet | count | dict(environment or {}),
            )

    def ask(self, command: str) -> dict[str, Any]:
        """Send one command and return the answer.

        Raises:
            RunError: if the process ended without an answer.
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
            pass  # `answer` reports the reason

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


class ParentExited(BaseException):
    """The parent process has closed the pipe, so the trainer ends."""


class StepServer:
    """The trainer's end of the pipe: answers a request and waits for the next one."""

    def __init__(self) -> None:
        self._answers: IO[str] = os.fdopen(os.dup(1), "w")
        os.dup2(2, 1)  # output of libraries goes to the log

    def wait(self) -> str:
        """Return the next command.

        Raises:
            ParentExited: if the pipe is closed.
        """
        line = sys.stdin.readline()
        if not line:
            raise ParentExited
        return line.strip()

    def answer(self, **values: Any) -> None:
        """Answer the last command, together with the peak memory of the process."""
        peak = resource.getrusage(resource.RUSAGE_SELF).ru_maxrss / 1024
        self._answers.write(json.dumps(values | {"peak_mb": peak}) + "\n")
        self._answers.flush()
