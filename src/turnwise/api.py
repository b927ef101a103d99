"""The library's front: from a recipe to a run, from a run to its scores.

Owns the putting together of parts and the phases of a run: make or load the policy, warm up, train,
evaluate, report. The command line is a thin face on these functions.
"""

from __future__ import annotations

import shlex
from contextlib import ExitStack
from dataclasses import dataclass
from functools import partial
from pathlib import Path

from turnwise.assembly import assemble, plan_of, transcripts_of
from turnwise.errors import ModelError, RunError
from turnwise.policies import (
    PolicyConfig,
    load_policy,
    make_nano,
    nano_preset,
)
from turnwise.recipe import Recipe, load_recipe
from turnwise.runs import (
    DiskTrouble,
    Run,
    RunScores,
    StopSignal,
    check_installed,
    write_report,
    write_scores,
)
from turnwise.scoring import evaluate_run
from turnwise.stages import make_base, run_phases
from turnwise.trainers import Progress, Silent

RUNS = Path("runs")


@dataclass(frozen=True, kw_only=True, slots=True)
class Outcome:
    """What `train` returns: the run, whether it is finished, and its scores if it is.

    Example:
        >>> Outcome(run=Path("runs/lake"), finished=False, scores=None).finished
        False
    """

    run: Path
    finished: bool
    scores: RunScores | None


def train(
    recipe: Recipe,
    *,
    run: Path | None = None,
    resume_run: bool = False,
    root: Path = RUNS,
    progress: Progress | None = None,
) -> Outcome:
    """Train what `recipe` describes, evaluate it on the test split once, and write the report.

    Args:
        recipe: from `load_recipe` or made in Python.
        run: the run folder; None makes `root/<recipe>-<time>`.
        resume_run: go on with the run in `run` from its latest checkpoint; its own recipe counts.
        root: where new run folders go.
        progress: who watches; nobody by default.

    Returns:
        The run and its scores; `finished` is False if a signal (SIGTERM, SIGUSR1, Ctrl-C) stopped
        it after saving.

    Raises:
        TurnwiseError: for anything the user can mend; the message says how.
    """
    watcher = progress or Silent()
    with ExitStack() as stack:
        trouble = stack.enter_context(DiskTrouble())
        recipe, folder = _run_of(recipe, run, resume_run, root)
        # the run's own recipe: its name may be that of a file that `turnwise` does not know
        paths = shlex.join([str(folder.recipe), "--run", str(folder.path)])
        trouble.again = f"go on with `turnwise train {paths} --resume`"
        stack.enter_context(folder.lock())
        stop = stack.enter_context(StopSignal())
        parts = partial(assemble, folder=folder, stop=stop, progress=watcher)

        def stopped() -> Outcome:
            watcher.note(f"stopped by {stop.requested} after saving: {trouble.again}")
            return Outcome(run=folder.path, finished=False, scores=None)

        if not make_base(recipe, folder, parts, resumed=resume_run):
            return stopped()
        session = parts(recipe)
        stack.callback(session.metrics.close)
        if not run_phases(session, recipe, plan_of(recipe), resumed=resume_run):
            return stopped()
        watcher.begin("evaluation", done=0, total=1)
        scores = evaluate_run(folder.path, tasks=recipe.evaluation.test_tasks, seed=recipe.seed)
        write_scores(folder.evaluation, scores)
        session.metrics.summarise(scores.as_metrics())
        write_report(folder, command=f"turnwise train {folder.recipe}")
        watcher.advance(1, {"test/score": scores.score})
    return Outcome(run=folder.path, finished=True, scores=scores)


def _run_of(recipe: Recipe, run: Path | None, resumed: bool, root: Path) -> tuple[Recipe, Run]:
    """Return the recipe that counts and the run's folder, made now unless the run goes on."""
    if not resumed:
        check_installed(recipe.metrics.sinks)
        return recipe, Run.create(root, recipe.name, recipe.to_toml(), run)
    if run is None:
        raise RunError("resume needs the run's folder: give --run DIR")
    folder = Run.open(run)
    own = load_recipe(str(folder.recipe))
    if own.name != recipe.name:
        raise RunError(
            f"'{run}' is a run of recipe {own.name!r}, not of {recipe.name!r}: give its own, "
            f"'{folder.recipe}'"
        )
    return own, folder


def init_model(recipe: Recipe, size: str, directory: Path) -> int:
    """Make a nano model for the recipe's env in `directory`; return its number of parameters."""
    if directory.exists():
        raise ModelError(f"'{directory}' exists: give a directory that does not")
    words = recipe.env.make("evaluation").words()
    make_nano(directory, transcripts_of(recipe), words, nano_preset(size), recipe.seed)
    return load_policy("model", PolicyConfig(model=str(directory), device="cpu")).parameters
