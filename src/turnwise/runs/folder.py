"""The run folder: its name, its layout and its lock.

Provides `Run`. Resume, report and viewer read the folder and nothing else.
"""

from __future__ import annotations

import difflib
import os
import re
import shlex
import shutil
from collections.abc import Collection, Iterator, Mapping
from contextlib import contextmanager, suppress
from dataclasses import dataclass
from datetime import UTC, datetime
from itertools import dropwhile, takewhile
from pathlib import Path

from turnwise.errors import RunError
from turnwise.runs.disk_errors import CURES, DiskErrors
from turnwise.runs.files import locked, write_atomically
from turnwise.utils.stuck_calls import before_exit
from turnwise.utils.user_code import SESSION

SEARCH = "search.toml"
"""The settings of a search, in its folder."""
_TIME = re.compile(r"-\d{8}-\d{6}(-\d+)?$")
"""The end of the name of a run folder that was not chosen."""


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
            root: the parent folder of run folders, usually `runs`.
            recipe_name: the folder is named `<recipe_name>-<UTC time>`.
            recipe_toml: the resolved recipe, written to `recipe.toml`.
            directory: the folder to use instead of a new one in `root`; it must be empty or new.
            files: name -> text of further files of the recipe.

        Raises:
            RunError: if `directory` is in use, or cannot be made.
        """
        wanted = root if directory is None else directory
        try:
            run = cls(claim_folder(root, recipe_name) if directory is None else _take(directory))
        except OSError as error:
            if error.errno in CURES:
                raise  # `DiskErrors` reports it
            raise RunError(
                f"the run folder '{error.filename or wanted}' cannot be made "
                f"({(error.strerror or str(error)).lower()}): choose another folder with --run DIR "
                "(run='DIR' in Python)"
            ) from error
        try:
            write_atomically(run.recipe, recipe_toml)  # first, so that a killed run can be resumed
            for folder in (run.episodes, run.checkpoints, run.tensorboard):
                folder.mkdir(exist_ok=True)
            for name, text in (files or {}).items():
                write_atomically(run.path / name, text)
        except OSError:
            run.clear()
            raise
        return run

    @classmethod
    @contextmanager
    def begun(
        cls,
        root: Path,
        recipe_name: str,
        recipe_toml: str,
        directory: Path | None = None,
        files: Mapping[str, str] | None = None,
    ) -> Iterator[Run]:
        """Make a run folder like `create`; remove it if the block fails with nothing recorded.

        Parent folders that were made are removed too.
        """
        wanted = root if directory is None else directory
        made = [path for path in (wanted, *wanted.parents) if not os.path.exists(path)]
        run, finished = None, False

        def remove() -> str:
            if run is not None and run.is_empty:
                run.clear()
            for path in made:
                with suppress(OSError):  # not empty: it has other files
                    path.rmdir()
            return ""

        try:
            with DiskErrors():
                run = cls.create(root, recipe_name, recipe_toml, directory, files)
            made = made if directory is not None else [run.path, *made]
            with before_exit(remove):
                yield run
            finished = True
        finally:
            if not finished:
                remove()

    @classmethod
    def open(cls, path: Path) -> Run:
        """Return the run at `path`.

        Raises:
            RunError: if there is no folder or it holds no run; the message names the nearest one.
        """
        run = cls(path)
        if not path.is_dir():
            raise RunError(f"there is no run folder at '{path}': {_advice(path)}")
        if (path / SEARCH).is_file():
            raise RunError(
                f"'{path}' is the folder of a search: `turnwise search --resume {path}` goes on "
                f"with it, and `turnwise report {path}` reports it"
            )
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
        """The log of metrics, one JSON object per line."""
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
        """The folder of TensorBoard event files, with one folder per phase."""
        return self.path / "tensorboard"

    @property
    def report(self) -> Path:
        """The report, written at the end."""
        return self.path / "report.md"

    @property
    def program(self) -> Path:
        """The program that `turnwise solve` found."""
        return self.path / "program.txt"

    @property
    def curve(self) -> Path:
        """The picture in the report."""
        return self.path / "curve.png"

    @property
    def film(self) -> Path:
        """The film of an episode in the report, where the env draws pictures."""
        return self.path / "episode.gif"

    @property
    def card(self) -> Path:
        """The folder of the model card, where `turnwise card` wrote one."""
        return self.path / "card"

    @property
    def evaluation(self) -> Path:
        """The scores on test tasks."""
        return self.path / "eval.json"

    @property
    def models(self) -> Path:
        """The folder of models made for the run, one folder a policy."""
        return self.path / "models"

    @property
    def bases(self) -> Path:
        """The folder of models that the run trained for adapters to be put on."""
        return self.path / "base"

    @property
    def adapters(self) -> Path:
        """The folder of finished adapters in PEFT's format, one folder a policy."""
        return self.path / "adapters"

    def start(self, policy: str) -> Path:
        """Return where the weights are that reinforcement learning of a policy begins with."""
        return self.path / "start" / policy

    @property
    def is_empty(self) -> bool:
        """Whether nothing is recorded yet: no metrics, no episodes, no checkpoints."""
        logged = self.metrics.is_file() and self.metrics.stat().st_size > 0
        kept = any(any(p.iterdir()) for p in (self.episodes, self.checkpoints) if p.is_dir())
        return not logged and not kept

    @property
    def needs_python(self) -> bool:
        """Whether the env or a reward was passed in Python and is in no file."""
        with suppress(OSError):
            return f'"{SESSION}:' in self.recipe.read_text(encoding="utf-8")
        return False

    def clear(self) -> None:
        """Delete the contents of the folder."""
        for path in list(self.path.iterdir()):
            if path.is_dir():
                shutil.rmtree(path, ignore_errors=True)
            else:
                path.unlink()

    def replace_recipe(self, recipe_toml: str, note: str) -> None:
        """Write another resolved recipe, with a comment on each change at its head."""
        lines = self._recipe_lines()
        earlier = list(takewhile(lambda line: line.startswith("#"), lines))
        head = "\n".join([*earlier, f"# {note}"])
        write_atomically(self.recipe, f"{head}\n{recipe_toml}")

    def keep_setting(self, name: str, value: int, why: str) -> None:
        """Write a top-level setting that a run has chosen into its recipe, which lacks it."""
        body = "\n".join(dropwhile(lambda line: line.startswith("#"), self._recipe_lines()))
        self.replace_recipe(f"{name} = {value}\n{body}\n", f"{name} = {value}: {why}")

    def _recipe_lines(self) -> list[str]:
        """Return the recipe's lines; U+2028 and its like, which TOML strings may hold, end none."""
        return self.recipe.read_text(encoding="utf-8").rstrip("\n").split("\n")

    @contextmanager
    def lock(self) -> Iterator[None]:
        """Lock the folder for writing; the system releases the lock if the process is killed.

        Raises:
            RunError: if another process has the lock; the message names that process.
        """
        busy = "wait for it, stop it, or choose another folder with --run"
        with locked(self.path / "run.lock", f"run folder '{self.path}'", busy):
            yield


def claim_folder(root: Path, name: str) -> Path:
    """Make the first unused folder in `root` that is named by `name` and the time; return it."""
    stem = f"{name}-{datetime.now(UTC):%Y%m%d-%H%M%S}"
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
    check_free(directory)
    directory.mkdir(parents=True, exist_ok=True)
    return directory


def check_free(directory: Path) -> None:
    """Check that a run can be made in `directory`, which may be missing.

    Raises:
        RunError: if it is a file, or a folder that is not empty.
    """
    if directory.is_file():
        raise RunError(f"'{directory}' is a file: give --run a folder that is new or empty")
    if not directory.is_dir():
        return
    if (directory / "recipe.toml").exists():
        raise RunError(
            f"'{directory}' already holds a run: go on with it by `{resume_command(directory)}`, "
            "or choose another folder"
        )
    if any(path.name != ".recipe.toml.partial" for path in directory.iterdir()):
        raise RunError(f"'{directory}' is not empty: give --run a folder that is new or empty")


def check_own(directory: Path, marker: str, leftovers: Collection[str]) -> None:
    """Check that a folder, which may be missing, is of the kind that a file `marker` tells.

    Args:
        directory: the folder.
        marker: the name of the file.
        leftovers: what a kill at the start leaves without it.

    Raises:
        RunError: if it is a file, or has other files and no `marker`.
    """
    if directory.is_file():
        raise RunError(f"'{directory}' is a file: choose a folder that is new or empty")
    if not directory.is_dir() or (directory / marker).is_file():
        return
    if any(path.name not in leftovers for path in directory.iterdir()):
        raise RunError(
            f"'{directory}' is not empty and has no {marker}: choose a folder that is new or empty"
        )


def resume_command(path: Path) -> str:
    """Return the command that resumes the run in `path`.

    Example:
        >>> resume_command(Path("runs/my lake"))
        "turnwise resume 'runs/my lake'"
    """
    return shlex.join(["turnwise", "resume", str(path)])


def _advice(path: Path) -> str:
    """Return the cure for a wrong path: the nearest run in its parent, or how to make one."""
    parent = path.parent
    files = sorted(parent.glob("*/recipe.toml"), key=lambda file: file.stat().st_mtime)
    runs = [file.parent.name for file in reversed(files)]  # the latest first
    if not runs:
        return "`turnwise train RECIPE` makes one"
    recipes = {_TIME.sub("", name): name for name in reversed(runs)}  # name of a recipe -> its last
    known = recipes | {name: name for name in runs}
    near = difflib.get_close_matches(path.name, known, n=1, cutoff=0.5)
    if near:
        return f"did you mean '{parent / known[near[0]]}'?"
    return f"the latest beside it is '{parent / runs[0]}'"
