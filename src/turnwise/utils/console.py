"""A console that survives a closed output, and text without markdown for it.

Provides `LastingConsole` and `without_markup`. A run continues when its terminal is closed or when
the program that reads its output ends, as `tee` does on the Ctrl-C that also stops the run.
"""

from __future__ import annotations

import os
import re
from typing import IO

from rich.console import Console


class LastingConsole(Console):
    """A console that discards output once its pipe is closed; rich's own ends the process."""

    def on_broken_pipe(self) -> None:
        """Discard all further output."""
        silence(self.file)


def silence(file: IO[str]) -> None:
    """Discard all further output to `file`."""
    nowhere = os.open(os.devnull, os.O_WRONLY)
    os.dup2(nowhere, file.fileno())
    os.close(nowhere)


def without_markup(sentence: str) -> str:
    """Return a sentence without the marks of bold text, for a terminal.

    Example:
        >>> without_markup("**All failed.** Run `turnwise check`.")
        'All failed. Run `turnwise check`.'
    """
    return re.sub(r"\*\*(?! )(.+?)\*\*", r"\1", sentence)
