"""What programs leave in a folder on somebody's file system: how much it is, and how it goes.

Owns both, for trees that may be as deep and as closed as a program can make them.
"""

from __future__ import annotations

import os
from contextlib import suppress


def size(folder: str) -> int:
    """Return the bytes of all files below a folder, of those that a path can name."""
    total, todo = 0, [folder]
    while todo:
        with suppress(OSError), os.scandir(todo.pop()) as entries:
            for entry in entries:
                if entry.is_dir(follow_symlinks=False):
                    todo.append(entry.path)
                else:
                    total += entry.stat(follow_symlinks=False).st_size
    return total


def remove(folder: str, beside: str) -> None:
    """Remove a folder; those in it are moved up, into `beside`, before it is their turn.

    So that no path becomes too long. What resists is left to whoever removes `beside`.
    """
    todo, moved = [folder], 0
    while todo:
        place = todo.pop()
        with suppress(OSError):
            os.chmod(place, 0o700)
            with os.scandir(place) as entries:
                for entry in list(entries):
                    if not entry.is_dir(follow_symlinks=False):
                        os.unlink(entry.path)
                        continue
                    moved += 1
                    target = os.path.join(beside, f"moved-{moved}")
                    os.chmod(entry.path, 0o700)
                    os.rename(entry.path, target)
                    todo.append(target)
            os.rmdir(place)
