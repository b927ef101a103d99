"""Whose mean a loss is: every token's weight, from denominators global over the optimizer batch.

Owns the aggregations of docs/math.md 4. The unit is a token, a turn or an episode, never a row: a
turn is known by its `TurnId`, so cutting rows or micro-batches differently changes no weight. Knows
nothing of tensors. Output goes to `losses.inputs`.
"""

from __future__ import annotations

from collections import Counter
from collections.abc import Collection, Hashable, Sequence
from dataclasses import dataclass

import numpy as np

from turnwise.errors import TrainingError
from turnwise.losses.config import LossConfig
from turnwise.types import FloatArray, IntArray, Sample, TurnId

BY_TOKEN = LossConfig(aggregation="token")
Owner = TurnId | None
"""A token's turn, or None."""
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

    The weight of a token is its stream's value times, for the policy gradient, the reference's KL
    and the entropy,

    - token: 1 / tokens;
    - turn: 1 / (turns x tokens of its turn);
    - episode: 1 / (episodes x tokens of its role's episode);
    - constant: 1 / (episodes x constant_length).

    Cross-entropy is the mean over its tokens whatever the aggregation: a constant length is one of
    played episodes. Only tokens whose stream is not 0 count, each part of the loss by itself.

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
    owners = _Owners.of(samples)
    rl = _joined(samples, "rl_weight")
    carries = (rl != 0).astype(np.float32)
    flat = {
        "rl": _weights(rl, owners, config, counted),
        "ce": _weights(_joined(samples, "ce_weight"), owners, BY_TOKEN),
        "ref_kl": _weights(_joined(samples, "ref_kl_weight"), owners, config),
        "entropy": _weights(_joined(samples, "entropy_weight"), owners, config),
        "metric": _weights(carries, owners, BY_TOKEN),
    }
    ends = np.cumsum([len(row.token_ids) for row in samples]).tolist()
    return [
        RowWeights(**{name: values[start:end] for name, values in flat.items()})
        for start, end in zip([0, *ends], ends, strict=False)
    ]


def _joined(samples: Sequence[Sample], stream: str) -> FloatArray:
    parts = [np.zeros(0, dtype=np.float32), *(getattr(row, stream) for row in samples)]
    return np.concatenate(parts)


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
    if not config.has_kl_loss and any(row.ref_kl_weight.any() for row in samples):
        raise TrainingError(
            f"rows carry ref_kl_weight but kl = {config.kl!r} is no part of the loss: use loss_k2 "
            "or loss_k3, or leave the weights 0"
        )


@dataclass(frozen=True, kw_only=True, slots=True, eq=False)
class _Owners:
    """Whose each token is, [all tokens], as a number among `names`."""

    number: IntArray
    names: list[Owner]

    @classmethod
    def of(cls, samples: Sequence[Sample]) -> _Owners:
        """Number the turns of all rows, and None for what is nobody's."""
        numbers: dict[Owner, int] = {None: 0}
        found: list[IntArray] = [np.zeros(0, dtype=np.int64)]
        for row in samples:
            owners: list[Owner] = [*row.turns, None]  # the last serves tokens that no turn drew
            known = np.array([numbers.setdefault(owner, len(numbers)) for owner in owners])
            found.append(known[row.turn_index])
        return cls(number=np.concatenate(found), names=list(numbers))


def _weights(
    stream: FloatArray,
    owners: _Owners,
    config: LossConfig,
    counted: Collection[TurnId] | None = None,
) -> FloatArray:
    """Return one stream's weights, [all tokens]."""
    weighs = stream != 0
    if not weighs.any():
        return stream
    counts = np.bincount(owners.number[weighs], minlength=len(owners.names))
    present = np.flatnonzero(counts).tolist()
    tokens: TokenCounts = Counter({owners.names[i]: int(counts[i]) for i in present})
    found = _divisors(tokens, config, counted)
    divisors = np.ones(len(owners.names))
    divisors[present] = [found[owners.names[i]] for i in present]
    return np.where(weighs, stream / divisors[owners.number], 0).astype(np.float32)


def _episode_of(turn: TurnId) -> Hashable:
    """Return which role's episode a turn belongs to."""
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
