"""The parts of a run, made from its recipe: policies, engine, envs, tasks, logs.

Provides `assemble`, and its parts that other ways of using a run need: `make_policies`,
`runner_of` and `plan_of`.
"""

from __future__ import annotations

import sys
from collections.abc import Callable, Mapping
from typing import Any, get_args

from turnwise.app.transcripts import transcripts_of, words_of
from turnwise.credit import SCHEMES
from turnwise.curriculum import make_curriculum
from turnwise.engines.loop import SteppedEngine
from turnwise.engines.model_calls import RendererLike
from turnwise.engines.table import make_engine
from turnwise.envs.base import Env
from turnwise.errors import ConfigError
from turnwise.evaluation import exact_of
from turnwise.forest.choose import choose
from turnwise.parallel import ALONE, ProcessGroup
from turnwise.policies import (
    Policy,
    PolicyConfig,
    is_nano,
    load_policies,
    measure_threads,
    use_threads,
)
from turnwise.recipe.schema import Recipe
from turnwise.recipe.sections import open_sandbox
from turnwise.render.text import TextRenderer
from turnwise.rollout import (
    Runner,
    check_actions,
    check_context,
    expected_tokens,
    first_states,
    prompt_lengths,
)
from turnwise.rollout.runner import NoiseRule
from turnwise.rollout.user_workflow import try_workflow
from turnwise.rollout.workflow_check import workflow_refusals
from turnwise.runs import (
    Checkpoints,
    EpisodeLog,
    MetricsLog,
    Run,
    StopSignal,
    Unlogged,
    open_sinks,
)
from turnwise.seeding import generator
from turnwise.tasks import GeneratedTasks
from turnwise.trainers import Plan, Progress, Session, TrainedPolicy
from turnwise.trainers.opponents import Opponents, frozen_copies
from turnwise.types import Split, Task
from turnwise.workflows import make_workflow
from turnwise.workflows.topologies import SiblingsConfig

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
        sft_mix=recipe.sft_mix,
        sft_mix_first=recipe.rows_before_training,
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
    taught = recipe.pretrains or recipe.has("warmup")
    made = any(is_nano(policy.model) for policy in recipe.weights.values())
    return None if taught or made else FAILED


def _counted(policy: Policy) -> str:
    """Return how many parameters a policy has, and how many are trained where not all are."""
    trained = sum(parameter.numel() for parameter in policy.trainable_parameters())
    beside = "" if trained == policy.parameters else f", {trained:,} trained"
    return f"{policy.parameters:,} parameters{beside}"


def assemble(
    recipe: Recipe, folder: Run, stop: StopSignal, progress: Progress, *, writes: bool = True
) -> Session:
    """Build the parts that `recipe` names, for the run in `folder`.

    With `writes = False` nothing is recorded: another process of the run does it.
    """
    training, warmup = recipe.env.make("training"), recipe.env.make("warmup")
    open_sandbox(training, recipe.sandbox)
    recipe.env.look("training", recipe.seed)
    tasks = GeneratedTasks(training, "train", recipe.seed)
    check_workflow_of(recipe, training, tasks.task(0))
    policies = make_policies(recipe, folder, progress.note)
    if recipe.threads is None:
        choose_threads(recipe, folder, policies, progress.note)
    judged = recipe.env.make("evaluation")
    tokens = sequence_lengths(recipe, training, tasks, policies)
    copies = frozen_copies(policies, recipe.opponents)
    playing = policies | copies
    engine = _engine_of(recipe, playing, tokens)
    trained = trained_policies_of(recipe, policies, tokens)
    for name, policy in policies.items():
        progress.note(f"{name}: {_counted(policy)}, {policy.device}")
        laid_out = f"forest {trained[name].scorer.reason}; " if name in trained else ""
        progress.note(f"{laid_out}engine {engine.reason(name)}")
    _tell_problems(tasks, progress)
    for split in get_args(Split):  # an env that cannot be evaluated is refused now
        first = GeneratedTasks(judged, split, recipe.seed).task(0)
        if recipe.evaluation.exact or recipe.evaluation.validation == "exact":
            exact_of(judged, first)
    big = max(policy.parameters for policy in policies.values()) >= BIG
    many = recipe.trainer.tasks_per_iteration
    return Session(
        seed=recipe.seed,
        run=folder,
        policies=policies,
        trained=trained,
        agents=recipe.agents,
        engine=engine,
        runner=runner_of(recipe, training, playing, engine, recipe.seed, recipe.trainer.noise),
        eval_runner=runner_of(recipe, judged, policies, engine, recipe.seed),
        warmup_env=warmup,
        warmup_as_training=recipe.env.warmup == recipe.env.training,
        warmup_tasks=GeneratedTasks(warmup, "train", recipe.seed),
        curriculum=make_curriculum(recipe.curriculum, tasks, judged, many),
        opponents=opponents_of(recipe, training, trained, copies, engine),
        validation=GeneratedTasks(judged, "validation", recipe.seed),
        validation_states=GeneratedTasks(training, "validation", recipe.seed),
        metrics=metrics_log(recipe, folder, progress) if writes else Unlogged(),
        episodes=EpisodeLog(
            folder.episodes,
            keep=recipe.episodes.keep if writes else 0,
            per_iteration=recipe.episodes.per_iteration,
            decode=lambda name, ids: playing[name].renderer.decode(ids),
        ),
        checkpoints=Checkpoints(folder.checkpoints, keep=recipe.checkpoint.keep),
        checkpoint_every=recipe.checkpoint.every or (10 if big else 1),
        progress=progress,
        stop=stop,
    )


def _check_frozen(recipe: Recipe, configs: Mapping[str, PolicyConfig]) -> None:
    """Refuse a frozen policy with random weights: it would say random bytes in the whole run.

    Raises:
        ConfigError: if there is one.
    """
    for name, policy in configs.items():
        pretrained = recipe.pretrains and policy.lora is not None
        if is_nano(policy.model) and not policy.trainable and not pretrained:
            raise ConfigError(
                f"policies.{name} has trainable = false, and its model {policy.model!r} is made on "
                "the spot and has learned nothing: give the folder of a trained model, such as "
                f"RUN/start/{name}"
            )


def check_workflow_of(recipe: Recipe, env: Env[Any], task: Task) -> None:
    """Refuse a broken workflow, and one whose turns the topology or the scheme cannot use.

    Raises:
        ConfigError: if turns cannot have siblings, or have no states, with the cure.
        EnvError: if the workflow is broken.
    """
    workflow = make_workflow(recipe.workflow)
    asked = try_workflow(workflow, env, task, generator(recipe.seed, "workflow"))
    if asked and SCHEMES[recipe.credit.scheme].needs_states:
        raise ConfigError(
            f"workflow {recipe.workflow.kind!r} asks questions, whose answers belong to no state, "
            f"and credit.scheme = {recipe.credit.scheme!r} compares turns by their states: set "
            "credit.scheme = 'grpo', or do not use `ask`"
        )
    if isinstance(recipe.topology, SiblingsConfig):
        rng, workflow = generator(recipe.seed, "siblings"), make_workflow(recipe.workflow)
        refused = workflow_refusals(workflow, env, task, rng, recipe.topology)
        if refused:
            raise ConfigError(
                f"workflow {recipe.workflow.kind!r} does not go with topology.kind = "
                f"{recipe.topology.kind!r}: {refused}"
            )


def _engine_of(
    recipe: Recipe, playing: Mapping[str, Policy], tokens: Mapping[str, int]
) -> SteppedEngine:
    """Return the engine of all policies; copies of the pool have the lengths of their policies."""
    lengths = {name: tokens[name.partition("@")[0]] for name in playing}
    return make_engine(playing, recipe.remote, recipe.engine, recipe.seed, lengths)


def _tell_problems(tasks: GeneratedTasks, progress: Progress) -> None:
    """Say how many problems the splits have, and whether the test is unseen."""
    if tasks.problems.described:
        progress.note(f"{tasks.env.name}: {tasks.problems.described}")
    if tasks.seen:
        progress.note(f"{tasks.env.name}: validation and test are problems that training meets too")


def choose_threads(
    recipe: Recipe, folder: Run, policies: Mapping[str, Policy], note: Callable[[str], None]
) -> None:
    """Measure how many threads suit the largest policy, and keep the number in the run's recipe."""
    largest = max(policies.values(), key=lambda policy: policy.parameters)
    if largest.device.type != "cpu":
        return
    count = measure_threads(largest.model, recipe.processes or 1)
    if count is not None:
        folder.keep_setting("threads", count, "measured at the start")
        note(f"threads = {count}, measured; resuming keeps it")


def metrics_log(recipe: Recipe, folder: Run, progress: Progress) -> MetricsLog:
    """Return the log of a run's metrics, with the sinks that the recipe names."""
    settings = recipe.model_dump(mode="json")
    sinks = open_sinks(recipe.metrics, folder, settings, progress.note)
    return MetricsLog(folder.metrics, sinks=sinks)


def sequence_lengths(
    recipe: Recipe, env: Env[Any], tasks: GeneratedTasks, policies: Mapping[str, Policy]
) -> dict[str, int]:
    """Return policy name -> tokens of the longest sequence to expect of it, by its first prompts.

    Raises:
        ModelError: if an agent's first prompts leave no room for a reply.
        ConfigError: if an agent cannot say a legal action in its reply format.
    """
    renderers, found = renderers_of(recipe, policies), dict.fromkeys(policies, 0)
    for agent in recipe.agents.values():
        here = policies.get(agent.policy)
        context = here.context if here else sys.maxsize  # a server knows its own limit
        firsts = first_states(env, tasks.take(8), agent.role)
        check_actions(firsts, agent, env.name)
        lengths = prompt_lengths(firsts, agent, renderers[agent.policy])
        check_context(env, lengths, agent, context)
        if here:
            tokens = expected_tokens(lengths, agent, context)
            found[agent.policy] = max(found[agent.policy], tokens)
    return found


def trained_policies_of(
    recipe: Recipe, policies: Mapping[str, Policy], tokens: Mapping[str, int]
) -> dict[str, TrainedPolicy]:
    """Return policy name -> `TrainedPolicy`, for the policies that are trained."""
    return {
        name: TrainedPolicy(
            policy=policy,
            scorer=choose(policy.model, recipe.forest, recipe.seed, tokens[name]),
            agents={r: agent for r, agent in recipe.agents.items() if agent.policy == name},
        )
        for name, policy in policies.items()
        if policy.config.trainable
    }


def runner_of(
    recipe: Recipe,
    env: Env[Any],
    policies: Mapping[str, Policy],
    engine: SteppedEngine,
    seed: int,
    noise: NoiseRule = "common",
    group: ProcessGroup = ALONE,
) -> Runner:
    """Return the runner of one env; evaluation leaves `noise` common, as baselines have it.

    Only training episodes are left after `trainer.max_turns`, and only they have siblings.
    """
    return Runner(
        env=env,
        workflow=make_workflow(recipe.workflow),
        agents=recipe.agents,
        renderers=renderers_of(recipe, policies),
        engine=engine,
        seed=seed,
        noise=noise,
        weights=recipe.credit.rewards,
        iterations=recipe.trainer.iterations,
        group=group,
        most_turns=recipe.trainer.max_turns,
        state_key=recipe.credit.state_key,
        topology=recipe.topology,
        opponent=next(iter(recipe.scored_against(env)), None),
    )


def opponents_of(
    recipe: Recipe,
    env: Env[Any],
    trained: Mapping[str, TrainedPolicy],
    copies: Mapping[str, Policy],
    engine: SteppedEngine,
) -> Opponents | None:
    """Return who plays the other seats in training; None where the recipe says nothing of it."""
    if recipe.opponents is None or recipe.opponents.trains_alone:
        return None
    return Opponents(
        config=recipe.opponents,
        seed=recipe.seed,
        seats={seat: recipe.agents[role].policy for seat, role in env.seats.items()},
        policies={name: each.policy for name, each in trained.items()},
        copies=copies,
        engine=engine,
    )


def renderers_of(recipe: Recipe, policies: Mapping[str, Policy]) -> Mapping[str, RendererLike]:
    """Return policy name -> renderer, for the policies at an endpoint too."""
    here = {name: policy.renderer for name, policy in policies.items()}
    return here | {name: TextRenderer(name) for name in recipe.remote}


def make_policies(
    recipe: Recipe,
    folder: Run | None,
    note: Callable[[str], None] | None = None,
    *,
    configs: Mapping[str, PolicyConfig] | None = None,
) -> dict[str, Policy]:
    """Load the recipe's policies; one made on the spot is kept in the run and made once.

    From then on torch computes on as many threads as suit the largest (`policies.use_threads`);
    `note` receives how many. `configs` says how the policies are loaded; by default it is
    `config_of` of each.
    """
    made = configs is None or any(is_nano(config.model) for config in configs.values())
    if configs is None:
        configs = {name: config_of(name, recipe, folder) for name in recipe.weights}
        if folder is not None:
            _check_frozen(recipe, configs)
    policies = load_policies(
        configs,
        directory=None if folder is None else folder.models,
        transcripts=transcripts_of(recipe) if made else (),
        words=words_of(recipe) if made else (),
        seed=recipe.seed,
    )
    said = use_threads(max(policy.parameters for policy in policies.values()), recipe.threads)
    if note is not None and any(policy.device.type == "cpu" for policy in policies.values()):
        note(said)
    return policies


def config_of(name: str, recipe: Recipe, folder: Run | None) -> PolicyConfig:
    """Return the config of a policy, with the models that the run has made in place of recipes."""
    config = recipe.weights[name]
    if config.device == "auto":
        config = config.model_copy(update={"device": recipe.device})
    if folder is None:
        return config
    first = next(n for n, p in recipe.weights.items() if _makes_the_same(p, config))
    if is_nano(config.model) and (folder.models / first).is_dir():
        config = config.model_copy(update={"model": str(folder.models / first), "nano": None})
    base = folder.bases / recipe.base_of(name)
    if recipe.pretrains and config.lora is not None and base.is_dir():
        config = config.model_copy(update={"model": str(base), "nano": None})
    return config


def _makes_the_same(one: PolicyConfig, other: PolicyConfig) -> bool:
    """Whether two policies begin with one model, where it is made on the spot."""
    return (one.model, one.nano) == (other.model, other.nano)
