"""The run folder: what a run is called, where everything in it lies, and who is writing to it.

Owns the layout and the lock. Everything that looks at a run (resume, report, viewer) reads the
folder and nothing else. Knows nothing of what a recipe means, nor of weights.
"""

from __future__ import annotations

import difflib
import os
from collections.abc import Iterator, Mapping
from contextlib import contextmanager
from dataclasses import dataclass
from datetime import UTC, datetime
from pathlib import Path

from turnwise.errors import RunError
from turnwise.runs.files import write_atomically


@dataclass(frozen=True, slots=True)
class Run:
    """One run folder.

    Example:
        >>> import tempfile
        >>> run = Run.create(Path(tempfile.mkdtemp()), "lake", "seed = 1", Path(tempfile.mkdtemp()))
        >>> Run.open(run.path).recipe.read_text()
        'seed = 1'
    """

    path: Path

    @classmethod
    def create(
        cls,
        root: Path,
        recipe_name: str,
        recipe_toml: str,
        directory: Path | None = None,
        files: Mapping[str, str] | None = None,
    ) -> Run:
        """Make a run folder with its recipe, and return it.

        Args:
            root: where run folders are gathered, usually `runs`.
            recipe_name: the folder is called `<recipe_name>-<UTC time>`.
            recipe_toml: the resolved recipe, written to `recipe.toml`.
            directory: the folder itself, instead of a new one in `root`; it must be empty or new.
            files: name -> text of what the recipe needs beside it.

        Raises:
            RunError: if `directory` is in use for something else.
        """
        run = cls(_claim(root, recipe_name) if directory is None else _take(directory))
        write_atomically(run.recipe, recipe_toml)  # first: a kill here leaves a run to resume
        for folder in (run.episodes, run.checkpoints, run.tensorboard):
            folder.mkdir(exist_ok=True)
        for name, text in (files or {}).items():
            write_atomically(run.path / name, text)
        return run

    @classmethod
    def open(cls, path: Path) -> Run:
        """Return the run at `path`.

        Raises:
            RunError: if there is no folder or it holds no run; the message names the nearest one.
        """
        run = cls(path)
        if not path.is_dir():
            raise RunError(f"there is no run folder at '{path}': {_advice(path)}")
        if not run.recipe.is_file():
            raise RunError(
                f"'{path}' is not a complete run folder, it has no recipe.toml: {_advice(path)}"
            )
        return run

    @property
    def name(self) -> str:
        """The folder's name."""
        return self.path.resolve().name

    @property
    def recipe(self) -> Path:
        """The resolved recipe."""
        return self.path / "recipe.toml"

    @property
    def metrics(self) -> Path:
        """The log of metrics, one JSON object a line."""
        return self.path / "metrics.jsonl"

    @property
    def episodes(self) -> Path:
        """The folder of recorded episodes."""
        return self.path / "episodes"

    @property
    def checkpoints(self) -> Path:
        """The folder of checkpoints."""
        return self.path / "checkpoints"

    @property
    def tensorboard(self) -> Path:
        """The folder of TensorBoard event files, one folder a phase."""
        return self.path / "tensorboard"

    @property
    def report(self) -> Path:
        """The report, written at the end."""
        return self.path / "report.md"

    @property
    def curve(self) -> Path:
        """The picture in the report."""
        return self.path / "curve.png"

    @property
    def evaluation(self) -> Path:
        """The scores on test tasks."""
        return self.path / "eval.json"

    @property
    def base(self) -> Path:
        """The model that adapters are put on, where the run trained it itself."""
        return self.path / "base"

    @property
    def adapters(self) -> Path:
        """The folder of finished adapters, in PEFT's format."""
        return self.path / "adapters"

    @contextmanager
    def lock(self) -> Iterator[None]:
        """Hold the folder for writing; the system lets go of it even if the process is killed.

        Raises:
            RunError: if another process holds it; the message names that process.
        """
        import fcntl  # POSIX only: where it is missing a run can still be read

        with (self.path / "run.lock").open("a+", encoding="utf-8") as file:
            try:
                fcntl.flock(file, fcntl.LOCK_EX | fcntl.LOCK_NB)
            except BlockingIOError:
                file.seek(0)
                raise RunError(
                    f"run folder '{self.path}' is in use by process {file.read().strip() or '?'}: "
                    "wait for it, stop it, or choose another folder with --run"
                ) from None
            file.truncate(0)
            file.write(f"{os.getpid()}\n")
            file.flush()
            yield


def _claim(root: Path, recipe_name: str) -> Path:
    """Make the first free folder called after the recipe and the time."""
    stem = f"{recipe_name}-{datetime.now(UTC):%Y%m%d-%H%M%S}"
    root.mkdir(parents=True, exist_ok=True)
    number = 1
    while True:
        path = root / (stem if number == 1 else f"{stem}-{number}")
        try:
            path.mkdir()
        except FileExistsError:
            number += 1
        else:
            return path


def _take(directory: Path) -> Path:
    if directory.is_file():
        raise RunError(f"'{directory}' is a file: give --run a folder that is new or empty")
    directory.mkdir(parents=True, exist_ok=True)
    if (directory / "recipe.toml").exists():
        raise RunError(
            f"'{directory}' already holds a run: add --resume to go on with it, or choose another "
            "folder"
        )
    if any(path.name != ".recipe.toml.partial" for path in directory.iterdir()):
        raise RunError(f"'{directory}' is not empty: give --run a folder that is new or empty")
    return directory


def _advice(path: Path) -> str:
    """Return the cure for a wrong path: the nearest run beside it, or where runs come from."""
    parent = path.parent
    runs = sorted(p.parent.name for p in parent.glob("*/recipe.toml"))
    if not runs:
        return "`turnwise train RECIPE` makes one"
    near = difflib.get_close_matches(path.name, runs, n=1, cutoff=0.5)
    if near:
        return f"did you mean '{parent / near[0]}'?"
    return f"the latest beside it is '{parent / runs[-1]}'"
