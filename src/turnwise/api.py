"""The library's front: from a recipe to a run, from a run to its scores.

Owns the putting together of parts and the phases of a run: make or load the policy, warm up, train,
evaluate, report. The command line is a thin face on these functions.
"""

from __future__ import annotations

import shlex
import time
from collections.abc import Sequence
from contextlib import ExitStack
from dataclasses import dataclass
from functools import partial
from pathlib import Path
from typing import Any, get_args

import numpy as np

from turnwise.agents import demonstration, messages_for
from turnwise.curriculum import UniformCurriculum
from turnwise.engines import LocalEngine
from turnwise.envs import clustered_stderr, score_baselines
from turnwise.envs.base import Env
from turnwise.errors import ModelError, RunError
from turnwise.forest import choose
from turnwise.noise import generator
from turnwise.policies import (
    Policy,
    PolicyConfig,
    is_nano,
    load_policy,
    make_nano,
    nano_preset,
)
from turnwise.recipe import Recipe, load_recipe
from turnwise.rollout import Runner, evaluate
from turnwise.rollout.runner import NoiseRule
from turnwise.runs import (
    Checkpoint,
    Checkpoints,
    Difference,
    EpisodeLog,
    MetricsLog,
    Run,
    RunScores,
    StopSignal,
    write_report,
    write_scores,
)
from turnwise.stages import PRETRAIN, make_base, run_phases, without_adapters
from turnwise.tasks import GeneratedTasks
from turnwise.trainers import START, Plan, Progress, Session, Silent
from turnwise.types import Episode, Split, Task
from turnwise.workflows import get_workflow

BIG = 50_000_000
"""Parameters from which on checkpoints are written every 10 iterations by default."""
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
    if resume_run:
        if run is None:
            raise RunError("resume needs the run's folder: give --run DIR")
        folder = Run.open(run)
        own = load_recipe(str(folder.recipe))
        if own.name != recipe.name:
            raise RunError(
                f"'{run}' is a run of recipe {own.name!r}, not of {recipe.name!r}: give its own, "
                f"'{folder.recipe}'"
            )
        recipe = own
    else:
        folder = Run.create(root, recipe.name, recipe.to_toml(), run)
    with ExitStack() as stack:
        stack.enter_context(folder.lock())
        stop = stack.enter_context(StopSignal())
        parts = partial(assemble, folder=folder, stop=stop, progress=watcher)
        if not make_base(recipe, folder, parts, resumed=resume_run):
            return _stopped(folder, stop, watcher)
        session = parts(recipe)
        stack.callback(session.metrics.close)
        if not run_phases(session, recipe, plan_of(recipe), resumed=resume_run):
            return _stopped(folder, stop, watcher)
        watcher.begin("evaluation", done=0, total=1)
        scores = evaluate_run(folder.path, tasks=recipe.evaluation.test_tasks, seed=recipe.seed)
        write_scores(folder.evaluation, scores)
        write_report(folder, command=f"turnwise train {folder.recipe}")
        watcher.advance(1, {"test/score": scores.score})
    return Outcome(run=folder.path, finished=True, scores=scores)


def _stopped(folder: Run, stop: StopSignal, watcher: Progress) -> Outcome:
    """Say how a run that was asked to stop goes on."""
    # the run's own recipe: its name may be that of a file that `turnwise` does not know
    paths = shlex.join([str(folder.recipe), "--run", str(folder.path)])
    again = f"go on with `turnwise train {paths} --resume`"
    watcher.note(f"stopped by {stop.requested} after saving: {again}")
    return Outcome(run=folder.path, finished=False, scores=None)


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
        target=recipe.evaluation.target,
    )


def assemble(recipe: Recipe, folder: Run, stop: StopSignal, progress: Progress) -> Session:
    """Build the parts that `recipe` names, for the run in `folder`."""
    policy = make_policy(recipe, folder.path)
    training, warmup = recipe.env.make("training"), recipe.env.make("warmup")
    judged = recipe.env.make("evaluation")
    engine = LocalEngine({policy.name: policy}, recipe.engine, recipe.seed)
    scorer = choose(policy.model, recipe.forest, recipe.seed)
    progress.note(f"{policy.name}: {policy.parameters:,} parameters, {policy.device}")
    progress.note(f"forest {scorer.reason}; engine {engine.reason(policy.name)}")
    tasks = GeneratedTasks(training, "train", recipe.seed)
    for split in get_args(Split):
        GeneratedTasks(judged, split, recipe.seed).task(0)  # now, and not when the run is over
    big = policy.parameters >= BIG
    (agent,) = recipe.agents.values()
    return Session(
        seed=recipe.seed,
        run=folder,
        policy=policy,
        agent=agent,
        engine=engine,
        scorer=scorer,
        runner=_runner(recipe, training, policy, engine, recipe.seed, recipe.trainer.noise),
        judge=_runner(recipe, judged, policy, engine, recipe.seed),
        warmup_env=warmup,
        warmup_tasks=GeneratedTasks(warmup, "train", recipe.seed),
        curriculum=UniformCurriculum(tasks.task, recipe.trainer.tasks_per_iteration),
        validation=GeneratedTasks(judged, "validation", recipe.seed),
        validation_states=GeneratedTasks(training, "validation", recipe.seed),
        metrics=MetricsLog(folder.metrics, tensorboard=folder.tensorboard),
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


def _runner(
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
        any_text = [env.random_action(state, agent.role, rng) for _ in range(4 * (not seen.legal))]
        transcripts += [
            demonstration(seen.description, action, agent.answer)
            for action in (*seen.legal, *any_text)
        ]
    return transcripts


def init_model(recipe: Recipe, size: str, directory: Path) -> int:
    """Make a nano model for the recipe's env in `directory`; return its number of parameters."""
    if directory.exists():
        raise ModelError(f"'{directory}' exists: give a directory that does not")
    words = recipe.env.make("evaluation").words()
    make_nano(directory, transcripts_of(recipe), words, nano_preset(size), recipe.seed)
    return load_policy("model", PolicyConfig(model=str(directory), device="cpu")).parameters


def play_run(run: Path, env: Env[Any], task: Task, *, seed: int = 0) -> Episode:
    """Let a run's best policy play one task greedily and return the episode.

    The slips of turn t are those of `world_generator(seed, "evaluation", 0, 0, t, None)`.
    """
    loaded = load_run(run, seed=seed)
    loaded.use(loaded.checkpoint.path / "policy")
    (episode,) = evaluate(loaded.judge(env), [task], greedy=True).episodes
    return episode


@dataclass(frozen=True, kw_only=True, slots=True)
class LoadedRun:
    """A run read back: its recipe, its chosen checkpoint, and an engine to play with."""

    folder: Run
    recipe: Recipe
    checkpoint: Checkpoint
    policy: Policy
    engine: LocalEngine
    seed: int

    def judge(self, env: Env[Any]) -> Runner:
        """Return who plays `env` with the weights in use, with the chance of `seed`."""
        return _runner(self.recipe, env, self.policy, self.engine, self.seed)

    def use(self, weights: Path) -> None:
        """Play with the weights in `weights` from now on."""
        self.policy.load_weights(weights)
        self.policy.version += 1
        self.engine.hand_over(self.policy.name)


def load_run(run: Path, *, overrides: Sequence[str] = (), seed: int | None = None) -> LoadedRun:
    """Read a run back with its best checkpoint, or its latest where none was validated.

    Raises:
        RunError: if there is no run, it has no checkpoint yet, or the chosen one is damaged.
    """
    folder = Run.open(run)
    recipe = load_recipe(str(folder.recipe), overrides)
    checkpoints = Checkpoints(folder.checkpoints, keep=recipe.checkpoint.keep)
    chosen = checkpoints.best() or checkpoints.latest().checkpoint
    if chosen is None:
        raise RunError(f"run '{folder.path}' has no checkpoint yet: let it train first")
    checkpoints.check(chosen)
    recipe = without_adapters(recipe) if chosen.phase == PRETRAIN else recipe
    policy = make_policy(recipe, folder.path)
    seed = recipe.seed if seed is None else seed
    return LoadedRun(
        folder=folder,
        recipe=recipe,
        checkpoint=chosen,
        policy=policy,
        engine=LocalEngine({policy.name: policy}, recipe.engine, seed),
        seed=seed,
    )


def evaluate_run(
    run: Path,
    *,
    tasks: int = 500,
    seed: int = 0,
    split: Split = "test",
    overrides: Sequence[str] = (),
) -> RunScores:
    """Score a run's best checkpoint, its warm-up and every baseline on the same unseen tasks.

    Args:
        run: the run folder.
        tasks: how many tasks are drawn.
        seed: draws them, the tokens and the world's chance, the policy's and the baselines' alike.
        split: the split they are drawn from.
        overrides: settings of the run's recipe to replace, as "section.key=value".

    Returns:
        Greedy and sampled scores with their errors, and those of all `baselines` on the same tasks,
        among them `warmup`, the weights that training began with.

    Raises:
        RunError: if there is no run, or it has no checkpoint yet.
    """
    loaded = load_run(run, overrides=overrides, seed=seed)
    env = loaded.recipe.env.make("evaluation")
    judge, source = loaded.judge(env), GeneratedTasks(env, split, seed)
    drawn = source.take(tasks)
    began = time.perf_counter()
    loaded.use(loaded.checkpoint.path / "policy")
    greedy = evaluate(judge, drawn, greedy=True, number=0)
    sampled = evaluate(judge, drawn, greedy=False, number=0)
    baselines = score_baselines(env, drawn, seed)
    means = {name: found.mean for name, found in baselines.items()}
    errors = {name: found.stderr for name, found in baselines.items()}
    rivals = {name: found.scores for name, found in baselines.items()}
    start = loaded.folder.path / START
    if start.is_dir():
        loaded.use(start)
        before = evaluate(judge, drawn, greedy=True, number=0)
        means["warmup"], errors["warmup"] = before.score, before.stderr
        rivals["warmup"] = before.scores
    paired = {name: _paired(env, drawn, greedy.scores, scores) for name, scores in rivals.items()}
    return RunScores(
        env=env.name,
        tasks=tasks,
        seed=seed,
        split=split,
        seen=source.seen,
        checkpoint=f"{loaded.checkpoint.phase} {loaded.checkpoint.step}",
        score=greedy.score,
        stderr=greedy.stderr,
        score_sampled=sampled.score,
        score_sampled_stderr=sampled.stderr,
        baselines=means,
        baselines_stderr=errors,
        paired=paired,
        broken=greedy.broken + sampled.broken,
        seconds=time.perf_counter() - began,
    )


def _paired(
    env: Env[Any], tasks: Sequence[Task], ours: Sequence[float], theirs: Sequence[float]
) -> Difference:
    """Return the mean difference on the same tasks and its standard error (MATH 6)."""
    differences = [a - b for a, b in zip(ours, theirs, strict=True)]
    problems = [env.canonical(task.data) for task in tasks]
    error = clustered_stderr(differences, problems)
    return Difference(difference=float(np.mean(differences)), stderr=error)
