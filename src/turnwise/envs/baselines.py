"""What players without a model score: the numbers that every other score is read beside.

Owns the playing of an env's baselines. Chance is that of the evaluation stream, placed as the
rollout places it: with one seed, a baseline and a model meet the same slips, so that their scores
on a task can be compared in pairs. Episodes end at the env's cap on turns, as a model's do.
"""

from __future__ import annotations

from collections.abc import Iterable, Sequence
from dataclasses import dataclass
from itertools import cycle
from typing import Any

import numpy as np

from turnwise.envs.base import Baseline, Env, score_span
from turnwise.envs.uncertainty import standard_error
from turnwise.errors import BrokenEnvError, IllegalActionError, StuckEnvError, unknown_name
from turnwise.noise import generator, world_generator
from turnwise.types import Task


@dataclass(frozen=True, kw_only=True, slots=True)
class BaselineScore:
    """A baseline's mean score, its standard error, and every score, of `n` distinct problems.

    The error is over problems, or over episodes where there are few (`standard_error`).

    `scores` holds one value a task, in order: the mean over repeats. `broken` episodes, in which an
    env under guard raised or hung, count with score 0, as a policy's do. So does an episode that
    ends in an action that `step` refuses, which is not broken.

    Example:
        >>> BaselineScore(mean=0.5, stderr=0.5, n=2, scores=(0.0, 1.0)).mean
        0.5
    """

    mean: float
    stderr: float
    n: int
    scores: tuple[float, ...]
    broken: int = 0


def score_baselines(
    env: Env[Any],
    tasks: Sequence[Task],
    seed: int,
    repeats: int = 1,
    names: Iterable[str] | None = None,
) -> dict[str, BaselineScore]:
    """Play baselines on tasks and return their scores by name.

    Args:
        env: plays the tasks.
        tasks: what to play; each place in the sequence is its own visit.
        seed: decides the world's chance and the players'.
        repeats: episodes a task, each with chance of its own.
        names: which baselines; all of them by default.

    Raises:
        UnknownNameError: if the env has no baseline of a name.
        ValueError: if there are no tasks or no repeats.
    """
    if not tasks or repeats < 1:
        raise ValueError(
            f"got {len(tasks)} tasks and repeats = {repeats}: give one or more of each"
        )
    known = env.baselines()
    chosen = list(known) if names is None else list(names)
    for name in chosen:
        if name not in known:
            raise unknown_name("baseline", name, known)
    problems = [env.canonical(task.data) for task in tasks]
    found = {}
    for name in chosen:
        played = [
            [_play(env, task, name, known[name], seed, i, r) for r in range(repeats)]
            for i, task in enumerate(tasks)
        ]
        scores = [float(np.mean([score or 0.0 for score in row])) for row in played]
        found[name] = BaselineScore(
            mean=float(np.mean(scores)),
            stderr=standard_error(scores, problems, score_span(env)),
            n=len(set(problems)),
            scores=tuple(scores),
            broken=sum(score is None for row in played for score in row),
        )
    return found


def _play(
    env: Env[Any], task: Task, name: str, player: Baseline, seed: int, visit: int, repeat: int
) -> float | None:
    """Return the score of one episode, None if the env broke it; roles move in the env's order."""
    try:
        return _score(env, task, name, player, seed, visit, repeat)
    except StuckEnvError:
        raise
    except BrokenEnvError:
        return None
    except IllegalActionError:  # ends the episode, as a policy's refused reply does
        return 0.0


def _score(
    env: Env[Any], task: Task, name: str, player: Baseline, seed: int, visit: int, repeat: int
) -> float:
    state = env.reset(task)
    choices = generator(seed, "baseline", name, visit, repeat)
    for number, role in zip(range(env.turn_cap()), cycle(env.roles), strict=False):
        turn = number // len(env.roles)
        noise = world_generator(seed, "evaluation", repeat, visit, turn, None)
        step = env.step(state, role, player(state, choices), noise)
        state = step.state
        if step.terminated or step.truncated:
            break
    return env.score(state)
