"""Per-token loss weights, normalised over the whole optimizer batch.

Provides `token_weights`, the aggregations of docs/math.md 4. The unit of a mean is a token, a turn
or an episode, never a row. Turns are identified by `TurnId`, so the division into rows or
micro-batches does not change a weight.
"""

from __future__ import annotations

from collections import Counter
from collections.abc import Collection, Hashable, Sequence
from dataclasses import dataclass

import numpy as np

from turnwise.errors import TrainingError
from turnwise.losses.clipped import ClippedConfig
from turnwise.losses.config import LossConfig
from turnwise.types import FloatArray, IntArray, TrainingSample, TurnId

BY_TOKEN = ClippedConfig(aggregation="token")
Owner = TurnId | None
"""A token's turn, or None."""
TokenCounts = Counter[Owner]


@dataclass(frozen=True, kw_only=True, slots=True, eq=False)
class RowWeights:
    """One row's weights, each [tokens of the row], already divided by its global denominator.

    Summed over the batch, each term of the loss is the mean over its units. `metric` weights each
    token with policy gradient by 1 / the number of such tokens, so metrics are means over tokens.
    """

    rl: FloatArray
    ce: FloatArray
    ref_kl: FloatArray
    entropy: FloatArray
    metric: FloatArray


def token_weights(
    samples: Sequence[TrainingSample],
    config: LossConfig,
    *,
    counted: Collection[TurnId] | None = None,
) -> list[RowWeights]:
    """Return the weights of every row of one optimizer batch of one policy, in order.

    The weight of a token is the value of its stream times a factor. For the policy gradient, the
    reference KL and the entropy the factor is, by aggregation,

    - token: 1 / tokens;
    - turn: 1 / (turns x tokens of its turn);
    - episode: 1 / (episodes x tokens of its role's episode);
    - constant: 1 / (episodes x constant_length).

    For cross-entropy it is always that of `token`: `constant_length` is a length of played
    episodes. Only tokens with a nonzero value in the stream are counted, for each term separately.

    Args:
        samples: all rows of the batch; the denominators are computed before it is split.
        config: the aggregation.
        counted: the turns in the denominators of the rl term (`Credit.counted`); None is all.

    Raises:
        TrainingError: if rows belong to two policies, if rl_weight is nonzero on tokens that were
            not sampled, if the loss would ignore a reference weight, or if a weighted token belongs
            to no turn and the aggregation is by turns or episodes.
    """
    _check(samples, config)
    owners = _TokenOwners.of(samples)
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


def _joined(samples: Sequence[TrainingSample], stream: str) -> FloatArray:
    parts = [np.zeros(0, dtype=np.float32), *(getattr(row, stream) for row in samples)]
    return np.concatenate(parts)


def _check(samples: Sequence[TrainingSample], config: LossConfig) -> None:
    policies = sorted({sample.policy for sample in samples})
    if len(policies) > 1:
        raise TrainingError(
            f"an optimizer batch has rows of one policy, got those of {', '.join(policies)}: "
            "make a batch for each policy"
        )
    for row in samples:
        if ((row.rl_weight != 0) & ~row.sampled_mask).any():
            raise TrainingError(
                f"a row of {row.turns[0] if row.turns else 'no turn'} has rl_weight on tokens that "
                "were not sampled: policy gradient is defined for sampled tokens only, use "
                "ce_weight"
            )
    if not config.has_kl_loss and any(row.ref_kl_weight.any() for row in samples):
        raise TrainingError(
            f"rows have ref_kl_weight but kl = {config.kl!r} is no term of the loss: use loss_k2 "
            "or loss_k3, or set the weights to 0"
        )


@dataclass(frozen=True, kw_only=True, slots=True, eq=False)
class _TokenOwners:
    """The turn of each token, [all tokens], as an index into `names`."""

    owner_index: IntArray
    names: list[Owner]

    @classmethod
    def of(cls, samples: Sequence[TrainingSample]) -> _TokenOwners:
        """Number the turns of all rows; None stands for tokens of no turn."""
        index_of: dict[Owner, int] = {None: 0}
        found: list[IntArray] = [np.zeros(0, dtype=np.int64)]
        for row in samples:
            owners: list[Owner] = [*row.turns, None]  # turn_index -1 selects the last entry
            known = np.array([index_of.setdefault(owner, len(index_of)) for owner in owners])
            found.append(known[row.turn_index])
        return cls(owner_index=np.concatenate(found), names=list(index_of))


def _weights(
    stream: FloatArray,
    owners: _TokenOwners,
    config: LossConfig,
    counted: Collection[TurnId] | None = None,
) -> FloatArray:
    """Return one stream's weights, [all tokens]."""
    weighted = stream != 0
    if not weighted.any():
        return stream
    counts = np.bincount(owners.owner_index[weighted], minlength=len(owners.names))
    present = np.flatnonzero(counts).tolist()
    tokens: TokenCounts = Counter({owners.names[i]: int(counts[i]) for i in present})
    found = _divisors(tokens, config, counted)
    divisors = np.ones(len(owners.names))
    divisors[present] = [found[owners.names[i]] for i in present]
    return np.where(weighted, stream / divisors[owners.owner_index], 0).astype(np.float32)


def _episode_of(turn: TurnId) -> Hashable:
    """Return the episode and role of a turn."""
    return (turn.episode, turn.role)


def _divisors(
    tokens: TokenCounts, config: LossConfig, counted: Collection[TurnId] | None
) -> dict[Owner, float]:
    """Return the divisor of each turn's tokens; infinity if nothing is counted."""
    members = {turn for turn in tokens if counted is None or turn in counted}
    if config.aggregation == "token":
        total = sum(tokens[turn] for turn in members)
        return {turn: float(total or np.inf) for turn in tokens}
    if None in tokens:
        raise TrainingError(
            f"aggregation = {config.aggregation!r} needs the turn of every weighted token, but "
            f"{tokens[None]} have turn_index -1: give them a turn, or use aggregation = 'token'"
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
