"""Checkpoints: directories that are complete or absent, at whatever instant the process is killed.

Provides `Checkpoints`: names and manifests, the choice of the latest and of the best checkpoint,
and deletion. The caller writes the files of a checkpoint into a directory and reads them from it.

A checkpoint is written to a temporary directory, synced to disk and renamed. Its manifest has size
and digest of every file. Damage is therefore detected on reading, and the preceding checkpoint is
used instead.
"""

from __future__ import annotations

import hashlib
import json
import math
import os
import re
import shutil
from collections.abc import Callable, Mapping
from dataclasses import dataclass
from pathlib import Path
from typing import Any

from turnwise.errors import RunError
from turnwise.runs.files import json_object, sync_directory, write_atomically

MANIFEST = "manifest.json"
_NAME = re.compile(r"(\d{6,})-([a-z][a-z0-9_]*)-(\d+)")


def policy_folder(checkpoint: Path, policy: str) -> Path:
    """Return where a checkpoint keeps the weights of a policy."""
    return checkpoint / "policies" / policy


def optimizer_file(checkpoint: Path, policy: str) -> Path:
    """Return where a checkpoint keeps the state of a policy's optimizer."""
    return checkpoint / "optimizers" / f"{policy}.pt"


@dataclass(frozen=True, kw_only=True, slots=True)
class Checkpoint:
    """One complete checkpoint: `serial` counts through the run, `step` within its phase."""

    path: Path
    serial: int
    phase: str
    step: int
    score: float | None
    meta: Mapping[str, Any]


@dataclass(frozen=True, kw_only=True, slots=True)
class Latest:
    """The newest undamaged checkpoint, None before the first, and a notice for the user."""

    checkpoint: Checkpoint | None
    note: str = ""


class Checkpoints:
    """The checkpoints of one run. The run's lock ensures that only one process writes.

    Example:
        >>> import tempfile
        >>> checkpoints = Checkpoints(Path(tempfile.mkdtemp()))
        >>> def write(folder: Path) -> None:
        ...     _ = (folder / "weights").write_text("w")
        >>> saved = checkpoints.save("train", 3, write, {"seed": 1}, score=0.5)
        >>> checkpoints.latest().checkpoint.meta, checkpoints.best().step
        ({'seed': 1}, 3)
    """

    def __init__(self, directory: Path, *, keep: int = 2) -> None:
        assert keep >= 1, keep
        self.directory = directory
        self._keep = keep

    def save(
        self,
        phase: str,
        step: int,
        write: Callable[[Path], None],
        meta: Mapping[str, Any],
        *,
        score: float | None = None,
    ) -> Checkpoint:
        """Write a checkpoint, update the best marker, and delete old checkpoints.

        Args:
            phase: the loop that made it ("warmup", "train").
            step: the number of finished steps of that loop.
            write: writes the files into a given directory.
            meta: JSON-able values that `latest` returns.
            score: the validation score of these weights, if they were validated.
        """
        assert score is None or math.isfinite(score), score
        self.directory.mkdir(parents=True, exist_ok=True)
        self._sweep()
        serial = max((serial for serial, _ in self._entries()), default=0) + 1
        path = self.directory / f"{serial:06d}-{phase}-{step}"
        assert _NAME.fullmatch(path.name), f"phase {phase!r} cannot be part of a folder's name"
        partial = self.directory / f".saving-{path.name}"
        try:
            partial.mkdir()
            write(partial)
            _seal(partial, {"phase": phase, "step": step, "score": score, "meta": dict(meta)})
            partial.rename(path)
        finally:
            if partial.exists():  # after a failure, free the space of the partial files
                shutil.rmtree(partial)
        sync_directory(self.directory)
        self._mark_best()
        self._prune()
        return _manifest(path)

    def latest(self) -> Latest:
        """Return the newest checkpoint whose files match its manifest.

        Raises:
            RunError: if there are checkpoints and all of them are damaged.
        """
        damages: list[str] = []
        for _, path in self._entries():
            damage = _damage(path)
            if not damage:
                said = [*damages, f"going on from {path.name}"] if damages else []
                return Latest(checkpoint=_manifest(path), note="; ".join(said))
            damages.append(f"checkpoint {path.name} is damaged ({damage})")
        if damages:
            raise RunError(
                f"no checkpoint in '{self.directory}' can be used: {'; '.join(damages)}. Delete "
                "them to start from the beginning"
            )
        return Latest(checkpoint=None)

    def best(self) -> Checkpoint | None:
        """Return the checkpoint with the highest validation score; of equal ones, the latest."""
        scored = [c for c in self._readable() if c.score is not None]
        return max(scored, key=lambda c: (c.score, c.serial), default=None)

    def check(self, checkpoint: Checkpoint) -> None:
        """Raise unless the files of a checkpoint match its manifest.

        Raises:
            RunError: if it is damaged; the message names the damage.
        """
        damage = _damage(checkpoint.path)
        if damage:
            raise RunError(
                f"checkpoint '{checkpoint.path}' is damaged ({damage}): delete it, so that the "
                "next best one is used"
            )

    def discard_after(self, checkpoint: Checkpoint | None) -> None:
        """Delete checkpoints newer than `checkpoint`, where a run resumes; None deletes all."""
        serial = checkpoint.serial if checkpoint else 0
        for newer, path in self._entries():
            if newer > serial:
                self._delete(path)
        self._mark_best()

    def _entries(self) -> list[tuple[int, Path]]:
        """Return (serial, path) of all complete-looking checkpoints, newest first."""
        if not self.directory.is_dir():
            return []
        found = [(_NAME.fullmatch(path.name), path) for path in self.directory.iterdir()]
        return sorted(((int(m[1]), path) for m, path in found if m), reverse=True)

    def _readable(self) -> list[Checkpoint]:
        """Return the checkpoints with readable manifests; their files are not checked."""
        return [_manifest(path) for _, path in self._entries() if _read(path) is not None]

    def _mark_best(self) -> None:
        """Rewrite `best.json`, a copy of facts in the manifests for people and tools."""
        best, marker = self.best(), self.directory / "best.json"
        if best is None:
            marker.unlink(missing_ok=True)
            return
        facts = {"checkpoint": best.path.name, "phase": best.phase, "step": best.step}
        write_atomically(marker, json.dumps(facts | {"score": best.score}, indent=2) + "\n")

    def _prune(self) -> None:
        best = self.best()
        for _, path in self._entries()[self._keep :]:
            if best is None or path != best.path:
                self._delete(path)

    def _delete(self, path: Path) -> None:
        """Rename the directory before deletion, so that a kill leaves no partial checkpoint."""
        doomed = self.directory / f".deleting-{path.name}"
        path.rename(doomed)
        shutil.rmtree(doomed)

    def _sweep(self) -> None:
        """Delete the partial directories of a killed process."""
        for pattern in (".saving-*", ".deleting-*"):
            for path in self.directory.glob(pattern):
                shutil.rmtree(path)


def _seal(folder: Path, facts: Mapping[str, Any]) -> None:
    """Write the manifest of a folder and sync all of its files to disk."""
    paths = sorted(path for path in folder.rglob("*") if path.is_file())
    files = {
        path.relative_to(folder).as_posix(): {"bytes": path.stat().st_size, "blake2b": _sync(path)}
        for path in paths
    }
    write_atomically(folder / MANIFEST, json.dumps({**facts, "files": files}, indent=2) + "\n")
    for inner in (path for path in folder.rglob("*") if path.is_dir()):
        sync_directory(inner)


def _sync(path: Path) -> str:
    """Sync a file to disk and return its digest."""
    with path.open("rb+") as file:
        os.fsync(file.fileno())
        return hashlib.file_digest(file, _blake2b).hexdigest()


def _blake2b() -> Any:
    return hashlib.blake2b(digest_size=16)


def _read(path: Path) -> dict[str, Any] | None:
    """Return a checkpoint's manifest, or None if it is missing or malformed.

    A manifest without read permission is an error: it does not count as damage, which would let
    newer checkpoints be deleted.
    """
    try:
        facts = json_object((path / MANIFEST).read_bytes())
    except (FileNotFoundError, NotADirectoryError, IsADirectoryError):
        return None
    return facts if facts is not None and _is_manifest(facts) else None


def _is_manifest(facts: Mapping[str, Any]) -> bool:
    files = facts.get("files")
    return (
        isinstance(facts.get("phase"), str)
        and isinstance(facts.get("step"), int)
        and isinstance(facts.get("score", ""), int | float | None)
        and isinstance(facts.get("meta"), dict)
        and isinstance(files, dict)
        and all(
            isinstance(each, dict) and {"bytes", "blake2b"} <= set(each) for each in files.values()
        )
    )


def _manifest(path: Path) -> Checkpoint:
    facts, name = _read(path), _NAME.fullmatch(path.name)
    assert facts is not None and name is not None, path
    return Checkpoint(
        path=path,
        serial=int(name[1]),
        phase=facts["phase"],
        step=facts["step"],
        score=facts["score"],
        meta=facts["meta"],
    )


def _damage(path: Path) -> str:
    """Return a short description of a checkpoint's damage, empty if it has none."""
    facts = _read(path)
    if facts is None:
        return f"{MANIFEST} cannot be read"
    for name, expected in facts["files"].items():
        file = path / name
        if not file.is_file():
            return f"{name} is missing"
        if file.stat().st_size != expected["bytes"]:
            return f"{name} has {file.stat().st_size} bytes instead of {expected['bytes']}"
        with file.open("rb") as stream:
            if hashlib.file_digest(stream, _blake2b).hexdigest() != expected.get("blake2b"):
                return f"{name} has another checksum"
    return ""
