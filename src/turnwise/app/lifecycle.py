"""A run from its start, or from its latest checkpoint, to its scores and its report.

Provides `train`, `resume` and `init_model`, which the command line and `turnwise.app.train` call.
What loads torch is imported inside the functions, after everything that can be refused cheaply.
"""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from contextlib import ExitStack
from dataclasses import dataclass
from functools import cache, partial
from pathlib import Path
from typing import TYPE_CHECKING, Any

from turnwise.app.film import write_film
from turnwise.app.resume import Change, changed_recipe, write_change
from turnwise.errors import Interrupted, ModelError
from turnwise.recipe.schema import Recipe, load_recipe
from turnwise.report import memory_line, write_report
from turnwise.report.findings import Facts, Finding, find_findings
from turnwise.runs import (
    DiskErrors,
    Run,
    RunScores,
    StopSignal,
    check_installed,
    read_metrics,
    resume_command,
    write_scores,
)
from turnwise.trainers import Progress, Silent
from turnwise.trainers.config import DEMONSTRATIONS
from turnwise.utils.data_files import read_numbered
from turnwise.utils.stuck_calls import before_exit

if TYPE_CHECKING:
    from turnwise.trainers import Session

RUNS = Path("runs")


@dataclass(frozen=True, kw_only=True, slots=True)
class Outcome:
    """The result of `train` and `resume`: the run, its scores if it is finished, and its findings.

    `findings` say what may have kept the run from learning, each with its evidence and, where there
    is one, a setting that may help.

    Example:
        >>> Outcome(run=Path("runs/lake"), finished=False, scores=None).finished
        False
    """

    run: Path
    finished: bool
    scores: RunScores | None
    findings: tuple[Finding, ...] = ()


def train(
    recipe: Recipe,
    *,
    run: Path | None = None,
    root: Path = RUNS,
    files: Mapping[str, str] | None = None,
    toml: str | None = None,
    announce: Callable[[Run], None] | None = None,
    progress: Progress | None = None,
) -> Outcome:
    """Train what `recipe` describes, evaluate it on the test split once, and write the report.

    A run that fails before it has recorded anything leaves no folder behind.

    Args:
        recipe: from `load_recipe` or made in Python.
        run: the run folder; None makes `root/<recipe>-<time>`.
        root: where new run folders go.
        files: name -> text of what the recipe needs beside it in the run folder.
        toml: the recipe as it is written to the folder, if it names those files; it is read back.
        announce: told the run folder once it exists.
        progress: who watches; nobody by default.

    Returns:
        The run and its scores; `finished` is False if SIGTERM or SIGUSR1 stopped it after saving.

    Raises:
        Interrupted: if Ctrl-C stopped it, after saving.
        TurnwiseError: for anything the user can mend; the message says how.
    """
    check_installed(recipe.metrics.sinks)
    for phase in (recipe.pretrain, recipe.warmup):
        if phase is not None and phase.data != DEMONSTRATIONS:
            read_numbered(phase.data)  # it is read when its turn comes, which is late for a typo
    with Run.begun(root, recipe.name, toml or recipe.to_toml(), run, files) as folder:
        if toml is not None:
            recipe = load_recipe(str(folder.recipe))
        if announce is not None:
            announce(folder)
        with DiskErrors(partial(_how_to_go_on, folder, resumed=False)), folder.lock():
            return _run(recipe, folder, progress or Silent())


def resume(
    run: Path,
    settings: Sequence[str] | Mapping[str, Any] = (),
    *,
    progress: Progress | None = None,
) -> Outcome:
    """Go on with the run in `run` from its latest checkpoint.

    A run that is finished is evaluated again, or goes on if `settings` give it more iterations.

    Args:
        run: the run folder.
        settings: settings to change from here on, as `load_recipe` takes them. They are written
            into the run's recipe. What the run has been built on cannot change.
        progress: who watches; nobody by default.

    Returns:
        As `train`.

    Raises:
        Interrupted: if Ctrl-C stopped it, after saving.
        TurnwiseError: for anything the user can mend; the message says how.
    """
    folder, watcher = Run.open(run), progress or Silent()
    change = changed_recipe(folder, settings, watcher.note)
    check_installed(change.recipe.metrics.sinks)
    with DiskErrors(partial(_how_to_go_on, folder, resumed=True)), folder.lock():
        return _run(change.recipe, folder, watcher, change)


def _run(recipe: Recipe, folder: Run, watcher: Progress, change: Change | None = None) -> Outcome:
    """Run what is left of a run whose folder is locked; `change` is what it is resumed with.

    The change is written once the parts are there: one that cannot be leaves the run as it was.
    """
    stop, resumed = StopSignal(watcher.note), change is not None
    tested: list[RunScores] = []

    @cache
    def write() -> None:
        if change is not None:
            write_change(folder, change, watcher.note)

    try:
        with ExitStack() as stack:
            stack.enter_context(stop)
            # what comes now imports torch, which a KeyboardInterrupt inside it aborts
            from turnwise.app.build import assemble
            from turnwise.app.processes import Processes
            from turnwise.app.program import run_program
            from turnwise.policies import kept_threads

            how = partial(_how_to_go_on, folder, resumed=resumed)
            stack.enter_context(before_exit(how))
            stack.enter_context(kept_threads())
            processes = stack.enter_context(
                Processes(recipe, folder, resumed=resumed, cure=how, note=watcher.note)
            )

            def parts(recipe: Recipe) -> Session:
                session = assemble(recipe, folder=folder, stop=stop, progress=watcher)
                write()
                processes.take_in(session)
                return session

            def finish(session: Session, scores: RunScores) -> None:
                write_scores(folder.evaluation, scores)
                session.metrics.summarise(scores.as_metrics())
                film = write_film(folder, watcher.note)
                write_report(folder, command=f"turnwise train {folder.recipe}", film=film)
                memory = memory_line(read_metrics(folder.metrics)[-1])
                if memory:
                    watcher.note(memory)
                tested.append(scores)

            if not run_program(processes.recipe, folder, parts, stop, finish, resumed=resumed):
                return _stopped(folder, watcher, stop, "after saving", resumed=resumed)
    except KeyboardInterrupt as error:
        if isinstance(error, Interrupted):
            raise
        return _stopped(folder, watcher, stop, "at once", resumed=resumed)
    (scores,) = tested
    found = tuple(find_findings(Facts.of_run(folder, scores)))
    return Outcome(run=folder.path, finished=True, scores=scores, findings=found)


def _stopped(
    folder: Run, watcher: Progress, stop: StopSignal, how: str, *, resumed: bool
) -> Outcome:
    """Say how a run goes on that a signal stopped; raise if it was Ctrl-C."""
    again = _how_to_go_on(folder, resumed=resumed)
    if folder.is_empty and not resumed:
        how = "at once"
    said = f"stopped by {stop.requested or 'SIGINT'} {how}: {again}"
    if stop.interrupted or stop.requested is None:
        raise Interrupted(said, folder.path if resumed or not folder.is_empty else None)
    watcher.note(said)
    return Outcome(run=folder.path, finished=False, scores=None)


def _how_to_go_on(folder: Run, *, resumed: bool) -> str:
    if folder.is_empty and not resumed:
        return "begin again, as nothing was recorded yet"
    if folder.needs_python:
        return f"go on from Python, with turnwise.resume('{folder.path}')"
    return f"go on with `{resume_command(folder.path)}`"


def init_model(recipe: Recipe, size: str, directory: Path) -> int:
    """Make a nano model for the recipe's env in `directory`; return its number of parameters."""
    if directory.exists():
        raise ModelError(f"'{directory}' exists: give a directory that does not")
    from turnwise.policies import nano_preset

    preset = nano_preset(size)  # a size that is none is named before torch is imported
    from turnwise.app.transcripts import transcripts_of
    from turnwise.policies import PolicyConfig, load_policy, make_nano

    words = recipe.env.make("evaluation").vocabulary()
    make_nano(directory, transcripts_of(recipe), words, preset, recipe.seed)
    return load_policy("model", PolicyConfig(model=str(directory), device="cpu")).parameters
