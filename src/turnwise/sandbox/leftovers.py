"""Removal of folders that workers left when they ended: `clear_stale`."""

from __future__ import annotations

import fcntl
import os
import tempfile
import time
from contextlib import suppress

from turnwise.sandbox.inside import files
from turnwise.sandbox.inside.isolation import LONE_USERS, PREFIX

OLD = 600.0
"""Seconds since the last change of a folder, below which its worker may just have begun."""
_FOLDER = os.O_RDONLY | os.O_DIRECTORY | os.O_NOFOLLOW | os.O_CLOEXEC


def clear_stale() -> None:
    """Remove folders of this user's workers on which no process holds a lock."""
    with suppress(OSError):
        place = os.open(tempfile.gettempdir(), os.O_RDONLY | os.O_DIRECTORY)
        try:
            for name in os.listdir(place):
                if name.startswith(PREFIX) and _stale(name, place):
                    files.remove(name, place)
        finally:
            os.close(place)


def _stale(name: str, place: int) -> bool:
    """Return whether a folder belongs to this user, is old, and is locked by no process."""
    try:
        folder = os.open(name, _FOLDER, dir_fd=place)
    except OSError:
        return False
    try:
        found = os.fstat(folder)
        user = os.geteuid()
        own = found.st_uid == user or (user == 0 and found.st_uid >= LONE_USERS)
        if not own or time.time() - found.st_mtime < OLD:
            return False
        fcntl.flock(folder, fcntl.LOCK_EX | fcntl.LOCK_NB)
    except OSError:
        return False
    finally:
        os.close(folder)
    return True
