"""Files that survive a kill at any instant: atomic replacement, and logs of JSON lines.

Provides `write_atomically`, `locked` and `LineLog`. Readers of a replaced file see the old or the
new content. An append-only log may end in an incomplete line; readers ignore it, and a resumed run
removes it.
"""

from __future__ import annotations

import json
import os
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path
from typing import Any

from turnwise.errors import RunError


def write_atomically(path: Path, content: str | bytes) -> None:
    """Replace the file at `path` by `content`, synced to disk; readers see the old or the new."""
    data = content.encode() if isinstance(content, str) else content
    partial = path.with_name(f".{path.name}.partial")
    with partial.open("wb") as file:
        file.write(data)
        file.flush()
        os.fsync(file.fileno())
    partial.replace(path)
    sync_directory(path.parent)


def sync_directory(path: Path) -> None:
    """Sync renames and new names in the directory `path` to disk."""
    if os.name != "posix":
        return  # other systems cannot open directories, and their renames are durable
    descriptor = os.open(path, os.O_RDONLY)
    try:
        os.fsync(descriptor)
    finally:
        os.close(descriptor)


@contextmanager
def locked(path: Path, what: str, cure: str) -> Iterator[None]:
    """Lock the file `path`, which is made; the system releases it if the process is killed.

    Args:
        path: the file, which holds the number of the process that has the lock.
        what: what is locked, for the message.
        cure: what the user can do.

    Raises:
        RunError: if another process has the lock; the message names that process.
    """
    import fcntl  # POSIX only: without it runs can still be read

    with path.open("a+", encoding="utf-8") as file:
        try:
            fcntl.flock(file, fcntl.LOCK_EX | fcntl.LOCK_NB)
        except BlockingIOError:
            file.seek(0)
            raise RunError(
                f"{what} is in use by process {file.read().strip() or '?'}: {cure}"
            ) from None
        file.truncate(0)
        file.write(f"{os.getpid()}\n")
        file.flush()
        yield


def read_json_lines(
    path: Path, cure: str = "restore it or remove the line"
) -> list[dict[str, Any]]:
    """Return the complete lines of a log of JSON objects; an incomplete last line is omitted.

    Args:
        path: of the log.
        cure: what the user can do where a line is damaged.

    Raises:
        RunError: if another line is not a JSON object, which a kill cannot cause.
    """
    records = []
    for number, line in _complete_lines(path):
        record = json_object(line)
        if record is None:
            raise RunError(
                f"{path}, line {number} is not a JSON object: the log was edited or damaged; {cure}"
            )
        records.append(record)
    return records


def json_object(text: str | bytes) -> dict[str, Any] | None:
    """Return the JSON object in `text`, or None if it is anything else."""
    try:
        value = json.loads(text)
    except (ValueError, RecursionError):
        return None
    return value if isinstance(value, dict) else None


def _complete_lines(path: Path) -> Iterator[tuple[int, bytes]]:
    if not path.exists():
        return
    with path.open("rb") as file:
        for number, line in enumerate(file, start=1):
            if line.endswith(b"\n"):
                yield number, line


class LineLog:
    """An append-only log of JSON objects, one per line, written without buffering."""

    def __init__(self, path: Path) -> None:
        self.path = path
        path.parent.mkdir(parents=True, exist_ok=True)
        self._file = path.open("ab")
        self._drop_torn_line()

    def append(self, record: dict[str, Any]) -> None:
        """Write one object; a kill afterwards does not lose it."""
        line = json.dumps(record, allow_nan=False, separators=(",", ":"), ensure_ascii=False)
        self._file.write(line.encode() + b"\n")
        self._file.flush()

    def sync(self) -> int:
        """Sync all lines to disk and return the offset after the last one, for a checkpoint."""
        os.fsync(self._file.fileno())
        return self._file.tell()

    def truncate_to(self, offset: int) -> None:
        """Truncate the log to the `offset` stored in a checkpoint.

        Raises:
            RunError: if the log is shorter, or no line ends at the offset.
        """
        size = self.path.stat().st_size
        if size < offset:
            raise RunError(
                f"{self.path} has {size} bytes, its checkpoint expects at least {offset}: the log "
                "was cut or replaced; restore it or start a new run"
            )
        with self.path.open("rb") as file:
            file.seek(max(0, offset - 1))
            if offset and file.read(1) != b"\n":
                raise RunError(
                    f"{self.path} has no end of a line after {offset} bytes, where its checkpoint "
                    "expects one: the log was edited; restore it or start a new run"
                )
        self._cut(offset)

    def close(self) -> None:
        """Close the file."""
        self._file.close()

    def _drop_torn_line(self) -> None:
        """Remove text after the last line break, so that the next line starts on its own."""
        self._cut(sum(len(line) for _, line in _complete_lines(self.path)))

    def _cut(self, offset: int) -> None:
        self._file.truncate(offset)
        self._file.seek(offset)
