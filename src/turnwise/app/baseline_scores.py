"""Scores of an env's baselines on unseen tasks: what a policy has to beat, found without any model.

Provides `evaluate_baselines` and `BaselineScores`. Imports no torch.
"""

from __future__ import annotations

import time
from typing import Any

from pydantic import Field

from turnwise.envs import ErrorUnit, Measure, error_unit, score_baselines
from turnwise.envs.base import Env
from turnwise.errors import ConfigError
from turnwise.recipe.sections import open_sandbox
from turnwise.sandbox import SandboxConfig
from turnwise.settings import Settings
from turnwise.tasks import GeneratedTasks
from turnwise.types import Split


class BaselineScores(Settings):
    """The scores of the policies without a model in an env.

    Example:
        >>> from turnwise.envs import make_env
        >>> scores = evaluate_baselines(make_env("frozen-lake"), tasks=20)
        >>> scores.baselines["optimal"], scores.tasks
        (1.0, 20)
    """

    env: str
    """The env's name."""
    tasks: int
    """The number of tasks, each played once by every baseline."""
    seed: int
    """The seed of the tasks and of all draws."""
    split: str
    """The split the tasks were drawn from."""
    problems: int
    """The number of distinct problems among the tasks."""
    errors_over: ErrorUnit
    """The unit of the standard errors (`envs.standard_error`)."""
    baselines: dict[str, float]
    """Name -> mean score."""
    baselines_stderr: dict[str, float]
    """Their standard errors."""
    baselines_measures: dict[str, dict[str, Measure]] = Field(default_factory=dict)
    """Name -> what the env measures beside the score."""
    broken: int = 0
    """Episodes that the env ended by an error; they count with score 0."""
    seconds: float = 0.0
    """The duration in seconds."""


def evaluate_baselines(
    env: Env[Any], *, tasks: int = 500, seed: int = 0, split: Split = "test"
) -> BaselineScores:
    """Play all baselines of an env on the same tasks and return their scores.

    Args:
        env: the env.
        tasks: how many tasks are drawn.
        seed: draws them and all chance.
        split: the split they are drawn from.

    Raises:
        ConfigError: if the env has no baselines.
    """
    began = time.perf_counter()
    if not env.baselines():
        raise ConfigError(
            f"env {env.name!r} has no baselines: write `baselines`, which returns a dict of name "
            "and function, from (state, rng) to an action"
        )
    open_sandbox(env, SandboxConfig())
    drawn = GeneratedTasks(env, split, seed).take(tasks)
    found = score_baselines(env, drawn, seed)
    problems = [env.canonical(task.data) for task in drawn]
    return BaselineScores(
        env=env.name,
        tasks=len(drawn),
        seed=seed,
        split=split,
        problems=len(set(problems)),
        errors_over=error_unit(problems),
        baselines={name: score.mean for name, score in found.items()},
        baselines_stderr={name: score.stderr for name, score in found.items()},
        baselines_measures={n: dict(score.measures) for n, score in found.items()},
        broken=sum(score.broken for score in found.values()),
        seconds=time.perf_counter() - began,
    )
