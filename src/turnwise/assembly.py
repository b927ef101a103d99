"""From a recipe to the parts of a run: policy, engine, envs, tasks, logs.

Owns the putting together of parts, each by its own package. Runs nothing.
"""

from __future__ import annotations

from pathlib import Path
from typing import Any, get_args

import numpy as np

from turnwise.agents import AgentConfig, demonstration, messages_for
from turnwise.curriculum import UniformCurriculum
from turnwise.engines import LocalEngine
from turnwise.envs.base import Env
from turnwise.forest import choose
from turnwise.noise import generator
from turnwise.policies import (
    Policy,
    is_nano,
    load_policy,
)
from turnwise.recipe import Recipe
from turnwise.rollout import Runner, check_room
from turnwise.rollout.runner import NoiseRule
from turnwise.rollout.seeing import WALK
from turnwise.rollout.talk import wander_and_talk
from turnwise.runs import (
    Checkpoints,
    EpisodeLog,
    MetricsLog,
    Run,
    StopSignal,
    open_sinks,
)
from turnwise.sections import open_sandbox
from turnwise.tasks import GeneratedTasks
from turnwise.trainers import (
    Plan,
    Progress,
    Session,
    exact_of,
)
from turnwise.types import Split, Task
from turnwise.workflows import get_workflow

BIG = 50_000_000
"""Parameters from which on checkpoints are written every 10 iterations by default."""


def plan_of(recipe: Recipe) -> Plan:
    """Return what of a recipe decides the policy-gradient loop."""
    return Plan(
        trainer=recipe.trainer,
        optimizer=recipe.optimizer,
        credit=recipe.credit,
        loss=recipe.loss,
        rehearsal=recipe.rehearsal,
        rehearsal_first=recipe.rows_before_training,
        validate_every=recipe.evaluation.every,
        validation_tasks=recipe.evaluation.validation_tasks,
        exact=recipe.evaluation.validation == "exact",
        target=recipe.evaluation.target,
    )


def assemble(recipe: Recipe, folder: Run, stop: StopSignal, progress: Progress) -> Session:
    """Build the parts that `recipe` names, for the run in `folder`."""
    training, warmup = recipe.env.make("training"), recipe.env.make("warmup")
    open_sandbox(training, recipe.sandbox)
    policy = make_policy(recipe, folder.path)
    judged = recipe.env.make("evaluation")
    engine = LocalEngine({policy.name: policy}, recipe.engine, recipe.seed)
    scorer = choose(policy.model, recipe.forest, recipe.seed)
    progress.note(f"{policy.name}: {policy.parameters:,} parameters, {policy.device}")
    progress.note(f"forest {scorer.reason}; engine {engine.reason(policy.name)}")
    tasks = GeneratedTasks(training, "train", recipe.seed)
    if tasks.seen:
        progress.note(f"{training.name}: validation and test are problems that training meets too")
    for split in get_args(Split):  # what cannot be evaluated is told now, not when the run is over
        first = GeneratedTasks(judged, split, recipe.seed).task(0)
        if recipe.evaluation.exact or recipe.evaluation.validation == "exact":
            exact_of(judged, first)
    big = policy.parameters >= BIG
    (agent,) = recipe.agents.values()
    check_room(training, tasks.take(8), agent, policy.renderer, policy.context)
    return Session(
        seed=recipe.seed,
        run=folder,
        policy=policy,
        agent=agent,
        engine=engine,
        scorer=scorer,
        runner=runner_of(recipe, training, policy, engine, recipe.seed, recipe.trainer.noise),
        judge=runner_of(recipe, judged, policy, engine, recipe.seed),
        warmup_env=warmup,
        warmup_tasks=GeneratedTasks(warmup, "train", recipe.seed),
        curriculum=UniformCurriculum.of(tasks, recipe.trainer.tasks_per_iteration),
        validation=GeneratedTasks(judged, "validation", recipe.seed),
        validation_states=GeneratedTasks(training, "validation", recipe.seed),
        metrics=MetricsLog(
            folder.metrics,
            sinks=open_sinks(recipe.metrics, folder, recipe.model_dump(mode="json"), progress.note),
        ),
        episodes=EpisodeLog(
            folder.episodes,
            keep=recipe.episodes.keep,
            per_iteration=recipe.episodes.per_iteration,
            decode=lambda name, ids: policy.renderer.decode(ids),
        ),
        checkpoints=Checkpoints(folder.checkpoints, keep=recipe.checkpoint.keep),
        checkpoint_every=recipe.checkpoint.every or (10 if big else 1),
        progress=progress,
        stop=stop,
    )


def runner_of(
    recipe: Recipe,
    env: Env[Any],
    policy: Policy,
    engine: LocalEngine,
    seed: int,
    noise: NoiseRule = "common",
) -> Runner:
    """Return the runner of one env; evaluation leaves `noise` common, as baselines have it."""
    return Runner(
        env=env,
        workflow=get_workflow(recipe.workflow),
        agents=recipe.agents,
        renderers={policy.name: policy.renderer},
        engine=engine,
        seed=seed,
        noise=noise,
        weights=recipe.credit.rewards,
        iterations=recipe.trainer.iterations,
    )


def make_policy(recipe: Recipe, folder: Path) -> Policy:
    """Load the recipe's policy; one made on the spot is kept in `folder/models`, and made once."""
    ((name, config),) = recipe.policies.items()
    if config.device == "auto":
        config = config.model_copy(update={"device": recipe.device})
    models = folder / "models"
    if is_nano(config.model) and (models / name).is_dir():
        config = config.model_copy(update={"model": str(models / name), "nano": None})
    base = Run(folder).base
    if recipe.pretrain is not None and config.lora is not None and base.is_dir():
        config = config.model_copy(update={"model": str(base), "nano": None})
    return load_policy(
        name,
        config,
        directory=models,
        transcripts=transcripts_of(recipe),
        words=recipe.env.make("evaluation").words(),
        seed=recipe.seed,
    )


def transcripts_of(recipe: Recipe, tasks: int = 16) -> list[str]:
    """Return texts as the recipe's agent reads and writes them, for a nano model's tokenizer."""
    env = recipe.env.make("evaluation")
    (agent,) = recipe.agents.values()
    source = GeneratedTasks(env, "train", recipe.seed)
    transcripts: list[str] = []
    for index in range(tasks):
        state, rng = env.reset(source.task(index)), generator(recipe.seed, "transcript", index)
        seen = env.observe(state, agent.role)
        transcripts += [m.content for m in messages_for(agent, (), seen.text)]
        transcripts += words_of_tools(env, source.task(index), agent, rng) if seen.tools else []
        any_text = [env.random_action(state, agent.role, rng) for _ in range(4 * (not seen.legal))]
        transcripts += [
            demonstration(seen.description, action, agent.answer)
            for action in (*seen.legal, *any_text)
        ]
    return transcripts


def words_of_tools(
    env: Env[Any], task: Task, agent: AgentConfig, rng: np.random.Generator, walks: int = 8
) -> list[str]:
    """Return the schemas of the tools, and what is said in random calls of them."""
    texts = list(env.observe(env.reset(task), agent.role).tools)
    for _ in range(walks):
        _, past = wander_and_talk(env, task, agent, _AsWritten(), rng, WALK)
        for exchange in past:
            texts += [exchange.reply, *(message.content for message in exchange.messages)]
    return texts


class _AsWritten:
    """Models made on the spot say calls as envs write them."""

    def spoken(self, reply: str) -> str:
        return reply
