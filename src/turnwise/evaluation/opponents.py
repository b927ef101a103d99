"""Scores of a policy against each of several opponents, by the seat that it has.

Provides `scores_against`.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence

import numpy as np

from turnwise.envs import Measure, score_span, standard_error
from turnwise.evaluation.scores import Evaluation, evaluate
from turnwise.rollout.runner import Runner
from turnwise.types import Task


def scores_against(
    runner: Runner,
    tasks: Sequence[Task],
    names: Sequence[str],
    *,
    greedy: bool,
    known: Mapping[str, Evaluation],
) -> dict[str, dict[str, Measure]]:
    """Return opponent -> seat -> mean score and error; the policy has each seat in turn.

    Args:
        runner: plays the evaluation env.
        tasks: what to play against each opponent.
        names: the opponents, baselines of the env.
        greedy: the most probable tokens, or draws at the training temperature.
        known: evaluations on the same tasks, by the opponent that they were played against.
    """
    problems = [runner.env.canonical(task.data) for task in tasks]
    found: dict[str, dict[str, Measure]] = {}
    for name in names:
        done = known.get(name) or evaluate(runner, tasks, greedy=greedy, against=name)
        found[name] = {}
        for place, seat in enumerate(runner.env.seats):
            scores = list(done.scores[place :: len(runner.env.seats)])
            if not scores:
                continue
            own = problems[place :: len(runner.env.seats)]
            error = standard_error(scores, own, score_span(runner.env))
            mean = float(np.mean(scores))
            found[name][seat] = Measure(mean=mean, stderr=error, episodes=len(scores))
    return found
