"""A console that outlives its reader.

Provides `LastingConsole`: a run goes on, and is saved, when the terminal is closed or the program
that its output is piped into ends, as `tee` does on the Ctrl-C that also stops the run.
"""

from __future__ import annotations

import os
from typing import IO

from rich.console import Console


class LastingConsole(Console):
    """A console whose output goes nowhere once nobody reads it; rich's own ends the process."""

    def on_broken_pipe(self) -> None:
        """Let what is written from now on go nowhere."""
        silence(self.file)


def silence(file: IO[str]) -> None:
    """Let what is written to `file` from now on go nowhere."""
    nowhere = os.open(os.devnull, os.O_WRONLY)
    os.dup2(nowhere, file.fileno())
    os.close(nowhere)
