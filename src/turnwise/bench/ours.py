"""turnwise's side: its own loop on the rows of a work, one iteration at a time.

Owns the recipe of a work. The loop is `train_grpo` as every run uses it; only the end token does
not end a completion here, so that both trainers sample equal lengths.
"""

from __future__ import annotations

import json
import sys
import tempfile
import time
from collections.abc import Mapping, Sequence
from contextlib import suppress
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import numpy as np
import torch

from turnwise.assembly import assemble, plan_of, runner_of
from turnwise.bench.side import Gate, Over
from turnwise.bench.works import Words, Work
from turnwise.bench.worlds import talk_of
from turnwise.credit import assign_advantages
from turnwise.engines import LocalEngine
from turnwise.policies import Policy
from turnwise.recipe import Recipe, make_recipe
from turnwise.rollout import samples_from_episodes
from turnwise.rollout.samples import Advantages
from turnwise.runs import Run, StopSignal
from turnwise.trainers import Plan, Session, Silent
from turnwise.trainers.collector import settled
from turnwise.trainers.grpo import batch_of, play_groups, train_grpo
from turnwise.trainers.update import optimise
from turnwise.types import Episode

ENDLESS = 1_000_000
RATE = 1e-5
THEIR_FLOOR = 1e-4
"""What TRL adds to a group's standard deviation; only the comparison of gradients does so too."""


def recipe_of(work: Work, words: Words, model: Path, rows: Path, checkpointing: bool) -> Recipe:
    """Return the recipe of a work, with TRL's loss, optimiser and advantage."""
    policy: dict[str, Any] = {"model": str(model), "device": "cpu", "dtype": "float32"}
    policy["gradient_checkpointing"] = checkpointing
    reward = "turnwise.bench.works:luck"
    options = {"path": str(rows), "eval_path": str(rows), "reward": [reward]}  # none is held out
    env: dict[str, Any] = {"name": "rows", "options": options}
    agent: dict[str, Any] = {"answer": "whole", "max_tokens": work.completion_tokens}
    rewards = {"luck": 1.0}
    if work.turns > 1:
        env = {"name": "turnwise.bench.worlds:Talk", "options": talk_of(work, words).model_dump()}
        agent["history"] = "full"
    return make_recipe(
        {
            "name": f"bench-{work.name}",
            "env": env,
            "agents": {"player": agent},
            "policies": {"main": policy},
            "trainer": {
                "iterations": ENDLESS,
                "tasks_per_iteration": work.prompts,
                "group_size": work.group,
            },
            "loss": {"clip_low": 0.2, "clip_high": 0.2, "aggregation": "token"},
            "credit": {"scheme": "grpo", "std": "group", "rewards": rewards},
            "optimizer": {"lr": RATE, "max_grad_norm": 1.0},
            "checkpoint": {"every": ENDLESS},
            "evaluation": {"every": ENDLESS, "validation_tasks": 1, "test_tasks": 1},
        }
    )


class _NeverEnds:
    """A policy as the engine sees it, none of whose tokens ends a completion."""

    stop_ids: frozenset[int] = frozenset()

    def __init__(self, policy: Policy) -> None:
        self._policy = policy

    def __getattr__(self, name: str) -> Any:
        return getattr(self._policy, name)


@dataclass
class _Turnstile(Silent):
    """Lets the loop take a step when it is told to, and answers how long it took."""

    gate: Gate
    began: float = 0.0

    def advance(self, done: int, metrics: Mapping[str, float]) -> None:
        """Answer the step that is finished, and wait."""
        took = time.perf_counter() - self.began
        work = {k: v for k, v in metrics.items() if k.split("/")[0] in ("forest", "engine")}
        sampling = metrics["time/rollout"]
        self.gate.answer(seconds=took, sampling=sampling, update=took - sampling, work=work)
        self.gate.wait()
        self.began = time.perf_counter()


@dataclass
class _Held:
    """An optimizer that takes no step."""

    policy: Policy

    def zero(self) -> None:
        for parameter in self.policy.trainable_parameters():
            parameter.grad = None

    def step(self) -> dict[str, float]:
        return {}


def open_session(recipe: Recipe, folder: Path, watcher: Silent) -> Session:
    """Put a run together whose completions never end by themselves."""
    run = Run.create(folder, recipe.name, recipe.to_toml(), folder / "run")
    session = assemble(recipe, run, StopSignal(), watcher)
    endless: Any = _NeverEnds(session.policy)
    engine = LocalEngine({session.policy.name: endless}, recipe.engine, recipe.seed)
    env = recipe.env.make("training")
    session.engine = engine
    session.runner = runner_of(recipe, env, session.policy, engine, recipe.seed)
    return session


def as_theirs(episodes: Sequence[Episode], advantages: Advantages) -> Advantages:
    """Return advantages as TRL's standard deviation makes them, to which it adds `THEIR_FLOOR`."""
    scores: dict[int, list[float]] = {}
    for episode in episodes:
        scores.setdefault(episode.visit, []).append(episode.score)
    spread = {visit: float(np.std(values, ddof=1)) for visit, values in scores.items()}
    share = {visit: std / (std + THEIR_FLOOR) for visit, std in spread.items()}
    return {
        turn: {span: value * share[turn.visit] for span, value in spans.items()}
        for turn, spans in advantages.items()
    }


def first_gradients(session: Session, plan: Plan) -> dict[str, Any]:
    """Sample a first batch; return its rows with their rewards, and the gradients, unclipped."""
    episodes = play_groups(session, plan, session.curriculum.visits(0))
    credit = assign_advantages(episodes, plan.credit)
    advantages = as_theirs(episodes, credit.advantages)
    samples = samples_from_episodes(episodes, advantages, on_length=plan.trainer.on_length)
    batch = batch_of(session, plan, samples, credit, None)
    held: Any = _Held(session.policy)
    held.zero()
    metrics = optimise(session.policy, held, session.scorer, batch, plan.loss)
    gradients = {
        name: parameter.grad.clone()
        for name, parameter in session.policy.model.named_parameters()
        if parameter.grad is not None
    }
    held.zero()
    rows = [
        {
            "prompt": list(episode.turns[0].prompt_ids),
            "rest": sample.token_ids[len(episode.turns[0].prompt_ids) :].tolist(),
            "sampled": sample.sampled_mask[len(episode.turns[0].prompt_ids) :].tolist(),
            "reward": episode.score,
        }
        for episode, sample in zip(episodes, samples, strict=True)
    ]
    return {"rows": rows, "gradients": gradients, "metrics": metrics}


def main(settings: Mapping[str, Any]) -> None:
    """Serve one work until the other end has gone."""
    gate = Gate()
    torch.set_num_threads(settings["threads"])
    work = Work(**settings["work"])
    with tempfile.TemporaryDirectory() as scratch:
        model, rows = Path(settings["model"]), Path(settings["rows"])
        recipe = recipe_of(work, Words(**settings["talk"]), model, rows, settings["checkpointing"])
        watcher = _Turnstile(gate)
        session = open_session(recipe, Path(scratch), watcher)
        plan = plan_of(recipe)
        if gate.wait() == "gradients":
            torch.save(first_gradients(session, plan), settings["first"])
            gate.answer(scorer=session.scorer.reason, engine=session.engine.reason("main"))
            gate.wait()
        watcher.began = time.perf_counter()
        with settled():
            train_grpo(session, plan, None)


if __name__ == "__main__":
    with suppress(Over):
        main(json.loads(sys.argv[1]))
