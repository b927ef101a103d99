"""The cost of a recipe on this machine, measured before training: memory, and seconds.

Provides `measure_recipe` and `RecipeCost`. Two iterations are made in a temporary run folder that
is deleted: one to warm caches, and one that counts. Nothing is scaled up from a smaller one.
"""

from __future__ import annotations

import tempfile
import time
from collections.abc import Callable
from dataclasses import dataclass, replace
from pathlib import Path

import torch

from turnwise.app.build import assemble, plan_of
from turnwise.credit.siblings import SCORE
from turnwise.engines import close_engine
from turnwise.policies import kept_threads
from turnwise.recipe.schema import Recipe
from turnwise.runs import MetricsConfig, Run, StopSignal
from turnwise.trainers import Plan, Session, Silent
from turnwise.trainers.batches import batches_of, begin, kl_in_reward
from turnwise.trainers.grpo import credit_of, update
from turnwise.trainers.loop import play_groups
from turnwise.trainers.session import peak_megabytes
from turnwise.types import Episode, Turn


@dataclass(frozen=True, kw_only=True, slots=True)
class RecipeCost:
    """The cost of one iteration.

    Attributes:
        megabytes: the most memory that this process has held.
        gpu_megabytes: the most that torch has held on CUDA; None without it.
        seconds_per_iteration: of play and update together.
        rollout_seconds: of play alone.
        trained: whether there was anything to update on; if not, the update is not counted.
    """

    megabytes: float
    gpu_megabytes: float | None
    seconds_per_iteration: float
    rollout_seconds: float
    trained: bool


@kept_threads()
def measure_recipe(recipe: Recipe, note: Callable[[str], None] | None = None) -> RecipeCost:
    """Make two iterations of a recipe with the models it begins with, and measure the second.

    Pretraining and warm-up are left out, and so are validation and checkpoints. So that the update
    is measured whatever the untaught models answer, every other episode is given a reward, and all
    groups hold a difference: a run whose groups often hold none is faster.

    Args:
        recipe: the recipe.
        note: told what is being done.

    Raises:
        TurnwiseError: for anything that would also stop a run at its beginning.
    """
    say = note or (lambda text: None)
    parts = recipe.model_copy(update={"metrics": MetricsConfig(sinks=())})
    with tempfile.TemporaryDirectory() as scratch:
        folder = Run.create(Path(scratch), recipe.name, recipe.to_toml(), Path(scratch, "run"))
        session = assemble(parts, folder, StopSignal(), Silent())
        try:
            plan = plan_of(recipe)
            if plan.loss.needs_reference:
                session.save_start()
            for each in session.trained.values():
                begin(session, plan, each)
            say("iteration 1 of 2, which warms caches")
            _iterate(session, plan, 0)
            say("iteration 2 of 2, which is measured")
            began = time.perf_counter()
            rollout, trained = _iterate(session, plan, 1)
            seconds = time.perf_counter() - began
        finally:
            session.metrics.close()
            close_engine(session.engine)
    return RecipeCost(
        megabytes=peak_megabytes(),
        gpu_megabytes=_gpu_megabytes(),
        seconds_per_iteration=seconds,
        rollout_seconds=rollout,
        trained=trained,
    )


def _iterate(session: Session, plan: Plan, iteration: int) -> tuple[float, bool]:
    """Play and update once; return the seconds of play, and whether there was an update."""
    began = time.perf_counter()
    played = play_groups(session, plan, session.curriculum.visits(iteration))
    rollout = time.perf_counter() - began
    paid = next((name for name, weight in plan.credit.rewards.items() if weight), None)
    episodes = [_with_reward(episode, paid) for episode in played]
    kl = kl_in_reward(session, plan, episodes)
    credit = credit_of(session, plan, episodes, kl)
    batches = batches_of(session, plan, episodes, credit, kl, iteration)
    for name, batch in batches.items():
        update(session, plan, session.trained[name], iteration, batch)
    return rollout, bool(batches)


def _with_reward(episode: Episode, component: str | None) -> Episode:
    """Return an episode whose last turns earn 1 of a component, or 0 in every other member.

    Every other sibling of a turn has the score 1.
    """
    if component is None:
        return episode
    earned = {component: float(episode.id.member % 2)}
    trajectories = []
    for trajectory in episode.trajectories:
        turns = [replace(_judged(turn, component), rewards={}) for turn in trajectory.turns]
        if turns:
            turns[-1] = replace(turns[-1], rewards=earned)
        siblings = tuple(_judged(turn, component) for turn in trajectory.siblings)
        trajectories.append(replace(trajectory, turns=tuple(turns), siblings=siblings))
    return replace(episode, trajectories=tuple(trajectories), error=None)


def _judged(turn: Turn, component: str) -> Turn:
    """Return a turn with siblings whose score is 1 where its number is odd."""
    score = float(turn.id.branch % 2)
    return replace(turn, trials=({component: score, SCORE: score},)) if turn.trials else turn


def _gpu_megabytes() -> float | None:
    if not torch.cuda.is_available():
        return None
    return torch.cuda.max_memory_allocated() / 2**20
