"""The size and the removal of the files that programs leave in a folder.

All functions use file descriptors only, so no path that a program replaced is followed. A tree may
be arbitrarily deep and without permissions: the functions do not recurse, and they change the mode
of a folder before they enter it.
"""

from __future__ import annotations

import os
import stat
import sys
from contextlib import suppress

_FOLDER = os.O_RDONLY | os.O_DIRECTORY | os.O_NOFOLLOW | os.O_CLOEXEC


MOST_ENTRIES = 1024
"""The largest number of files and folders of one program, as in its own file system."""
_MOST_OPEN = 256


def used(folder: int, most: int, mounted: bool) -> int:
    """Return the bytes in use in an open folder.

    Args:
        folder: the open folder.
        most: the size at which counting stops.
        mounted: whether it is a separate file system, which reports its own size, including files
            without a name.
    """
    if not mounted:
        return size(folder, most)
    found = os.fstatvfs(folder)
    return (found.f_blocks - found.f_bfree) * found.f_frsize


def size(folder: int, most: int) -> int:
    """Return the bytes of the files below an open folder; more than `most` if they are too many.

    The result is also more than `most` if a folder cannot be read.
    """
    total, entries, todo = 0, 0, [os.dup(folder)]
    try:
        while todo and total <= most:
            place = todo.pop()
            try:
                for name in os.listdir(place):
                    entries += 1
                    with suppress(FileNotFoundError, NotADirectoryError):
                        found = os.stat(name, dir_fd=place, follow_symlinks=False)
                        if stat.S_ISDIR(found.st_mode):
                            todo.append(os.open(name, _FOLDER, dir_fd=place))
                        else:
                            total += found.st_size
                    if entries > MOST_ENTRIES or len(todo) > _MOST_OPEN:
                        return most + 1
            except OSError:
                return most + 1
            finally:
                os.close(place)
    finally:
        for place in todo:
            os.close(place)
    return total


def clear(folder: int) -> bool:
    """Remove everything in an open folder; return whether it is empty."""
    with suppress(OSError):
        for name in os.listdir(folder):
            remove(name, folder)
        return not os.listdir(folder)
    return False


def remove(name: str, parent: int) -> bool:
    """Remove the file or folder `name` in an open folder, with all below it.

    Descends one folder at a time with two descriptors, and climbs only to the folder that it came
    from. Returns whether `name` is gone; what resists is left where it is.
    """
    if _unlinked(name, parent):
        return True
    path: list[tuple[str, list[str], tuple[int, int]]] = []  # name, folders left in it, identity
    place = os.dup(parent)
    todo = [name]
    try:
        while True:
            if todo:
                entered = todo.pop()
                above = _identity(place)
                try:
                    below = _open(entered, place)
                except OSError:
                    continue
                os.close(place)
                place = below
                path.append((entered, todo, above))
                todo = _emptied(place)
            elif path:
                entered, todo, above = path.pop()
                below, place = place, os.open("..", _FOLDER, dir_fd=place)
                os.close(below)
                if _identity(place) != above:  # it was moved: do not remove files elsewhere
                    return False
                with suppress(OSError):
                    os.rmdir(entered, dir_fd=place)
            else:
                break
    except OSError:
        return False
    finally:
        os.close(place)
    return not _there(name, parent)


def remove_path(path: str) -> bool:
    """Remove a folder with its contents; return whether it is gone."""
    with suppress(OSError):
        parent = os.open(os.path.dirname(path), os.O_RDONLY | os.O_DIRECTORY)
        try:
            return remove(os.path.basename(path), parent)
        finally:
            os.close(parent)
    return False


def _emptied(place: int) -> list[str]:
    """Remove the files in an open folder; return the names of the rest."""
    with suppress(OSError):
        return [name for name in os.listdir(place) if not _unlinked(name, place)]
    return []


def _unlinked(name: str, place: int) -> bool:
    """Remove a file or link; return whether it is gone."""
    try:
        os.unlink(name, dir_fd=place)
    except FileNotFoundError:
        return True
    except OSError:
        return False
    return True


def _there(name: str, parent: int) -> bool:
    try:
        os.stat(name, dir_fd=parent, follow_symlinks=False)
    except FileNotFoundError:
        return False
    except OSError:
        pass
    return True


def _identity(folder: int) -> tuple[int, int]:
    found = os.fstat(folder)
    return found.st_dev, found.st_ino


def _open(name: str, parent: int) -> int:
    """Return a descriptor of a folder, made accessible to its owner, without following links."""
    try:
        folder = os.open(name, _FOLDER, dir_fd=parent)
    except PermissionError:
        _unlock(name, parent)
        folder = os.open(name, _FOLDER, dir_fd=parent)
    with suppress(OSError):  # another user's folder may be removable all the same
        os.fchmod(folder, 0o700)
    return folder


def _unlock(name: str, parent: int) -> None:
    """Give the owner of an unreadable folder all rights to it."""
    if not sys.platform.startswith("linux"):
        os.chmod(name, 0o700, dir_fd=parent)
        return
    held = os.open(name, os.O_PATH | os.O_DIRECTORY | os.O_NOFOLLOW | os.O_CLOEXEC, dir_fd=parent)
    try:
        os.chmod(f"/proc/self/fd/{held}", 0o700)
    finally:
        os.close(held)
