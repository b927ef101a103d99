"""Scores of a policy on tasks, by the rollout core that training uses (docs/math.md 2).

Provides `evaluate`. Evaluation never selects siblings by reward, and draws from the evaluation
stream alone.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass, replace

import numpy as np

from turnwise.envs import BaselineScore, Measure, mean_measures, score_span, standard_error
from turnwise.envs.opponents import opposed
from turnwise.rollout.health import JUDGED, Health
from turnwise.rollout.runner import Runner
from turnwise.types import Episode, Player, Task, TaskVisit


@dataclass(frozen=True, kw_only=True, slots=True)
class Evaluation:
    """The mean score over tasks, its standard error, and the score of every task in order.

    Of a task that was played several times it is the mean of its episodes, and `best` the largest.
    `problems` is how many distinct ones are among the tasks. The error counts those: a map that was
    drawn twice is one observation, not two. Where they are few, it counts episodes
    (`envs.standard_error`). `broken` episodes, which the env or the engine ended, count with score
    0. `measures` are means over the episodes that came to a final state.
    """

    score: float
    stderr: float
    scores: tuple[float, ...]
    best: tuple[float, ...]
    best_score: float
    best_stderr: float
    problems: int
    episodes: tuple[Episode, ...]
    measures: Mapping[str, Measure]

    @property
    def broken(self) -> int:
        """The number of episodes that the policy did not decide."""
        return sum(episode.broken for episode in self.episodes)

    def as_baseline(self) -> BaselineScore:
        """Return the scores as those of a baseline, that others are compared with."""
        return BaselineScore(
            mean=self.score,
            stderr=self.stderr,
            n=self.problems,
            scores=self.scores,
            broken=self.broken,
            measures=self.measures,
        )


def evaluate(
    runner: Runner,
    tasks: Sequence[Task],
    *,
    greedy: bool,
    number: int = 0,
    samples: int = 1,
    against: str | None = None,
) -> Evaluation:
    """Play every task and return the mean score.

    Args:
        runner: plays the evaluation env.
        tasks: what to play; each is its own visit.
        greedy: the most probable tokens, or draws at the training temperature.
        number: tells evaluations of one run apart, so that two never share draws.
        samples: the episodes of each task. The first ones are the same however many there are.
        against: the baseline that plays all seats but one; None is the runner's own opponent.

    Raises:
        EnvError: if the env broke every one of 8 or more episodes (`Health`).
        EngineError: if the engine did.
    """
    visits = [TaskVisit(iteration=number, visit=i, task=t) for i, t in enumerate(tasks)]
    if against is not None:
        player, seats = Player(name=against), runner.env.seats
        visits = [replace(v, players=opposed(seats, v.visit, player)) for v in visits]
    episodes = runner.collect(visits, "evaluation", greedy=greedy, group_size=samples)
    problem = Health(JUDGED).problem(episodes, "the evaluation")
    if problem is not None:
        raise problem
    problems = [runner.env.canonical(task.data) for task in tasks]
    played = np.array([episode.score for episode in episodes]).reshape(len(tasks), samples)
    scores, best = played.mean(axis=1).tolist(), played.max(axis=1).tolist()
    span = score_span(runner.env)
    return Evaluation(
        score=float(np.mean(scores)),
        stderr=standard_error(scores, problems, span),
        scores=tuple(scores),
        best=tuple(best),
        best_score=float(np.mean(best)),
        best_stderr=standard_error(best, problems, span),
        problems=len(set(problems)),
        episodes=tuple(episodes),
        measures=mean_measures(
            [episode.measures for episode in episodes],
            [problem for problem in problems for _ in range(samples)],
        ),
    )
