"""Reports of calls that neither return nor can be interrupted.

A C function that does not return to Python ignores every time limit. `report` is called from
another thread and writes a message to standard error. Inside `ending_process`, which the command
line uses, it also ends the process with `EXIT_CODE`. Programs that import turnwise, and notebooks,
are not ended.
"""

from __future__ import annotations

import os
import sys
from collections.abc import Callable, Iterator
from contextlib import contextmanager, suppress

from turnwise.utils.text import printable

EXIT_CODE = 2
"""The exit code of a process that `report` ends; user errors have the same code."""
SHOW_CURSOR = "\x1b[?25h"
_CALLBACKS: list[Callable[[], str]] = []
_ENDING: list[bool] = []


@contextmanager
def ending_process() -> Iterator[None]:
    """Let `report` end the process while the block runs."""
    _ENDING.append(True)
    try:
        yield
    finally:
        _ENDING.pop()


@contextmanager
def before_exit(callback: Callable[[], str]) -> Iterator[None]:
    """Call `callback` before `report` ends the process in the block, the innermost one first.

    Its return value is appended to the message.
    """
    _CALLBACKS.append(callback)
    try:
        yield
    finally:
        _CALLBACKS.remove(callback)


def report(what: str, cure: str) -> None:
    """Report that a call cannot be interrupted; inside `ending_process`, end the process.

    Args:
        what: the call, its duration and its place.
        cure: what the user can do.
    """
    if not _ENDING:
        said = (
            f"\nturnwise: {what}; it cannot be interrupted, and the error is raised when it "
            f"returns. To stop it sooner, end the process. Then {cure}\n"
        )
        sys.stderr.write(printable(said))
        sys.stderr.flush()
        return
    whole = [f"error: {what}; it cannot be interrupted, so the process ends here: {cure}"]
    for callback in reversed(_CALLBACKS):
        with suppress(OSError):  # a full disk must not keep the process running
            whole.append(callback())
    if sys.stdout.isatty():
        os.write(1, SHOW_CURSOR.encode())
    os.write(2, printable(f"\n{'. '.join(filter(None, whole))}\n").encode())
    os._exit(EXIT_CODE)
