"""What a loss sees of one micro-batch: flat tensors, one value for each target occurrence.

Owns `LossInputs` and its making from rows. Occurrences, not distinct tokens: where rows share a
prefix in the forest, each row still has its own old log-probability, advantage and weights. Knows
nothing of models or episodes. Output goes to `losses.total`.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass, fields

import numpy as np
import torch
from torch import Tensor

from turnwise.losses.weights import RowWeights
from turnwise.types import Sample, TurnId


@dataclass(frozen=True, kw_only=True, slots=True, eq=False)
class LossInputs:
    """One micro-batch, every tensor of shape [tokens], rows in order and tokens in order in a row.

    `logprobs` (current) and `entropy` carry gradients; `proximal_logprobs` are the trainer's at
    batch start, `behaviour_logprobs` the engine's; both mean something where `sampled` is true.
    The weights are divided by their global denominators already (`losses.weights`), so losses and
    metrics of micro-batches add up. `turn` tells turns apart by any numbers from 0 up, -1 for none.
    """

    logprobs: Tensor
    proximal_logprobs: Tensor
    behaviour_logprobs: Tensor
    ref_logprobs: Tensor | None
    entropy: Tensor
    advantages: Tensor
    rl_weight: Tensor
    ce_weight: Tensor
    ref_kl_weight: Tensor
    entropy_weight: Tensor
    metric_weight: Tensor
    sampled: Tensor
    turn: Tensor

    def __post_init__(self) -> None:
        """Check shapes: a broadcast here would be a silent wrong loss."""
        shape = self.logprobs.shape
        assert len(shape) == 1, f"logprobs must be [tokens], got {tuple(shape)}"
        for item in fields(self):
            value = getattr(self, item.name)
            assert value is None or value.shape == shape, (
                f"{item.name} is {tuple(value.shape)}, logprobs are {tuple(shape)}"
            )
        assert self.turn.dtype == torch.long and self.sampled.dtype == torch.bool

    @property
    def log_ratio(self) -> Tensor:
        """log(current / proximal) of sampled tokens, 0 elsewhere; with gradient, [tokens]."""
        difference = self.logprobs - self.proximal_logprobs
        return torch.where(self.sampled, difference, torch.zeros_like(difference))

    @property
    def rl_log_ratio(self) -> Tensor:
        """`log_ratio` where there is policy gradient, 0 elsewhere, [tokens]."""
        return torch.where(self.has_rl, self.log_ratio, torch.zeros_like(self.logprobs))

    @property
    def has_rl(self) -> Tensor:
        """Which tokens carry policy gradient, bool [tokens]."""
        return self.rl_weight != 0


def inputs_from_rows(
    rows: Sequence[Sample],
    weights: Sequence[RowWeights],
    *,
    logprobs: Tensor,
    entropy: Tensor,
    proximal_logprobs: Tensor | None = None,
    ref_logprobs: Tensor | None = None,
) -> LossInputs:
    """Return the inputs of one micro-batch of whole rows.

    Args:
        rows: the micro-batch's rows.
        weights: their weights, from `token_weights` over the whole optimizer batch.
        logprobs: current log-probabilities of `row.targets`, row after row, [tokens].
        entropy: entropies of the distributions those were drawn from, [tokens].
        proximal_logprobs: the trainer's at batch start, [tokens]; None takes the behaviour's.
        ref_logprobs: the reference's, [tokens]; None where there is none.
    """

    def floats(values: Sequence[np.ndarray]) -> Tensor:
        flat = np.concatenate([v[row.targets] for v, row in zip(values, rows, strict=True)])
        return torch.as_tensor(flat, dtype=logprobs.dtype, device=logprobs.device)

    behaviour = floats([row.logprobs for row in rows])
    sampled = np.concatenate([row.sampled_mask[row.targets] for row in rows])
    return LossInputs(
        logprobs=logprobs,
        proximal_logprobs=behaviour if proximal_logprobs is None else proximal_logprobs.detach(),
        behaviour_logprobs=behaviour,
        ref_logprobs=None if ref_logprobs is None else ref_logprobs.detach(),
        entropy=entropy,
        advantages=floats([row.advantages for row in rows]),
        rl_weight=floats([row.rl for row in weights]),
        ce_weight=floats([row.ce for row in weights]),
        ref_kl_weight=floats([row.ref_kl for row in weights]),
        entropy_weight=floats([row.entropy for row in weights]),
        metric_weight=floats([row.metric for row in weights]),
        sampled=torch.as_tensor(sampled, device=logprobs.device),
        turn=torch.as_tensor(_turn_numbers(rows), device=logprobs.device),
    )


def _turn_numbers(rows: Sequence[Sample]) -> np.ndarray:
    """Return the number of each target's turn within these rows, -1 for none; int64 [tokens]."""
    numbers: dict[TurnId, int] = {}
    flat = [
        numbers.setdefault(row.turns[index], len(numbers)) if index >= 0 else -1
        for row in rows
        for index in row.turn_index[row.targets].tolist()
    ]
    return np.array(flat, dtype=np.int64)
