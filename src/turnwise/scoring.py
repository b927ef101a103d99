"""A run read back: its scores on unseen tasks beside every baseline, and its policy at play.

Owns `load_run` and `evaluate_run`. Trains nothing and writes nothing into the run's folder.
"""

from __future__ import annotations

import time
from collections.abc import Mapping, Sequence
from dataclasses import asdict, dataclass
from pathlib import Path
from typing import Any

from turnwise.assembly import make_policy, runner_of
from turnwise.engines import LocalEngine
from turnwise.envs import error_unit, score_baselines, score_span
from turnwise.envs.base import Env
from turnwise.errors import RunError
from turnwise.policies import (
    Policy,
    kept_threads,
)
from turnwise.recipe import Recipe, load_recipe
from turnwise.rollout import Runner, evaluate, swap_thoughts
from turnwise.runs import (
    Checkpoint,
    Checkpoints,
    Difference,
    Run,
    RunScores,
)
from turnwise.sections import open_sandbox
from turnwise.stages import PRETRAIN, without_adapters
from turnwise.tasks import GeneratedTasks, Problems
from turnwise.trainers import (
    START,
    exact_measures,
)
from turnwise.trainers.validation import DECODING
from turnwise.types import Decoding, Episode, Split, Task


@kept_threads()
def play_run(run: str | Path, env: Env[Any], task: Task, *, seed: int = 0) -> Episode:
    """Let a run's best policy play one task and return the episode.

    It plays as it is tested: greedily, or by draws at the training temperature.

    The slips of turn t are those of `world_generator(seed, "evaluation", 0, 0, t, None)`.
    """
    loaded = load_run(run, seed=seed)
    loaded.use(loaded.checkpoint.path / "policy")
    greedy = loaded.decoding == "greedy"
    (episode,) = evaluate(loaded.judge(env), [task], greedy=greedy).episodes
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

    @property
    def decoding(self) -> Decoding:
        """How the policy plays: as the recipe says, or as it validated better.

        Weights that were never validated imitate random play at best, whose most probable action
        is of no use: they are sampled.
        """
        rule = self.recipe.evaluation.decoding
        return self.checkpoint.meta.get(DECODING, "sampled") if rule == "validated" else rule

    def judge(self, env: Env[Any]) -> Runner:
        """Return who plays `env` with the weights in use, with the chance of `seed`."""
        return runner_of(self.recipe, env, self.policy, self.engine, self.seed)

    def use(self, weights: Path) -> None:
        """Play with the weights in `weights` from now on."""
        self.policy.load_weights(weights)
        self.policy.version += 1
        self.engine.hand_over(self.policy.name)


def load_run(
    run: str | Path, *, overrides: Sequence[str] = (), seed: int | None = None
) -> LoadedRun:
    """Read a run back with its best checkpoint, or its latest where none was validated.

    Raises:
        RunError: if there is no run, it has no checkpoint yet, or the chosen one is damaged.
    """
    folder = Run.open(Path(run))
    recipe = load_recipe(str(folder.recipe), overrides)
    checkpoints = Checkpoints(folder.checkpoints, keep=recipe.checkpoint.keep)
    chosen = checkpoints.best() or checkpoints.latest().checkpoint
    if chosen is None:
        raise RunError(f"run '{folder.path}' has no checkpoint yet: let it train first")
    checkpoints.check(chosen)
    open_sandbox(recipe.env.make("evaluation"), recipe.sandbox)
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


@kept_threads()
def evaluate_run(
    run: str | Path,
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
    began, drawn = time.perf_counter(), source.take(tasks)
    loaded.use(loaded.checkpoint.path / "policy")
    greedy = evaluate(judge, drawn, greedy=True, number=0)
    sampled = evaluate(judge, drawn, greedy=False, number=0)
    chosen = {"greedy": greedy, "sampled": sampled}[loaded.decoding]
    exact, thoughts = _exact(loaded, env, drawn), _thoughts(loaded, greedy.episodes)
    rivals, broken = _rivals(loaded, judge, drawn)
    problems = [env.canonical(task.data) for task in drawn]
    return RunScores(
        env=env.name,
        tasks=len(drawn),
        seed=seed,
        split=split,
        errors_over=error_unit(problems),
        **_of_problems(loaded, source.problems, problems),
        checkpoint=f"{loaded.checkpoint.phase} {loaded.checkpoint.step}",
        score=chosen.score,
        stderr=chosen.stderr,
        decoding=loaded.decoding,
        score_greedy=greedy.score,
        score_greedy_stderr=greedy.stderr,
        score_sampled=sampled.score,
        score_sampled_stderr=sampled.stderr,
        baselines={name: score for name, (score, _, _) in rivals.items()},
        baselines_stderr={name: error for name, (_, error, _) in rivals.items()},
        paired=_leads(chosen.scores, rivals, problems, score_span(env)),
        exact=exact,
        thoughts=thoughts,
        broken=greedy.broken + sampled.broken + broken,
        seconds=time.perf_counter() - began,
    )


Scored = tuple[float, float, tuple[float, ...]]
"""A mean score, its standard error, and the score of every task."""


def _leads(
    ours: Sequence[float],
    rivals: Mapping[str, Scored],
    problems: Sequence[str],
    span: float | None,
) -> dict[str, Difference]:
    """Return the mean difference from each rival's scores on the same tasks."""
    return {
        name: Difference.of(ours, scores, problems, span) for name, (_, _, scores) in rivals.items()
    }


def _rivals(
    loaded: LoadedRun, judge: Runner, tasks: Sequence[Task]
) -> tuple[dict[str, Scored], int]:
    """Return who the policy is compared with, by name, and how many of their episodes broke.

    Leaves other weights in use.
    """
    baselines = score_baselines(judge.env, tasks, loaded.seed)
    found = {name: (b.mean, b.stderr, b.scores) for name, b in baselines.items()}
    start = loaded.folder.path / START
    if start.is_dir():
        loaded.use(start)
        before = evaluate(judge, tasks, greedy=loaded.decoding == "greedy", number=0)
        found["warmup"] = (before.score, before.stderr, before.scores)
    return found, sum(b.broken for b in baselines.values())


def _of_problems(loaded: LoadedRun, known: Problems, drawn: Sequence[str]) -> dict[str, Any]:
    """Return what scores say of problems, given those of every task.

    Training's env, which may have other options, says which of them it meets.
    """
    training = GeneratedTasks(loaded.recipe.env.make("training"), "train", loaded.seed)
    met = training.problems.met(drawn)
    return {
        "problems": len(set(drawn)),
        "splits": dict(known.counts),
        "splits_described": known.described,
        "others": known.others,
        "seen": met > 0,
        "seen_share": met,
    }


def _exact(loaded: LoadedRun, env: Env[Any], tasks: Sequence[Task]) -> dict[str, dict[str, float]]:
    """Return what the policy in use is worth by computation, on the first tasks, if asked for."""
    count = loaded.recipe.evaluation.exact
    if not count:
        return {}
    (agent,) = loaded.recipe.agents.values()
    return exact_measures(env, tasks[:count], agent, loaded.policy)


def _thoughts(loaded: LoadedRun, episodes: Sequence[Episode]) -> dict[str, float] | None:
    """Return what answers do when thoughts are swapped; None where nothing is thought."""
    (agent,) = loaded.recipe.agents.values()
    found = swap_thoughts(episodes, agent, loaded.policy.renderer, loaded.engine, seed=loaded.seed)
    return None if found is None else asdict(found)
