"""Scores of a policy on tasks, by the same rollout core that training uses (MATH 2).

Owns the score, its error and how they are computed. Evaluation never selects siblings by reward,
and its chance comes from the evaluation stream alone.
"""

from __future__ import annotations

from collections import defaultdict
from collections.abc import Sequence
from dataclasses import dataclass

import numpy as np

from turnwise.rollout.runner import Play, Runner
from turnwise.types import Episode, Task


@dataclass(frozen=True, kw_only=True, slots=True)
class Evaluation:
    """The mean score over tasks, its standard error, and the score of every task in order.

    The error counts distinct problems: a map that was drawn twice is one observation, not two.
    """

    score: float
    stderr: float
    scores: tuple[float, ...]
    episodes: tuple[Episode, ...]


def evaluate(runner: Runner, tasks: Sequence[Task], *, greedy: bool, number: int = 0) -> Evaluation:
    """Play every task once and return the mean score.

    Args:
        runner: plays the evaluation env.
        tasks: what to play; each is its own visit.
        greedy: the most probable tokens, or draws at the training temperature.
        number: tells evaluations of one run apart, so that two never share draws.
    """
    plays = [Play(iteration=number, visit=i, task=t, sample=0) for i, t in enumerate(tasks)]
    episodes = runner.collect(plays, "evaluation", greedy=greedy)
    problems = [runner.env.canonical(task.data) for task in tasks]
    scores = [episode.score for episode in episodes]
    return Evaluation(
        score=float(np.mean(scores)),
        stderr=clustered_stderr(scores, problems),
        scores=tuple(scores),
        episodes=tuple(episodes),
    )


def clustered_stderr(values: Sequence[float], clusters: Sequence[str]) -> float:
    """Return the standard error of the mean of `values` when equal `clusters` are one observation.

    The cluster-robust form (Liang and Zeger 1986): the residuals are summed within clusters first.

    Example:
        >>> round(clustered_stderr([0.0, 1.0, 0.0, 1.0], ["a", "b", "c", "d"]), 4)
        0.2887
        >>> clustered_stderr([1.0, 1.0], ["a", "a"])
        0.0
    """
    mean = float(np.mean(values))
    sums: dict[str, float] = defaultdict(float)
    for value, cluster in zip(values, clusters, strict=True):
        sums[cluster] += value - mean
    many = len(sums)
    if many < 2:
        return 0.0
    spread = sum(total * total for total in sums.values()) * many / (many - 1)
    return float(np.sqrt(spread) / len(values))
