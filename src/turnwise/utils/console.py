"""A console that survives a closed output, and text for it: without markdown, and tables.

Provides `LastingConsole`, `without_markup`, `printable` and `aligned`. A run continues when its
terminal is closed or when the program that reads its output ends, as `tee` does on the Ctrl-C that
also stops the run.
"""

from __future__ import annotations

import os
import re
from collections.abc import Sequence
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


def printable(text: str) -> str:
    r"""Return text that cannot control a terminal: other characters are written as escapes.

    Example:
        >>> printable("a\tb\x1b[2J")
        'a\tb\\x1b[2J'
    """
    return "".join(c if c.isprintable() or c in "\n\t" else repr(c)[1:-1] for c in text)


def aligned(rows: Sequence[Sequence[str]]) -> list[str]:
    """Return the rows of a table as lines, their columns below one another.

    Example:
        >>> aligned([("player", "score"), ("random", "0.1")])
        ['player  score', 'random  0.1']
    """
    widths = [max(map(len, column)) for column in zip(*rows, strict=True)]
    return [
        "  ".join(text.ljust(width) for text, width in zip(row, widths, strict=True)).rstrip()
        for row in rows
    ]
