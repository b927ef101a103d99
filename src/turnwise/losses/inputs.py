"""What a loss sees of one micro-batch: flat tensors, one value for each target occurrence.

Owns `LossInputs`. Occurrences, not distinct tokens: where rows share a
prefix in the forest, each row still has its own old log-probability, advantage and weights. Knows
nothing of models or episodes. Output goes to `losses.total`.
"""

from __future__ import annotations

from dataclasses import dataclass, fields

import torch
from torch import Tensor


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
