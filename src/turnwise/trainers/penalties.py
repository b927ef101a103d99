"""The KL divergence from the reference as a part of the reward (`loss.kl = "reward_k1"`).

Provides `reward_kl`, the penalty of each turn: the k1 estimate of the KL, the sum of log pi - log
ref over the sampled tokens. `credit.assign_advantages` subtracts it from the rewards before returns
are summed, compared and scaled.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass

import numpy as np

from turnwise.credit import Penalties
from turnwise.forest import Scorer
from turnwise.forest.score import Model
from turnwise.parallel import ALONE, ProcessGroup
from turnwise.rollout import samples_from_episodes
from turnwise.trainers.update import row_offsets, score_column
from turnwise.types import Episode, FloatArray, TrainingSample, Turn, TurnId

ROUNDING = 1e-5
"""Nats of a token below which log pi - log ref is rounding, and counts as 0.

Before the first update the two are equal. Rounding would make groups of equal rewards differ, and
be learned from.
"""


@dataclass(frozen=True, kw_only=True, slots=True, eq=False)
class RewardKl:
    """The penalty of each turn, and the policy's divergence from the reference.

    `proximal` are the trainer's own log-probabilities of `rows`, where they were computed, as a
    flat column: the update needs them too. `mean` is the mean of log pi - log ref over tokens.
    """

    penalties: Penalties
    rows: Sequence[TrainingSample]
    proximal: FloatArray | None
    mean: float

    def proximal_of(self, samples: Sequence[TrainingSample]) -> FloatArray:
        """Return `proximal` as a column of `samples`: rows of the same turns, and supervised ones.

        Values are used of sampled tokens alone; the others are 0.
        """
        assert self.proximal is not None, "ask only where it was computed"
        known = _by_turn(self.rows, self.proximal)
        column = np.zeros(sum(len(row.token_ids) for row in samples), dtype=self.proximal.dtype)
        for row, offset in zip(samples, row_offsets(samples), strict=True):
            for number, turn in enumerate(row.turns):
                column[offset + np.flatnonzero(row.turn_index == number)] = known[turn]
        return column


def all_penalties(episodes: Sequence[Episode], found: Mapping[str, RewardKl]) -> Penalties:
    """Return the penalties of every turn; turns of policies that are not in `found` cost nothing.

    Args:
        episodes: what is compared.
        found: policy name -> the KL of its turns.
    """
    nothing = {turn.id: {"": 0.0} for episode in episodes for turn in episode.sampled}
    return nothing | {
        turn: paid for each in found.values() for turn, paid in each.penalties.items()
    }


def reward_kl(
    episodes: Sequence[Episode],
    name: str,
    *,
    reference: Model,
    policy: Model | None,
    scorer: Scorer,
    weight: float,
    group: ProcessGroup = ALONE,
) -> RewardKl:
    """Return `weight` times the k1 estimate of each turn's KL to the reference.

    Args:
        episodes: what is compared; broken ones pay nothing, as they are not trained on.
        name: the policy's name; turns of others are left out.
        reference: the model of the reference policy.
        policy: the model whose own log-probabilities count; None takes the engine's.
        scorer: how rows are laid out and scored.
        weight: `loss.kl_weight`.
        group: the processes that share the rows.
    """
    kept = (turn for episode in episodes if not episode.broken for turn in episode.sampled)
    turns = {turn.id: turn for turn in kept if turn.policy == name}
    rows = samples_from_episodes(episodes, {identity: {"": 0.0} for identity in turns})
    own = None if policy is None else score_column(policy, scorer, rows, group)
    behaviour = np.concatenate([np.zeros(0, np.float32), *(row.logprobs for row in rows)])
    found = (behaviour if own is None else own).astype(np.float64)
    found -= score_column(reference, scorer, rows, group)
    found[np.abs(found) < ROUNDING] = 0.0
    drawn = np.concatenate([np.zeros(0, bool), *(row.sampled_mask for row in rows)])
    by_turn = _by_turn(rows, found)
    return RewardKl(
        penalties={
            identity: _paid(turn, weight * by_turn.get(identity, np.zeros(0)))
            for identity, turn in turns.items()
        },
        rows=rows,
        proximal=own,
        mean=float(found[drawn].mean()) if drawn.any() else 0.0,
    )


def _by_turn(rows: Sequence[TrainingSample], column: np.ndarray) -> dict[TurnId, np.ndarray]:
    """Return a flat column's values at each turn's tokens, [completion]."""
    return {
        turn: column[offset : offset + len(row.token_ids)][row.turn_index == number]
        for row, offset in zip(rows, row_offsets(rows), strict=True)
        for number, turn in enumerate(row.turns)
    }


def _paid(turn: Turn, tokens: np.ndarray) -> dict[str, float]:
    """Return what a turn pays by span of its completion, `""` being all of it."""
    paid = {"": float(tokens.sum())}
    for span in turn.spans:
        paid[span.name] = paid.get(span.name, 0.0) + float(tokens[span.start : span.end].sum())
    return paid
