"""Scores of an env's baselines: policies without a model, to compare every other score with.

Random draws are those of the evaluation stream, seeded as in the rollout. With one seed a baseline
and a model therefore meet the same slips, and their scores on a task can be compared in pairs.
Episodes end at the env's turn limit, as those of a model do. Where the env says
`scored_by = "return"`, the score is the weighted sum of the rewards, as in the rollout. Where seats
compete, a baseline has one seat of each episode and an opponent the others, as a model does.
"""

from __future__ import annotations

import math
from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass, field
from functools import partial
from typing import Any

import numpy as np

from turnwise.envs.base import Baseline, Env, score_span
from turnwise.envs.measures import Measure, mean_measures
from turnwise.envs.opponents import opposed, own_score
from turnwise.envs.rows.baselines import reply_scores
from turnwise.envs.rows.env import Rows
from turnwise.envs.standard_errors import standard_error
from turnwise.errors import EnvError, IllegalActionError, StuckEnvError, unknown_name
from turnwise.seeding import generator, world_generator
from turnwise.types import Task
from turnwise.utils.rewards import mix_rewards


@dataclass(frozen=True, kw_only=True, slots=True)
class BaselineScore:
    """A baseline's mean score, its standard error, and every score, of `n` distinct problems.

    The error is over problems, or over episodes if there are few problems (`standard_error`).

    `scores` has one value per task, in order: the mean over repeats. `broken` episodes, in which a
    guarded env raised or hung, count with score 0, as those of a policy do. An episode that ends
    with an action refused by `step` is not broken: it has the score 0, or its return so far where
    returns are scores. Neither has `measures`.

    Example:
        >>> BaselineScore(mean=0.5, stderr=0.5, n=2, scores=(0.0, 1.0)).mean
        0.5
    """

    mean: float
    stderr: float
    n: int
    scores: tuple[float, ...]
    broken: int = 0
    measures: Mapping[str, Measure] = field(default_factory=dict)


@dataclass(frozen=True, kw_only=True, slots=True)
class _End:
    """The result of an episode: its score, its measures, and whether the env broke it."""

    score: float = 0.0
    measures: Mapping[str, float] = field(default_factory=dict)
    broken: bool = False


def score_baselines(
    env: Env[Any],
    tasks: Sequence[Task],
    seed: int,
    repeats: int = 1,
    names: Iterable[str] | None = None,
    weights: Mapping[str, float] | None = None,
    opponents: Sequence[str] | None = None,
    others: Mapping[str, Baseline] | None = None,
) -> dict[str, BaselineScore]:
    """Play baselines on tasks and return their scores by name.

    Rewards of `score_batch`, which judges a model's replies, are in no baseline's return, but for
    rows, whose reward functions judge the replies of their baselines too.

    Args:
        env: the env.
        tasks: the tasks; each position in the sequence is a visit of its own.
        seed: the seed of the env's and the baselines' random draws.
        repeats: episodes per task, each with random draws of its own.
        names: the names of the baselines; all of them by default.
        weights: the weights of reward components in the score where the env is scored by its
            return (`credit.rewards` of a recipe); None is 1 for each component.
        opponents: the first of them plays against the baselines; None is `Env.opponents`.
        others: players by name, to score beside the env's own baselines.

    Raises:
        UnknownNameError: if no baseline has one of the names.
        ValueError: if there are no tasks or no repeats.
    """
    if not tasks or repeats < 1:
        raise ValueError(
            f"got {len(tasks)} tasks and repeats = {repeats}: give one or more of each"
        )
    known = {**env.baselines(), **(others or {})}
    chosen = list(known) if names is None else list(names)
    for name in chosen:
        if name not in known:
            raise unknown_name("baseline", name, known)
    problems = [env.canonical(task.data) for task in tasks]
    weights = dict.fromkeys(env.components, 1.0) if weights is None else weights
    world = env.unwrapped
    if isinstance(world, Rows):
        judged = reply_scores(world, tasks, seed, repeats, weights)
        played = {name: [[_judged(each) for each in row] for row in judged[name]]
                  for name in chosen if name in judged}  # fmt: skip
    else:
        rival = next(iter(env.opponents if opponents is None else opponents), None)
        match = {name: _Match(env, weights, seed, name, rival, known) for name in chosen}
        play = {name: partial(_play, match[name]) for name in chosen}
        played = {
            name: [[play[name](task, i, r) for r in range(repeats)] for i, task in enumerate(tasks)]
            for name in chosen
        }
    return {name: _score_of(ends, problems, score_span(env)) for name, ends in played.items()}


def _judged(reward: float) -> _End:
    """Return the end of a reply to a row; without a reward that applies it is broken."""
    return _End(broken=True) if math.isnan(reward) else _End(score=float(reward))


def _score_of(
    played: Sequence[Sequence[_End]], problems: Sequence[str], span: float | None
) -> BaselineScore:
    """Return the score of the episodes of every task."""
    scores = [float(np.mean([end.score for end in row])) for row in played]
    ends = [end for row in played for end in row]
    return BaselineScore(
        mean=float(np.mean(scores)),
        stderr=standard_error(scores, problems, span),
        n=len(set(problems)),
        scores=tuple(scores),
        broken=sum(end.broken for end in ends),
        measures=mean_measures(
            [end.measures for end in ends],
            [p for p, row in zip(problems, played, strict=True) for _ in row],
        ),
    )


@dataclass(frozen=True, slots=True)
class _Match:
    """The baseline `name` in an env, and the one that it plays against, if there is one."""

    env: Env[Any]
    weights: Mapping[str, float]
    seed: int
    name: str
    rival: str | None
    players: Mapping[str, Baseline]

    def rivals(self, visit: int) -> dict[str, str]:
        """Return the seats that the other one plays in a visit, with its name."""
        return {} if self.rival is None else opposed(self.env.seats, visit, self.rival)


def _play(match: _Match, task: Task, visit: int, repeat: int) -> _End:
    """Play one episode; seats move as `acting` says."""
    env, seed = match.env, match.seed
    by_return, earned = env.scored_by == "return", 0.0
    rivals = match.rivals(visit)
    seats = dict.fromkeys(env.seats, match.name) | rivals
    try:
        state = env.reset(task)
        choices = generator(seed, "baseline", match.name, visit, repeat)
        for number in range(env.turn_cap()):
            role = env.acting(state)[0]
            noise = world_generator(seed, "evaluation", repeat, visit, number, None)
            step = env.step(state, role, match.players[seats[role]](state, choices), noise)
            state = step.state
            if by_return:
                paid = {role: step.rewards, **step.others}
                own = (rewards for seat, rewards in paid.items() if seat not in rivals)
                earned += sum(mix_rewards(rewards, match.weights) for rewards in own)
            if step.terminated or step.truncated:
                break
        score = earned if by_return else own_score(env, state, rivals)
        return _End(score=score, measures=env.measures(state))
    except StuckEnvError:
        raise
    except EnvError:
        return _End(broken=True)
    except IllegalActionError:  # ends the episode, as a policy's refused reply does
        return _End(score=earned)
