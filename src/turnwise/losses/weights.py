"""Whose mean a loss is: every token's weight, from denominators global over the optimizer batch.

Owns the aggregations of MATH 5. The unit is a token, a turn or an episode, never a row: a turn is
known by its `TurnId`, so cutting rows or micro-batches differently changes no weight. Knows nothing
of tensors. Output goes to `losses.inputs`.
"""

from __future__ import annotations

from collections import Counter
from collections.abc import Collection, Hashable, Sequence
from dataclasses import dataclass

import numpy as np

from turnwise.errors import TrainingError
from turnwise.losses.config import LossConfig
from turnwise.types import FloatArray, Sample, TurnId

Owner = TurnId | int | None
"""A token's turn; in a row of no turn the row's number; None for other tokens without a turn."""
TokenCounts = Counter[Owner]


@dataclass(frozen=True, kw_only=True, slots=True, eq=False)
class RowWeights:
    """One row's weights, each [tokens of the row], already divided by its global denominator.

    Summed over the batch, a part of the loss is the mean over its units. `metric` weighs every
    token that carries policy gradient by 1 / their number: metrics are means over tokens.
    """

    rl: FloatArray
    ce: FloatArray
    ref_kl: FloatArray
    entropy: FloatArray
    metric: FloatArray


def token_weights(
    samples: Sequence[Sample],
    config: LossConfig,
    *,
    counted: Collection[TurnId] | None = None,
) -> list[RowWeights]:
    """Return the weights of every row of one optimizer batch of one policy, in order.

    The weight of a token is its stream's value times

    - token: 1 / tokens;
    - turn: 1 / (turns x tokens of its turn);
    - episode: 1 / (episodes x tokens of its role's episode);
    - constant: 1 / (episodes x constant_length).

    Only tokens whose stream is not 0 count, each part of the loss by itself. A supervised row,
    which belongs to no turn, counts as a turn and an episode of its own.

    Args:
        samples: all rows of the batch: denominators are fixed before it is split.
        config: which aggregation.
        counted: the turns that the rl part's denominators count (`Credit.counted`); None is all.

    Raises:
        TrainingError: if rows belong to two policies, if rl_weight lies on tokens not sampled, if a
            reference weight is given that the loss would ignore, or if a weighed token belongs to
            no turn where turns or episodes count.
    """
    _check(samples, config)
    rl = _weights(samples, [row.rl_weight for row in samples], config, counted)
    ce = _weights(samples, [row.ce_weight for row in samples], config)
    ref_kl = _weights(samples, [row.ref_kl_weight for row in samples], config)
    entropy = _weights(samples, [row.entropy_weight for row in samples], config)
    per_token = LossConfig(aggregation="token")
    trained = [(row.rl_weight != 0).astype(np.float32) for row in samples]
    metric = _weights(samples, trained, per_token)
    return [
        RowWeights(rl=a, ce=b, ref_kl=c, entropy=d, metric=e)
        for a, b, c, d, e in zip(rl, ce, ref_kl, entropy, metric, strict=True)
    ]


def _check(samples: Sequence[Sample], config: LossConfig) -> None:
    policies = sorted({sample.policy for sample in samples})
    if len(policies) > 1:
        raise TrainingError(f"one optimizer batch is of one policy, got {', '.join(policies)}")
    for row in samples:
        if ((row.rl_weight != 0) & ~row.sampled_mask).any():
            raise TrainingError(
                f"a row of {row.turns[0] if row.turns else 'no turn'} carries rl_weight on tokens "
                "that were not sampled: only what the engine drew has policy gradient; use "
                "ce_weight"
            )
    if not config.needs_reference and any(row.ref_kl_weight.any() for row in samples):
        raise TrainingError(
            f"rows carry ref_kl_weight but kl = {config.kl!r} never looks at a reference: "
            "use loss_k2 or loss_k3, or leave the weights 0"
        )


def _weights(
    samples: Sequence[Sample],
    streams: Sequence[FloatArray],
    config: LossConfig,
    counted: Collection[TurnId] | None = None,
) -> list[FloatArray]:
    """Return one stream's weights, row by row."""
    tokens: TokenCounts = Counter()
    for place, (row, stream) in enumerate(zip(samples, streams, strict=True)):
        for number in row.turn_index[stream != 0].tolist():
            tokens[_owner(row, place, number)] += 1
    divisors = _divisors(tokens, config, counted)
    out: list[FloatArray] = []
    for place, (row, stream) in enumerate(zip(samples, streams, strict=True)):
        weights = np.zeros(len(stream), dtype=np.float32)
        for number in np.unique(row.turn_index[stream != 0]):
            here = (row.turn_index == number) & (stream != 0)
            weights[here] = stream[here] / divisors[_owner(row, place, int(number))]
        out.append(weights)
    return out


def _owner(row: Sample, place: int, number: int) -> Owner:
    if number >= 0:
        return row.turns[number]
    return None if row.turns else place


def _episode_of(turn: TurnId | int) -> Hashable:
    """Return which role's episode a turn belongs to; a row of no turn is one by itself."""
    if isinstance(turn, int):
        return turn
    return (turn.iteration, turn.visit, turn.task, turn.sample, turn.role)


def _divisors(
    tokens: TokenCounts, config: LossConfig, counted: Collection[TurnId] | None
) -> dict[Owner, float]:
    """Return what a token of each turn is divided by; infinity where nothing is counted."""
    members = {turn for turn in tokens if counted is None or turn in counted}
    if config.aggregation == "token":
        total = sum(tokens[turn] for turn in members)
        return {turn: float(total or np.inf) for turn in tokens}
    if None in tokens:
        raise TrainingError(
            f"aggregation = {config.aggregation!r} needs to know the turn of every weighed token, "
            f"but {tokens[None]} have turn_index -1: give them a turn, or aggregate by token"
        )
    turns = {turn: count for turn, count in tokens.items() if turn is not None}
    if config.aggregation == "turn":
        return {turn: float((len(members) or np.inf) * count) for turn, count in turns.items()}
    lengths: Counter[Hashable] = Counter()
    for turn, count in turns.items():
        lengths[_episode_of(turn)] += count
    episodes = len({_episode_of(turn) for turn in turns if turn in members}) or np.inf
    if config.aggregation == "constant":
        assert config.constant_length is not None, "LossConfig asks for it"
        return {turn: float(episodes * config.constant_length) for turn in turns}
    return {turn: float(episodes * lengths[_episode_of(turn)]) for turn in turns}
