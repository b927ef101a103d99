"""Run the cells of a sweep: several side by side, each a process with a run folder of its own.

Provides `run_sweep`. A sweep's folder has `sweep.json`, `base.toml` (the recipe that all cells
train), `cells/NAME/` (a run folder for each cell), `cells/NAME.log`, `results.jsonl` with a line
for each finished cell, and `table.md` and `plot.png`. A cell that has a line is not trained again;
one that was interrupted goes on.
"""

from __future__ import annotations

import difflib
import os
import signal
import subprocess
import sys
import time
from collections.abc import Mapping, Sequence
from contextlib import closing
from dataclasses import dataclass
from pathlib import Path

from turnwise.errors import Interrupted, RunError
from turnwise.parallel.cores import usable_cores
from turnwise.recipe.schema import Recipe
from turnwise.runs import DiskErrors, Run, StopSignal, check_free
from turnwise.runs.files import LineLog, write_atomically
from turnwise.sweeps.definition import Cell, SweepConfig, finite, key_of
from turnwise.sweeps.folder import BASE, RESULTS, log_of, opened, read_results, run_of
from turnwise.sweeps.results import Compared, compare, draw_plot, numbers_of
from turnwise.trainers.progress import WARNING, Progress, Silent

PHASE = "sweep"
MODULE = "turnwise.cli.cell"
LOOKS = 0.2
"""Seconds between two looks at the processes."""
QUOTED = 300
"""The most characters of a log that tell why a cell failed."""
END = 65_536
"""The bytes at the end of a log that are read for it."""


@dataclass(frozen=True, kw_only=True, slots=True)
class SweepOutcome:
    """A sweep's folder, what its cells measured, and why some failed: cell label -> message."""

    folder: Path
    compared: Compared
    failed: Mapping[str, str]


@dataclass(kw_only=True)
class _Running:
    """A cell that is being trained; `logged` is the length of its log before."""

    cell: Cell
    process: subprocess.Popen[bytes]
    logged: int


def run_sweep(
    config: SweepConfig,
    folder: Path,
    *,
    workers: int | None = None,
    progress: Progress | None = None,
) -> SweepOutcome:
    """Train the cells of a sweep that have no result yet, and compare all of them.

    All recipes are checked before the first one is trained. A cell that fails is told, and the
    others are trained; it is tried again the next time. More values in a grid add to a folder.

    Args:
        config: the sweep.
        folder: of this sweep, of one with an equal recipe and settings, or new.
        workers: the most cells at a time; None is the number of this process's cores, or one where
            some model is on a GPU.
        progress: shows what happens.

    Raises:
        ConfigError: if a cell's recipe is wrong.
        RunError: if the folder belongs to something else, or to another process.
        Interrupted: if a signal came; the cells have saved what they had.
    """
    show = progress or Silent()
    cells = config.all_cells
    recipes = {cell.key: config.load(cell) for cell in cells}
    many = workers or _fitting(list(recipes.values()))
    with DiskErrors(), opened(config, folder), StopSignal(show.note) as stop:
        known = {key_of(row["settings"]) for row in read_results(folder)}
        left = [cell for cell in cells if cell.key not in known]
        show.begin(PHASE, done=len(cells) - len(left), total=len(cells))
        work = _Work(config, folder, recipes, many, show, stop, done=len(cells) - len(left))
        failed = work.all(left)
        found = compare(config, read_results(folder))
        write_atomically(folder / "table.md", found.markdown)
        _draw(folder / "plot.png", config.name, found, show)
        if stop.requested is not None:
            raise Interrupted(
                f"stopped by {stop.requested}: the same command goes on with '{folder}'", run=None
            )
        return SweepOutcome(folder=folder, compared=found, failed=failed)


def _draw(path: Path, name: str, found: Compared, show: Progress) -> None:
    """Draw the plot; one that cannot be drawn costs nothing else."""
    try:
        path.unlink(missing_ok=True)
        draw_plot(path, name, found)
    except (ValueError, ArithmeticError, RuntimeError, OSError) as error:
        why = str(error).strip().partition("\n")[0]
        show.note(f"{WARNING}the plot cannot be drawn ({why}): see table.md")


class _Work:
    """The processes of a sweep."""

    def __init__(
        self,
        config: SweepConfig,
        folder: Path,
        recipes: Mapping[str, Recipe],
        workers: int,
        show: Progress,
        stop: StopSignal,
        done: int,
    ) -> None:
        self._config, self._folder, self._recipes = config, folder, recipes
        self._workers, self._show, self._stop = workers, show, stop
        self._running: list[_Running] = []
        self._failed: dict[str, str] = {}
        self._done = done

    def all(self, cells: Sequence[Cell]) -> Mapping[str, str]:
        """Train cells; return the label of each that failed, and why."""
        left, told = list(cells), False
        try:
            while self._running or (left and self._stop.requested is None):
                while left and len(self._running) < self._workers and not self._stop.requested:
                    self._begin(left.pop(0))
                if self._stop.requested is not None and not told:
                    told = True
                    for each in self._running:
                        each.process.send_signal(signal.SIGTERM)
                time.sleep(LOOKS)
                for each in [each for each in self._running if each.process.poll() is not None]:
                    self._running.remove(each)
                    self._end(each)
        finally:
            for each in self._running:  # a second Ctrl-C
                each.process.kill()
                each.process.wait()
        return self._failed

    def _begin(self, cell: Cell) -> None:
        """Start a cell, or keep why it cannot be: the others are trained."""
        try:
            with DiskErrors():
                self._running.append(self._start(cell))
        except RunError as error:
            self._fail(cell, str(error))
        except OSError as error:  # such as too many processes
            self._fail(cell, f"its process cannot be started ({error.strerror or error})")

    def _fail(self, cell: Cell, why: str) -> None:
        """Keep why a cell failed."""
        self._failed[cell.label] = why
        self._show.note(f"{cell.label} failed: {why}")

    def _start(self, cell: Cell) -> _Running:
        """Start a cell's process, or go on with its run."""
        run = run_of(self._folder, cell)
        if (run / "recipe.toml").is_file():
            words = ["resume", str(run)]
        else:
            _check_free(run)
            sets = self._config.overrides(cell)
            if self._workers > 1 and self._recipes[cell.key].processes is None:
                sets.append("processes=1")
            words = ["train", str(self._folder / BASE), "--run", str(run)]
            words += [word for each in sets for word in ("--set", each)]
        threads = max(1, int(usable_cores()) // self._workers)
        environment = {"OMP_NUM_THREADS": str(threads)} | os.environ if self._workers > 1 else None
        with log_of(self._folder, cell).open("ab") as log:
            logged = log.tell()
            process = subprocess.Popen(
                [sys.executable, "-P", "-m", MODULE, str(os.getpid()), *words],
                stdin=subprocess.DEVNULL,
                stdout=log,
                stderr=subprocess.STDOUT,
                env=environment,
                start_new_session=True,  # Ctrl-C reaches this process, which tells the cells
            )
        return _Running(cell=cell, process=process, logged=logged)

    def _end(self, ended: _Running) -> None:
        """Keep what a cell measured, or why it failed."""
        cell, run = ended.cell, run_of(self._folder, ended.cell)
        code = ended.process.returncode
        finished = code == 0 and Run(run).evaluation.is_file()
        if not finished and self._stop.requested is not None:
            return  # it has saved what it had, or had nothing yet
        self._done += 1
        if not finished:
            self._fail(cell, _why(log_of(self._folder, cell), ended.logged, code))
            return
        try:
            with DiskErrors():
                numbers = numbers_of(run)
        except RunError as error:
            self._fail(cell, str(error))
            return
        with closing(LineLog(self._folder / RESULTS)) as log:
            settings = finite(dict(cell.settings))
            log.append({"settings": settings, "run": f"cells/{cell.name}", "numbers": numbers})
            log.sync()
        measure = self._config.measure
        value = numbers.get(measure)
        told = _unmeasured(measure, numbers) if value is None else f"{measure} {value:.4g}"
        self._show.note(f"{cell.label}: {told}")
        self._show.advance(self._done, {} if value is None else {measure: value})


def _unmeasured(measure: str, numbers: Mapping[str, float]) -> str:
    """Return what is told of a run without the number that runs are compared by."""
    near = difflib.get_close_matches(measure, numbers, n=1, cutoff=0.5)
    meant = f": did you mean {near[0]!r}?" if near else ":"
    return (
        f"has no number {measure!r}{meant} The same command with another --measure compares "
        "finished runs without training them again"
    )


def _fitting(recipes: Sequence[Recipe]) -> int:
    """Return how many cells run at a time: one on each core, or one where a model is on a GPU."""
    import torch

    devices = {
        each.device if policy.device == "auto" else policy.device
        for each in recipes
        for policy in each.weights.values()
    }
    if devices - {"cpu"} and (torch.cuda.is_available() or torch.backends.mps.is_available()):
        return 1
    return max(1, int(usable_cores()))


def _check_free(run: Path) -> None:
    """Check that a cell's run can be made."""
    try:
        check_free(run)
    except RunError:
        raise RunError(f"'{run}' is in the way, and is no run that can go on: delete it") from None


def _why(log: Path, logged: int, code: int) -> str:
    """Return why a cell failed: the last error that it logged, or how its process ended.

    Args:
        log: what the cell printed.
        logged: the length of the log before this attempt.
        code: the exit code of the process, or minus a signal.
    """
    if code == -signal.SIGKILL:
        return "killed by signal 9 (SIGKILL), as the system does when memory is short"
    if code < 0:
        return f"ended by signal {-code} ({signal.strsignal(-code) or 'unknown'})"
    if code == 0:
        return (
            "its process ended before its run was finished, without an error, as sys.exit(0) in "
            f"the env or a reward does (all of it: {log})"
        )
    with log.open("rb") as file:
        file.seek(max(logged, log.stat().st_size - END))
        text = file.read().decode(errors="replace")
    lines = text.strip().splitlines() or [f"its process ended with exit code {code}"]
    told = [line for line in lines if line.startswith("error: ")] or lines
    return f"{told[-1].removeprefix('error: ')[:QUOTED]} (all of it: {log})"
