"""From a recipe to the parts of a run: policy, engine, envs, tasks, logs.

Owns the putting together of parts, each by its own package. Runs nothing.
"""

from __future__ import annotations

from collections.abc import Callable
from pathlib import Path
from typing import Any, get_args

import numpy as np

from turnwise.agents import AgentConfig, demonstration, messages_for, observation_text
from turnwise.curriculum import UniformCurriculum
from turnwise.engines import LocalEngine
from turnwise.envs.base import Env
from turnwise.forest.choose import choose
from turnwise.noise import generator
from turnwise.policies import (
    Policy,
    is_nano,
    load_policy,
    use_threads,
)
from turnwise.recipe import Recipe
from turnwise.rollout import Runner, check_room
from turnwise.rollout.runner import NoiseRule
from turnwise.rollout.seeing import WALK
from turnwise.rollout.talk import random_game, wander_and_talk
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

FAILED = 0.9
"""Share of failed replies that stops a model which nothing has taught how to answer."""


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
        decoding=recipe.evaluation.decoding,
        validate_start=recipe.evaluation.validate_start,
        target=recipe.evaluation.target,
        stop_if_failed=_share_that_stops(recipe),
    )


def _share_that_stops(recipe: Recipe) -> float | None:
    """Return the share of failed replies above which the first iteration stops the run."""
    asked = recipe.trainer.stop_if_failed
    if asked != "auto":
        return None if asked == "never" else asked
    taught = recipe.pretrain is not None or (recipe.warmup is not None and recipe.warmup.steps)
    made = any(is_nano(policy.model) for policy in recipe.policies.values())
    return None if taught or made else FAILED


def _counted(policy: Policy) -> str:
    """Return how many parameters a policy has, and how many are trained where not all are."""
    trained = sum(parameter.numel() for parameter in policy.trainable_parameters())
    beside = "" if trained == policy.parameters else f", {trained:,} trained"
    return f"{policy.parameters:,} parameters{beside}"


def assemble(recipe: Recipe, folder: Run, stop: StopSignal, progress: Progress) -> Session:
    """Build the parts that `recipe` names, for the run in `folder`."""
    training, warmup = recipe.env.make("training"), recipe.env.make("warmup")
    open_sandbox(training, recipe.sandbox)
    recipe.env.look("training", recipe.seed)
    policy = make_policy(recipe, folder.path, progress.note)
    judged = recipe.env.make("evaluation")
    engine = LocalEngine({policy.name: policy}, recipe.engine, recipe.seed)
    scorer = choose(policy.model, recipe.forest, recipe.seed)
    progress.note(f"{policy.name}: {_counted(policy)}, {policy.device}")
    progress.note(f"forest {scorer.reason}; engine {engine.reason(policy.name)}")
    tasks = GeneratedTasks(training, "train", recipe.seed)
    if tasks.problems.described:
        progress.note(f"{training.name}: {tasks.problems.described}")
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


def make_policy(recipe: Recipe, folder: Path, note: Callable[[str], None] | None = None) -> Policy:
    """Load the recipe's policy; one made on the spot is kept in `folder/models`, and made once.

    From then on torch computes on as many threads as suit it (`policies.use_threads`); `note` is
    told how many.
    """
    ((name, config),) = recipe.policies.items()
    if config.device == "auto":
        config = config.model_copy(update={"device": recipe.device})
    models = folder / "models"
    if is_nano(config.model) and (models / name).is_dir():
        config = config.model_copy(update={"model": str(models / name), "nano": None})
    base = Run(folder).base
    if recipe.pretrain is not None and config.lora is not None and base.is_dir():
        config = config.model_copy(update={"model": str(base), "nano": None})
    policy = load_policy(
        name,
        config,
        directory=models,
        transcripts=transcripts_of(recipe),
        words=recipe.env.make("evaluation").words(),
        seed=recipe.seed,
    )
    said = use_threads(policy.parameters, recipe.threads)
    if note is not None and policy.device.type == "cpu":
        note(said)
    return policy


def transcripts_of(recipe: Recipe, tasks: int = 16) -> list[str]:
    """Return texts as the recipe's agent reads and writes them, for a nano model's tokenizer."""
    env = recipe.env.make("evaluation")
    (agent,) = recipe.agents.values()
    source = GeneratedTasks(env, "train", recipe.seed)
    transcripts: list[str] = []
    for index in range(tasks):
        state, rng = env.reset(source.task(index)), generator(recipe.seed, "transcript", index)
        seen = env.observe(state, agent.role)
        shown = observation_text(agent, seen)
        transcripts += [m.content for m in messages_for(agent, (), shown)]
        transcripts += words_of_tools(env, source.task(index), agent, rng) if seen.tools else []
        any_text = [env.random_action(state, agent.role, rng) for _ in range(4 * (not seen.legal))]
        transcripts += [
            demonstration(seen.description, action, agent.answer)
            for action in (*seen.legal, *any_text)
        ]
        if shows_play(recipe):
            past = random_game(env, source.task(index), agent, _AsWritten(), rng).past
            transcripts += [text for one in past for text in (one.observation, one.reply)]
    return transcripts


def shows_play(recipe: Recipe) -> bool:
    """Whether the warm-up shows every turn of random games, and not first states alone."""
    return recipe.warmup is not None and recipe.warmup.states == "play"


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
