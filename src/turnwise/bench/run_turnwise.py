"""The worker process of turnwise: its own loop on a workload, one iteration per request.

The loop is `train_grpo`, as in every run. The only change is that the end token does not end a
completion, so that both trainers sample equal lengths.
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

from turnwise.app.build import assemble, plan_of, runner_of
from turnwise.bench.envs import words_config
from turnwise.bench.worker import ParentExited, StepServer
from turnwise.bench.workloads import Words, Workload, system_message
from turnwise.engines import LocalEngine
from turnwise.policies import Policy
from turnwise.recipe.schema import Recipe, make_recipe
from turnwise.rollout import samples_from_episodes
from turnwise.rollout.samples import Advantages
from turnwise.runs import Run, StopSignal
from turnwise.trainers import Plan, Session, Silent
from turnwise.trainers.batches import batch_of
from turnwise.trainers.gc import frozen
from turnwise.trainers.grpo import credit_of, train_grpo
from turnwise.trainers.loop import play_groups
from turnwise.trainers.update import optimise
from turnwise.types import Episode

ENDLESS = 1_000_000
RATE = 1e-5
TRL_STD_EPSILON = 1e-4
"""TRL adds this to a group's standard deviation; the comparison of gradients does the same."""


def recipe_of(
    workload: Workload, words: Words, model: Path, rows: Path, checkpointing: bool
) -> Recipe:
    """Return the recipe of a workload, with the loss, optimizer and advantages of TRL."""
    policy: dict[str, Any] = {"model": str(model), "device": "cpu", "dtype": "float32"}
    policy["gradient_checkpointing"] = checkpointing
    reward = "turnwise.bench.workloads:luck"
    options = {"path": str(rows), "eval_path": str(rows), "reward": [reward]}  # none is held out
    env: dict[str, Any] = {"name": "rows", "options": options}
    agent: dict[str, Any] = {"reply": "whole", "max_tokens": workload.completion_tokens}
    rewards = {"luck": 1.0}
    if workload.turns > 1:
        env = {
            "name": "turnwise.bench.envs:RandomWords",
            "options": words_config(workload, words).model_dump(),
        }
        agent |= {"history": "full", "system": system_message(words.system)}
    return make_recipe(
        {
            "name": f"bench-{workload.name}",
            "env": env,
            "agents": {"player": agent},
            "policies": {"main": policy},
            "trainer": {
                "iterations": ENDLESS,
                "tasks_per_iteration": workload.prompts,
                "group_size": workload.group,
            },
            "loss": {"clip_low": 0.2, "clip_high": 0.2, "aggregation": "token"},
            "credit": {"scheme": "grpo", "std": "group", "rewards": rewards},
            "optimizer": {"lr": RATE, "max_grad_norm": 1.0},
            "checkpoint": {"every": ENDLESS},
            "evaluation": {"every": ENDLESS, "validation_tasks": 1, "test_tasks": 1},
        }
    )


class _NoStopTokens:
    """A policy for the engine in which no token ends a completion."""

    stop_ids: frozenset[int] = frozenset()

    def __init__(self, policy: Policy) -> None:
        self._policy = policy

    def __getattr__(self, name: str) -> Any:
        return getattr(self._policy, name)


@dataclass
class _ServedSteps(Silent):
    """Runs an iteration of the loop on request and answers with its time."""

    server: StepServer
    began: float = 0.0

    def advance(self, done: int, metrics: Mapping[str, float]) -> None:
        """Answer with the time of the finished step, and wait for the next request."""
        took = time.perf_counter() - self.began
        counts = {k: v for k, v in metrics.items() if k.split("/")[0] in ("forest", "engine")}
        sampling = metrics["time/rollout"]
        self.server.answer(seconds=took, sampling=sampling, update=took - sampling, metrics=counts)
        self.server.wait()
        self.began = time.perf_counter()


@dataclass
class _NoOptimizer:
    """An optimizer whose steps change nothing."""

    policy: Policy

    def zero(self) -> None:
        for parameter in self.policy.trainable_parameters():
            parameter.grad = None

    def step(self) -> dict[str, float]:
        return {}


def open_session(recipe: Recipe, folder: Path, watcher: Silent) -> Session:
    """Assemble a session in which no token ends a completion."""
    run = Run.create(folder, recipe.name, recipe.to_toml(), folder / "run")
    session = assemble(recipe, run, StopSignal(), watcher)
    endless: dict[str, Any] = {n: _NoStopTokens(policy) for n, policy in session.policies.items()}
    engine = LocalEngine(endless, recipe.engine, recipe.seed)
    env = recipe.env.make("training")
    session.engine = engine
    session.runner = runner_of(recipe, env, session.policies, engine, recipe.seed)
    return session


def with_trl_epsilon(episodes: Sequence[Episode], advantages: Advantages) -> Advantages:
    """Return advantages scaled by std / (std + `TRL_STD_EPSILON`), as TRL computes them."""
    scores: dict[int, list[float]] = {}
    for episode in episodes:
        scores.setdefault(episode.id.visit, []).append(episode.score)
    spread = {visit: float(np.std(values, ddof=1)) for visit, values in scores.items()}
    share = {visit: std / (std + TRL_STD_EPSILON) for visit, std in spread.items()}
    return {
        turn: {span: value * share[turn.episode.visit] for span, value in spans.items()}
        for turn, spans in advantages.items()
    }


def first_gradients(session: Session, plan: Plan) -> dict[str, Any]:
    """Play a first batch; return its rows with their rewards, and the gradients before clipping."""
    episodes = play_groups(session, plan, session.curriculum.visits(0))
    credit = credit_of(session, plan, episodes)
    advantages = with_trl_epsilon(episodes, credit.advantages)
    samples = samples_from_episodes(
        episodes, advantages, truncated_completions=plan.trainer.truncated_completions
    )
    trained = session.trained["main"]
    batch = batch_of(plan, trained, samples, credit)
    held: Any = _NoOptimizer(trained.policy)
    held.zero()
    metrics = optimise(trained.policy, held, trained.scorer, batch, plan.loss)
    gradients = {
        name: parameter.grad.clone()
        for name, parameter in trained.policy.model.named_parameters()
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
    """Run steps of one workload until the parent process closes the pipe."""
    server = StepServer()
    torch.set_num_threads(settings["threads"])
    workload = Workload(**settings["workload"])
    with tempfile.TemporaryDirectory() as scratch:
        model, rows = Path(settings["model"]), Path(settings["rows"])
        recipe = recipe_of(
            workload, Words(**settings["talk"]), model, rows, settings["checkpointing"]
        )
        watcher = _ServedSteps(server)
        session = open_session(recipe, Path(scratch), watcher)
        plan = plan_of(recipe)
        if server.wait() == "gradients":
            torch.save(first_gradients(session, plan), settings["first"])
            server.answer(
                scorer=session.trained["main"].scorer.reason, engine=session.engine.reason("main")
            )
            server.wait()
        watcher.began = time.perf_counter()
        with frozen():
            train_grpo(session, plan, None)


if __name__ == "__main__":
    with suppress(ParentExited):
        main(json.loads(sys.argv[1]))
