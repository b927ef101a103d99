"""The program of a run, which each of its processes goes through: the stages, then the test.

Provides `run_program`. Process 0 records what comes of it. The others play and compute their
shares.
"""

from __future__ import annotations

from collections.abc import Callable
from contextlib import ExitStack

from turnwise.app import run_scores
from turnwise.app.build import plan_of
from turnwise.app.stages import make_base, run_stages
from turnwise.engines import close_engine
from turnwise.recipe.schema import Recipe
from turnwise.runs import Run, RunScores, StopSignal
from turnwise.trainers import Session


def run_program(
    recipe: Recipe,
    folder: Run,
    parts: Callable[[Recipe], Session],
    stop: StopSignal,
    finish: Callable[[Session, RunScores], None],
    *,
    resumed: bool,
) -> bool:
    """Go through what is left of a run; return False if it was asked to stop before its end.

    Args:
        recipe: the run's recipe.
        folder: the run.
        parts: builds a session for a recipe, which has joined the processes of the run.
        stop: in whose `at_once` blocks waiting for a good moment to stop would save nothing.
        finish: receives the session and the scores at the end.
        resumed: whether the run goes on from its latest checkpoint.
    """
    if not make_base(recipe, folder, parts, resumed=resumed):
        return False
    with ExitStack() as stack:
        with stop.at_once():
            session = parts(recipe)
        stack.callback(session.metrics.close)
        stack.callback(close_engine, session.engine)
        done = run_stages(session, recipe, plan_of(recipe), resumed=resumed)
        if session.asked_to_stop() or not done:
            return False
        session.progress.begin("evaluation", done=0, total=1)
        session.group.wait_for_first()  # which has written the last checkpoint by then
        with stop.at_once():
            scores = run_scores.evaluate_run(
                folder.path,
                tasks=recipe.evaluation.test_tasks,
                seed=recipe.seed,
                group=session.group,
            )
        finish(session, scores)
        session.progress.advance(1, {"test/score": scores.score})
    return True
