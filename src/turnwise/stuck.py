"""What becomes of a process that is inside a call which neither returns nor can be interrupted.

Code in C that does not return to Python ignores every limit. Provides `report`, which is told of
such a call from another thread: it writes the sentence on standard error, and inside
`ending_process`, which the command line uses, it ends the process with `EXIT_CODE`. Programs that
import turnwise, and notebooks, are not ended.
"""

from __future__ import annotations

import os
import sys
from collections.abc import Callable, Iterator
from contextlib import contextmanager, suppress

EXIT_CODE = 2
"""The exit code of a process that `report` ends, as of every mistake that the user can mend."""
SHOW_CURSOR = "\x1b[?25h"
_WISHES: list[Callable[[], str]] = []
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
def before_the_end(wish: Callable[[], str]) -> Iterator[None]:
    """Let `report` call `wish` before it ends the process in the block, the innermost first.

    What it returns is added to the sentence.
    """
    _WISHES.append(wish)
    try:
        yield
    finally:
        _WISHES.remove(wish)


def report(what: str, cure: str) -> None:
    """Say that a call cannot be interrupted; inside `ending_process`, end the process.

    Args:
        what: which call, how long it has taken and where it is.
        cure: what the user can do.
    """
    if not _ENDING:
        sys.stderr.write(
            f"\nturnwise: {what}; it cannot be interrupted, and the error is raised when it "
            f"returns. To stop it sooner, end the process. Then {cure}\n"
        )
        sys.stderr.flush()
        return
    said = [f"error: {what}; it cannot be interrupted, so the process ends here: {cure}"]
    for wish in reversed(_WISHES):
        with suppress(OSError):  # a full disk must not keep the process alive
            said.append(wish())
    if sys.stdout.isatty():
        os.write(1, SHOW_CURSOR.encode())
    os.write(2, f"\n{'. '.join(filter(None, said))}\n".encode())
    os._exit(EXIT_CODE)
