"""A console that survives a closed output, and whose text does not control the terminal.

Provides `LastingConsole` and `silence`. A run continues when its terminal is closed or when the
program that reads its output ends, as `tee` does on the Ctrl-C that also stops the run. Text of
users, envs and models reaches a terminal through a `LastingConsole`.
"""

from __future__ import annotations

import os
from typing import IO, Any

from rich.console import Console
from rich.text import Text

from turnwise.utils.text import printable


class LastingConsole(Console):
    """A console that discards output once its pipe is closed; rich's own ends the process.

    The text that it prints is `printable`; styles are its own.
    """

    def render_str(self, text: str, **options: Any) -> Text:
        """Return text as rich renders it, without control characters; ":x:" is no emoji."""
        options["emoji"] = False
        return super().render_str(printable(text), **options)

    def on_broken_pipe(self) -> None:
        """Discard all further output."""
        silence(self.file)


def silence(file: IO[str]) -> None:
    """Discard all further output to `file`."""
    nowhere = os.open(os.devnull, os.O_WRONLY)
    os.dup2(nowhere, file.fileno())
    os.close(nowhere)
