"""Scores on unseen tasks beside every baseline: of a run, or of models in the roles of a recipe.

Provides `evaluate_run`, `evaluate_models` and `play_run`. Nothing is trained, and nothing is
written into a run's folder.
"""

from __future__ import annotations

import time
from collections.abc import Mapping, Sequence
from contextlib import closing
from dataclasses import asdict
from pathlib import Path
from typing import Any

from turnwise.app.loading import Loaded, load_models, load_run
from turnwise.envs import BaselineScore, error_unit, score_baselines, score_span
from turnwise.envs.base import Env
from turnwise.envs.myopic import score_myopic
from turnwise.errors import ConfigError
from turnwise.evaluation import evaluate, exact_measures, swap_thoughts
from turnwise.evaluation.circles import circling
from turnwise.evaluation.opponents import scores_against
from turnwise.parallel import ALONE, ProcessGroup
from turnwise.policies import kept_threads
from turnwise.recipe.schema import Recipe, load_recipe
from turnwise.rollout import Runner, commonest_break
from turnwise.runs import Difference, RunScores
from turnwise.tasks import GeneratedTasks, Problems
from turnwise.types import Episode, Split, Task


@kept_threads()
def play_run(run: str | Path, env: Env[Any], task: Task, *, seed: int = 0) -> Episode:
    """Let a run's best policy play one task and return the episode.

    It plays as it is tested: greedily, or by draws at the training temperature.

    The slips of turn t are those of `world_generator(seed, "evaluation", 0, 0, t, None)`.

    Raises:
        ConfigError: if the env has other roles than the run.
    """
    with closing(load_run(run, seed=seed)) as loaded:
        own = loaded.recipe.agents
        if set(own) != set(env.roles):
            raise ConfigError(
                f"env {env.name!r} has the roles {sorted(env.roles)}, and run '{run}' plays "
                f"{sorted(own)}: give the env of the run, {loaded.recipe.env.name!r}"
            )
        loaded.use_checkpoint()
        greedy = loaded.decoding == "greedy"
        (episode,) = evaluate(loaded.judge(env), [task], greedy=greedy).episodes
        return episode


@kept_threads()
def evaluate_run(
    run: str | Path,
    *,
    tasks: int = 500,
    seed: int = 0,
    split: Split = "test",
    overrides: Sequence[str] = (),
    policies: Mapping[str, str] | None = None,
    group: ProcessGroup = ALONE,
) -> RunScores:
    """Score a run's best checkpoint, its warm-up and baselines on the same unseen tasks.

    Args:
        run: the run folder.
        tasks: how many tasks are drawn.
        seed: seeds them, the tokens and the randomness of the env, for policy and baselines alike.
        split: the split they are drawn from.
        overrides: settings of the run's recipe to replace, as "section.key=value".
        policies: role -> "RUN:POLICY" of another run, whose best checkpoint plays that role in
            place of the run's own policy.
        group: the processes that make this call together and share the episodes.

    Returns:
        Greedy and sampled scores with their errors, and those of the `baselines` on the same tasks,
        which are all of the env or those of `evaluation.baselines`, and `warmup`, the weights that
        training began with.

    Raises:
        RunError: if there is no run, or it has no checkpoint yet.
        UnknownNameError: if there is no such role or policy.
    """
    found = load_run(run, overrides=overrides, seed=seed, policies=policies, group=group)
    with closing(found) as loaded:
        return _scores(loaded, tasks, split)


@kept_threads()
def evaluate_models(
    recipe: Recipe | str,
    models: Mapping[str, str] | None = None,
    *,
    tasks: int = 500,
    seed: int = 0,
    split: Split = "test",
) -> RunScores:
    """Score models in the roles of a recipe, without training, beside every baseline.

    Args:
        recipe: a recipe, or what `load_recipe` takes.
        models: role -> a model's or adapter's directory, a hub name, a run folder or "RUN:POLICY".
            A role without one is played by the recipe's own model as it is before training.
        tasks: how many tasks are drawn.
        seed: seeds them, the tokens and the randomness of the env.
        split: the split they are drawn from.

    Returns:
        As `evaluate_run`, without `warmup`; `players` says who played each role.

    Raises:
        ConfigError: if a role is unknown, or has no weights.
        TurnwiseError: if a model or a run cannot be used; the message says how to mend it.
    """
    known = load_recipe(recipe) if isinstance(recipe, str) else recipe
    with closing(load_models(known, models or {}, seed=seed)) as loaded:
        return _scores(loaded, tasks, split)


def _scores(loaded: Loaded, tasks: int, split: Split) -> RunScores:
    """Score the policies in use on tasks of a split, beside every baseline."""
    seed, env = loaded.seed, loaded.recipe.env.make("evaluation")
    judge, source = loaded.judge(env), GeneratedTasks(env, split, seed)
    began, drawn = time.perf_counter(), source.take(tasks)
    loaded.use_checkpoint()
    greedy = evaluate(judge, drawn, greedy=True, number=0)
    samples = loaded.recipe.evaluation.samples
    sampled = evaluate(judge, drawn, greedy=False, number=0, samples=samples)
    chosen = {"greedy": greedy, "sampled": sampled}[loaded.decoding]
    against = loaded.recipe.scored_against(env)
    versus = scores_against(
        judge,
        drawn,
        against,
        greedy=loaded.decoding == "greedy",
        known=dict.fromkeys(against[:1], chosen),
    )
    exact, thoughts = loaded.group.from_first(
        lambda: (_exact(loaded, env, drawn), _thoughts(loaded, greedy.episodes))
    )
    rivals, broken = _rivals(loaded, judge, drawn)
    problems = [env.canonical(task.data) for task in drawn]
    return RunScores(
        env=env.name,
        tasks=len(drawn),
        seed=seed,
        split=split,
        players=loaded.players,
        errors_over=error_unit(problems),
        **_of_problems(loaded, source.problems, problems),
        checkpoint=loaded.checkpoint_name,
        score=chosen.score,
        stderr=chosen.stderr,
        decoding=loaded.decoding,
        score_greedy=greedy.score,
        score_greedy_stderr=greedy.stderr,
        score_sampled=sampled.score,
        score_sampled_stderr=sampled.stderr,
        samples=samples,
        score_best=sampled.best_score if samples > 1 else None,
        score_best_stderr=sampled.best_stderr if samples > 1 else None,
        baselines={name: rival.mean for name, rival in rivals.items()},
        baselines_stderr={name: rival.stderr for name, rival in rivals.items()},
        measures=dict(chosen.measures),
        baselines_measures={
            name: dict(rival.measures) for name, rival in rivals.items() if rival.measures
        },
        paired=_leads(chosen.scores, rivals, problems, score_span(env)),
        exact=exact,
        thoughts=thoughts,
        opponents=versus,
        bounded=score_span(env) is not None,
        broken=greedy.broken + sampled.broken + broken,
        broken_by=commonest_break([*greedy.episodes, *sampled.episodes]),
        circling=circling(greedy.episodes),
        myopic=loaded.group.from_first(lambda: _myopic(loaded, env, drawn)),
        seconds=time.perf_counter() - began,
    )


def _leads(
    ours: Sequence[float],
    rivals: Mapping[str, BaselineScore],
    problems: Sequence[str],
    span: float | None,
) -> dict[str, Difference]:
    """Return the mean difference from each rival's scores on the same tasks."""
    return {
        name: Difference.of(ours, rival.scores, problems, span) for name, rival in rivals.items()
    }


def _rivals(
    loaded: Loaded, judge: Runner, tasks: Sequence[Task]
) -> tuple[dict[str, BaselineScore], int]:
    """Return who the policy is compared with, by name, and how many of their episodes broke.

    Leaves other weights in use.
    """
    recipe = loaded.recipe
    found = loaded.group.from_first(
        lambda: score_baselines(
            judge.env,
            tasks,
            loaded.seed,
            names=recipe.evaluation.baselines,
            weights=recipe.credit.rewards,
            opponents=recipe.scored_against(judge.env),
        )
    )
    broken = sum(baseline.broken for baseline in found.values())
    if loaded.use_start():
        before = evaluate(judge, tasks, greedy=loaded.decoding == "greedy", number=0)
        found["warmup"] = before.as_baseline()
    return found, broken


def _of_problems(loaded: Loaded, known: Problems, drawn: Sequence[str]) -> dict[str, Any]:
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


def _myopic(loaded: Loaded, env: Env[Any], tasks: Sequence[Task]) -> dict[str, float]:
    """Return the score of the steps that pay most, if training compares single steps."""
    recipe = loaded.recipe
    if not recipe.compares_steps or env.branching != "pure":
        return {}
    found = score_myopic(env, tasks, loaded.seed, recipe.credit.rewards)
    if found is None or found.broken:  # a low score would tell nothing of the rewards
        return {}
    return {"score": found.mean, "stderr": found.stderr, "tasks": len(found.scores)}


def _exact(loaded: Loaded, env: Env[Any], tasks: Sequence[Task]) -> dict[str, dict[str, float]]:
    """Return what the policy in use is worth by computation, on the first tasks, if asked for."""
    count = loaded.recipe.evaluation.exact
    if not count:
        return {}
    return exact_measures(env, tasks[:count], loaded.recipe.agents, loaded.policies)


def _thoughts(loaded: Loaded, episodes: Sequence[Episode]) -> dict[str, dict[str, float]]:
    """Return what answers do when thoughts are swapped, by role, for the roles that think."""
    found: dict[str, dict[str, float]] = {}
    for role, agent in loaded.recipe.agents.items():
        if agent.policy not in loaded.policies:  # at an endpoint, which takes no tokens
            continue
        renderer = loaded.policies[agent.policy].renderer
        swap = swap_thoughts(episodes, agent, renderer, loaded.engine, seed=loaded.seed)
        if swap is not None:
            found[role] = asdict(swap)
    return found
