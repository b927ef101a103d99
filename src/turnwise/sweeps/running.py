"""Run the cells of a sweep: several side by side, each a process with a run folder of its own.

Provides `run_sweep`. A sweep's folder has `sweep.json`, `base.toml` (the recipe that all cells
train), `cells/NAME/` (a run folder for each cell), `cells/NAME.log`, `results.jsonl` with a line
for each finished cell, and `table.md` and `plot.png`. A cell that has a line is not trained again;
one that was interrupted goes on.
"""

from __future__ import annotations

import os
import signal
import subprocess
import sys
import time
from collections.abc import Mapping, Sequence
from contextlib import closing
from dataclasses import dataclass
from pathlib import Path

from turnwise.errors import Interrupted
from turnwise.parallel.cores import usable_cores
from turnwise.recipe.schema import Recipe
from turnwise.runs import DiskErrors, StopSignal, check_free
from turnwise.runs.files import LineLog, write_atomically
from turnwise.sweeps.definition import Cell, SweepConfig, finite, key_of
from turnwise.sweeps.folder import BASE, RESULTS, log_of, opened, read_results, run_of
from turnwise.sweeps.results import Compared, compare, draw_plot, numbers_of
from turnwise.trainers.progress import Progress, Silent

PHASE = "sweep"
MODULE = "turnwise.cli.cell"
LOOKS = 0.2
"""Seconds between two looks at the processes."""
QUOTED = 300
"""The most characters of a log that tell why a cell failed."""


@dataclass(frozen=True, kw_only=True, slots=True)
class SweepOutcome:
    """A sweep's folder, what its cells measured, and why some failed: cell label -> message."""

    folder: Path
    compared: Compared
    failed: Mapping[str, str]


@dataclass(kw_only=True)
class _Running:
    """A cell that is being trained."""

    cell: Cell
    process: subprocess.Popen[bytes]


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
        work = _Work(config, folder, recipes, many, show, stop)
        failed = work.all(left, done=len(cells) - len(left))
        found = compare(config, read_results(folder))
        write_atomically(folder / "table.md", found.markdown)
        draw_plot(folder / "plot.png", config.name, found)
        if stop.requested is not None:
            raise Interrupted(
                f"stopped by {stop.requested}: the same command goes on with '{folder}'", run=None
            )
        return SweepOutcome(folder=folder, compared=found, failed=failed)


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
    ) -> None:
        self._config, self._folder, self._recipes = config, folder, recipes
        self._workers, self._show, self._stop = workers, show, stop
        self._running: list[_Running] = []

    def all(self, cells: Sequence[Cell], done: int) -> dict[str, str]:
        """Train cells, after `done` others; return the label of each that failed, and why."""
        left, failed = list(cells), dict[str, str]()
        told = False
        try:
            while self._running or (left and self._stop.requested is None):
                while left and len(self._running) < self._workers and not self._stop.requested:
                    self._running.append(self._start(left.pop(0)))
                if self._stop.requested is not None and not told:
                    told = True
                    for each in self._running:
                        each.process.send_signal(signal.SIGTERM)
                time.sleep(LOOKS)
                for each in [each for each in self._running if each.process.poll() is not None]:
                    self._running.remove(each)
                    done += 1
                    self._end(each, failed, done)
        finally:
            for each in self._running:  # a second Ctrl-C
                each.process.kill()
                each.process.wait()
        return failed

    def _start(self, cell: Cell) -> _Running:
        """Start a cell's process, or go on with its run."""
        run = run_of(self._folder, cell)
        if (run / "recipe.toml").is_file():
            words = ["resume", str(run)]
        else:
            check_free(run)
            sets = self._config.overrides(cell)
            if self._workers > 1 and self._recipes[cell.key].processes is None:
                sets.append("processes=1")
            words = ["train", str(self._folder / BASE), "--run", str(run)]
            words += [word for each in sets for word in ("--set", each)]
        threads = max(1, int(usable_cores()) // self._workers)
        environment = {"OMP_NUM_THREADS": str(threads)} | os.environ if self._workers > 1 else None
        with log_of(self._folder, cell).open("ab") as log:
            process = subprocess.Popen(
                [sys.executable, "-P", "-m", MODULE, str(os.getpid()), *words],
                stdin=subprocess.DEVNULL,
                stdout=log,
                stderr=subprocess.STDOUT,
                env=environment,
                start_new_session=True,  # Ctrl-C reaches this process, which tells the cells
            )
        return _Running(cell=cell, process=process)

    def _end(self, ended: _Running, failed: dict[str, str], done: int) -> None:
        """Keep what a cell measured, or why it failed."""
        cell, run = ended.cell, run_of(self._folder, ended.cell)
        code = ended.process.returncode
        if code and self._stop.requested is not None:
            return  # it has saved what it had, or had nothing yet
        if code:
            failed[cell.label] = _why(log_of(self._folder, cell), code)
            self._show.note(f"{cell.label} failed: {failed[cell.label]}")
            return
        numbers = numbers_of(run)
        with closing(LineLog(self._folder / RESULTS)) as log:
            settings = finite(dict(cell.settings))
            log.append({"settings": settings, "run": f"cells/{cell.name}", "numbers": numbers})
            log.sync()
        value = numbers.get(self._config.measure)
        shown = "none" if value is None else f"{value:.4g}"
        self._show.note(f"{cell.label}: {self._config.measure} {shown}")
        self._show.advance(done, {} if value is None else {self._config.measure: value})


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


def _why(log: Path, code: int) -> str:
    """Return why a cell failed: the last error in its log, or how its process ended."""
    if code == -signal.SIGKILL:
        return "killed by signal 9 (SIGKILL), as the system does when memory is short"
    if code < 0:
        return f"ended by signal {-code} ({signal.Signals(-code).name})"
    lines = log.read_text(encoding="utf-8", errors="replace").strip().splitlines() or ["?"]
    told = [line for line in lines if line.startswith("error: ")] or lines
    return f"{told[-1].removeprefix('error: ')[:QUOTED]} (all of it: {log})"
