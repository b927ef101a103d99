"""Scores of a policy on tasks, by the same rollout core that training uses (docs/math.md 2).

Owns the score, its error and how they are computed. Evaluation never selects siblings by reward,
and its chance comes from the evaluation stream alone.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass

import numpy as np

from turnwise.envs import score_span, standard_error
from turnwise.rollout.health import JUDGED, Health
from turnwise.rollout.runner import Play, Runner
from turnwise.types import Episode, Task


@dataclass(frozen=True, kw_only=True, slots=True)
class Evaluation:
    """The mean score over tasks, its standard error, and the score of every task in order.

    The error counts distinct problems: a map that was drawn twice is one observation, not two.
    Where those are few, it counts episodes (`envs.standard_error`).
    `broken` episodes, which the env or the engine ended, count with score 0.
    """

    score: float
    stderr: float
    scores: tuple[float, ...]
    episodes: tuple[Episode, ...]

    @property
    def broken(self) -> int:
        """How many episodes the policy did not decide."""
        return sum(episode.broken for episode in self.episodes)


def evaluate(runner: Runner, tasks: Sequence[Task], *, greedy: bool, number: int = 0) -> Evaluation:
    """Play every task once and return the mean score.

    Args:
        runner: plays the evaluation env.
        tasks: what to play; each is its own visit.
        greedy: the most probable tokens, or draws at the training temperature.
        number: tells evaluations of one run apart, so that two never share draws.

    Raises:
        EnvError: if the env broke every one of 8 or more episodes (`Health`).
        EngineError: if the engine did.
    """
    plays = [Play(iteration=number, visit=i, task=t, sample=0) for i, t in enumerate(tasks)]
    episodes = runner.collect(plays, "evaluation", greedy=greedy)
    problem = Health(JUDGED).problem(episodes, "the evaluation")
    if problem is not None:
        raise problem
    problems = [runner.env.canonical(task.data) for task in tasks]
    scores = [episode.score for episode in episodes]
    return Evaluation(
        score=float(np.mean(scores)),
        stderr=standard_error(scores, problems, score_span(runner.env)),
        scores=tuple(scores),
        episodes=tuple(episodes),
    )
