"""Context managers for writing models: folders that appear only when complete, quiet libraries."""

from __future__ import annotations

import os
import shutil
import warnings
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path

from transformers.utils import logging as hf_logging

from turnwise.errors import RunError


@contextmanager
def replaced_folder(target: Path) -> Iterator[Path]:
    """Yield an empty folder beside `target` that takes its place when the block succeeds.

    A kill inside the block leaves `target` as it was; what was written is deleted the next time.
    Where `target` exists there is an instant between two renames in which it does not; then its old
    content is in `<target>.old`. One process writes a target at a time.

    Raises:
        RunError: if another process is writing `target`.

    Example:
        >>> import tempfile
        >>> with tempfile.TemporaryDirectory() as root:
        ...     with replaced_folder(Path(root, "model")) as folder:
        ...         _ = (folder / "a.txt").write_text("a")
        ...     [path.name for path in Path(root).rglob("*.txt")]
        ['a.txt']
    """
    target.parent.mkdir(parents=True, exist_ok=True)
    folder = target.with_name(f".{target.name}.partial")
    if folder.is_dir():
        with _held(folder, target):
            shutil.rmtree(folder, ignore_errors=True)
    moved = False
    folder.mkdir()
    try:
        with _held(folder, target):
            yield folder
            old = target.with_name(f"{target.name}.old")
            if target.exists():
                shutil.rmtree(old, ignore_errors=True)
                target.rename(old)
            folder.rename(target)
            moved = True
            shutil.rmtree(old, ignore_errors=True)
    finally:
        if not moved:
            shutil.rmtree(folder, ignore_errors=True)


@contextmanager
def _held(folder: Path, target: Path) -> Iterator[None]:
    """Lock a folder in which `target` is written; the system releases it if the process is killed.

    Some file systems have no locks of folders; there nothing is locked.
    """
    if os.name != "posix":
        yield
        return
    import fcntl

    descriptor = os.open(folder, os.O_RDONLY)
    try:
        try:
            fcntl.flock(descriptor, fcntl.LOCK_EX | fcntl.LOCK_NB)
        except BlockingIOError:
            raise RunError(
                f"'{target}' is being written by another process: wait for it, or choose another "
                "folder"
            ) from None
        except OSError:
            pass
        yield
    finally:
        os.close(descriptor)


@contextmanager
def quiet() -> Iterator[None]:
    """Keep transformers from drawing progress bars and announcing renamings inside the block.

    The renamings concern whoever calls the old name, which here is PEFT or, for the sake of
    transformers 5.0, us; never the user.
    """
    shown = hf_logging.is_progress_bar_enabled()
    hf_logging.disable_progress_bar()
    try:
        with warnings.catch_warnings():
            warnings.filterwarnings("ignore", category=FutureWarning, module="transformers")
            yield
    finally:
        if shown:
            hf_logging.enable_progress_bar()
