"""Errors of the disk, such as a full disk or a read-only folder, as messages with a cure.

Provides `DiskErrors`, which also recognises errors that a library has wrapped. No data is lost by
such an error: checkpoints and reports are replaced as a whole, and logs are truncated on resume.
"""

from __future__ import annotations

import errno
import re
from collections.abc import Callable
from types import TracebackType

from turnwise.errors import RunError, TurnwiseError

ELSEWHERE = "choose another folder"
CURES = {
    errno.ENOSPC: ("no space left on the disk", "make space, then {again}"),
    errno.EDQUOT: ("the disk quota is used up", "make space, then {again}"),
    errno.EFBIG: ("a file may not be that large", "raise the limit (`ulimit -f`), then {again}"),
    errno.EIO: ("the disk failed to read or write", "look at the disk, then {again}"),
    errno.EROFS: ("the file system is read-only", ELSEWHERE),
    errno.EACCES: ("permission denied", f"change its permissions, or {ELSEWHERE}"),
    errno.EPERM: ("operation not permitted", f"change its permissions, or {ELSEWHERE}"),
    errno.EEXIST: ("something else has that name", ELSEWHERE),
    errno.EISDIR: ("it is a folder where a file is expected", ELSEWHERE),
    errno.ENOTDIR: ("a part of the path is a file", ELSEWHERE),
    errno.ENAMETOOLONG: ("the name is too long", ELSEWHERE),
}
"""Error number -> description and cure."""
_FROM_RUST = re.compile(r"\(os error (\d+)\)")


class DiskErrors:
    """Turns a disk error raised in its block into a `RunError` with the cure.

    Args:
        again: returns how to continue after the cure; it is called when an error is raised.

    Example:
        >>> with DiskErrors(lambda: "resume the run"):
        ...     raise OSError(errno.ENOSPC, "No space left on device", "a/b")
        Traceback (most recent call last):
            ...
        turnwise.errors.RunError: 'a/b': no space left on the disk: make space, then resume the run
    """

    def __init__(self, again: Callable[[], str] = lambda: "try again") -> None:
        self._again = again

    def __enter__(self) -> DiskErrors:
        return self

    def __exit__(
        self,
        kind: type[BaseException] | None,
        error: BaseException | None,
        trace: TracebackType | None,
    ) -> None:
        if error is None or isinstance(error, TurnwiseError):
            return
        number, file = disk_error(error)
        if number in CURES:
            what, cure = CURES[number]
            place = f"'{file}': " if file else ""
            sentence = f"{place}{what}: {cure.format(again=self._again())}"
            raise RunError(sentence) from error


def disk_error(error: BaseException) -> tuple[int, str]:
    """Return the error number of the disk error behind `error`, 0 for none, and its file.

    Libraries wrap disk errors in the text of errors from Rust (safetensors, tokenizers), or as the
    cause of another error (torch).
    """
    seen: BaseException | None = error
    while seen is not None:
        if isinstance(seen, OSError) and seen.errno in CURES:
            return seen.errno, str(seen.filename or "")
        written = _FROM_RUST.search(str(seen))
        if written and int(written[1]) in CURES:
            return int(written[1]), ""
        seen = seen.__cause__ or seen.__context__
    return 0, ""
