"""Siblings as units: the turns that answered one question, each with its score.

Provides `score_of`, `sibling_units` and `rank_correlation`. A sibling's score is the mean of its
trials (`Turn.trials`); it never enters a return.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from typing import Any

import numpy as np

from turnwise.credit.groups import Unit
from turnwise.credit.returns import WHOLE_TURN, Floats, Payments
from turnwise.types import Episode, Trajectory, Turn
from turnwise.utils.hashes import short_hash
from turnwise.utils.rewards import mix_rewards

EQUAL = 1e-9  # sums of rewards that differ by less are one
SCORE = "score"
"""The name of what a workflow's own function gives an answer; its weight is 1."""


def score_of(turn: Turn, weights: Mapping[str, float]) -> float:
    """Return the mean of a turn's trials, weighted as its return would be."""
    own = {SCORE: 1.0} if turn.phase == "ask" else weights
    return sum(mix_rewards(trial, own) for trial in turn.trials) / len(turn.trials)


def sibling_units(
    played: Sequence[Trajectory],
    weights: Mapping[str, float],
    payments: Payments,
    config: Any,
) -> list[Unit]:
    """Return one unit for each turn with trials, on the played path and beside it.

    Its value is its score, less what its own tokens cost.
    """
    paid = payments.penalties
    return [
        Unit(
            role=trajectory.role,
            turns=(turn.id,),
            policy=turn.policy,
            first_prompt=turn.prompt_ids,
            value=score_of(turn, weights) - (paid[turn.id][WHOLE_TURN] if paid else 0.0),
            observation=short_hash(f"{turn.phase} {turn.shown}"),
            is_episode=False,
        )
        for trajectory in played
        for turn in trajectory.sampled
        if turn.trials
    ]


def rank_correlation(episodes: Sequence[Episode], weights: Mapping[str, float]) -> dict[str, float]:
    """Return how the rewards of siblings' own steps go with their scores, by rank.

    It is the mean of Spearman's correlation over the turns whose siblings differ in both, and whose
    scores are more than these rewards. Going on with the best sibling is right where it is 1.
    """
    found: list[float] = []
    for trajectory in (each for episode in episodes for each in episode.trajectories):
        turns: dict[int, list[Turn]] = {}
        for turn in trajectory.sampled:
            if turn.trials and turn.phase == "act":
                turns.setdefault(turn.id.turn, []).append(turn)
        for siblings in turns.values():
            steps = np.array([mix_rewards(turn.rewards, weights) for turn in siblings])
            scores = np.array([score_of(turn, weights) for turn in siblings])
            if np.ptp(steps) > EQUAL and np.ptp(scores) > EQUAL and np.ptp(scores - steps) > EQUAL:
                found.append(float(np.corrcoef(_ranks(steps), _ranks(scores))[0, 1]))
    return {"credit/score_rank_correlation": float(np.mean(found))} if found else {}


def _ranks(values: Floats) -> Floats:
    """Return the ranks of values; equal ones share the mean of theirs."""
    below = (values[:, None] > values[None, :] + EQUAL).sum(axis=1)
    equal = (np.abs(values[:, None] - values[None, :]) <= EQUAL).sum(axis=1)
    return below + (equal - 1) / 2
