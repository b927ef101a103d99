"""Scores of an env's baselines on unseen tasks: what a policy has to beat, found without any model.

Provides `evaluate_baselines` and `BaselineScores`. Imports no torch.
"""

from __future__ import annotations

import time
from collections.abc import Mapping
from typing import Any

from pydantic import Field

from turnwise.envs import ErrorUnit, Measure, error_unit, score_baselines
from turnwise.envs.base import Env
from turnwise.errors import ConfigError, unknown_name
from turnwise.recipe.sections import open_sandbox
from turnwise.runs.error_texts import measured, score_error_text
from turnwise.sandbox import SandboxConfig
from turnwise.settings import Settings
from turnwise.tasks import GeneratedTasks
from turnwise.types import Split
from turnwise.utils.text import aligned


class BaselineScores(Settings):
    """The scores of the policies without a model in an env, printed as a table.

    Example:
        >>> from turnwise.envs import make_env
        >>> scores = evaluate_baselines(make_env("frozen-lake"), tasks=20)
        >>> scores.baselines["optimal"], scores.tasks
        (1.0, 20)
        >>> print(str(scores).splitlines()[0])
        frozen-lake: 20 tasks of the test split, 15 distinct problems, seed 0
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
    reward_weights: dict[str, float] = Field(default_factory=dict)
    """Weight of each reward component in the score, where the score is the return
    (`scored_by = "return"`); empty where it is `Env.score`."""
    broken: int = 0
    """Episodes that the env ended by an error; they count with score 0."""
    seconds: float = 0.0
    """The duration in seconds."""

    def __str__(self) -> str:
        """Return the table of scores, best first, and what they mean."""
        few = self.problems < self.tasks
        distinct = f", {self.problems} distinct problem{'s' * (self.problems > 1)}" if few else ""
        head = (
            f"{self.env}: {self.tasks} tasks of the {self.split} split{distinct}, seed {self.seed}"
        )
        measures = measured(self.baselines_measures)
        columns = list(dict.fromkeys(name for row in measures.values() for name in row))
        rows = [("baseline", "score", *columns)]
        for name in sorted(self.baselines, key=lambda name: -self.baselines[name]):
            own = measures.get(name, {})
            score = f"{self.baselines[name]:.3f} {self.error_text(name)}"
            rows.append((name, score, *(own.get(column, "") for column in columns)))
        broken = [self.told_of_broken] if self.broken else []
        return "\n".join([head, *aligned(rows), *self.meaning, *broken])

    __repr__ = __str__

    def error_text(self, baseline: str) -> str:
        """Return the standard error of a baseline's score in words."""
        score, error = self.baselines[baseline], self.baselines_stderr[baseline]
        return score_error_text(score, error, self.tasks, bounded=not self.reward_weights)

    @property
    def meaning(self) -> tuple[str, ...]:
        """Sentences on what the scores and their errors are."""
        errors = f"Errors are standard errors over {self.errors_over}."
        if not self.reward_weights:
            return (errors,)
        weights = ", ".join(f"{name} {weight:g}" for name, weight in self.reward_weights.items())
        return (f"Scores are returns: sums of the rewards by weight ({weights}).", errors)

    @property
    def told_of_broken(self) -> str:
        """What is said of broken episodes; "" if there are none."""
        if not self.broken:
            return ""
        return (
            f"the env broke {self.broken} episodes, which count with score 0: `turnwise check` "
            "says where"
        )


def evaluate_baselines(
    env: Env[Any],
    *,
    tasks: int = 500,
    seed: int = 0,
    split: Split = "test",
    reward_weights: Mapping[str, float] | None = None,
) -> BaselineScores:
    """Play all baselines of an env on the same tasks and return their scores.

    Where the env says `scored_by = "return"`, the score is the weighted sum of the rewards, as in a
    run.

    Args:
        env: the env.
        tasks: how many tasks are drawn.
        seed: seeds them and all randomness.
        split: the split they are drawn from.
        reward_weights: the weights of reward components in the score of an env that is scored by
            its return, as in `train`; None is 1 each. Components that are left out do not count.

    Raises:
        ConfigError: if the env has no baselines, or weights are given that no score of it has.
    """
    began = time.perf_counter()
    if not env.baselines():
        raise ConfigError(
            f"env {env.name!r} has no baselines: write `baselines`, which returns a dict of name "
            "and function, from (state, rng) to an action"
        )
    weights = _weights_of(env, reward_weights)
    open_sandbox(env, SandboxConfig())
    drawn = GeneratedTasks(env, split, seed).take(tasks)
    found = score_baselines(env, drawn, seed, weights=weights)
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
        reward_weights=weights,
        broken=sum(score.broken for score in found.values()),
        seconds=time.perf_counter() - began,
    )


def _weights_of(env: Env[Any], given: Mapping[str, float] | None) -> dict[str, float]:
    """Return the weights of the rewards in the score; none where `Env.score` is the score."""
    if env.scored_by == "score":
        if given is not None:
            raise ConfigError(
                f"reward_weights do not change the score of env {env.name!r}, which is its "
                '`score`: leave them out; they are for an env with scored_by = "return"'
            )
        return {}
    if given is None:
        return dict.fromkeys(env.components, 1.0)
    for name in given:
        if name not in env.components:
            raise unknown_name("reward component", name, env.components)
    return {name: float(weight) for name, weight in given.items()}
