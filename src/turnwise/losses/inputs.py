"""The inputs of a loss for one micro-batch: flat tensors with one value for each target occurrence.

Provides `LossInputs`. Rows that share a prefix in the forest have separate occurrences of its
tokens, because each row has its own old log-probabilities, advantages and weights.
"""

from __future__ import annotations

from dataclasses import dataclass, fields

import torch
from torch import Tensor


@dataclass(frozen=True, kw_only=True, slots=True, eq=False)
class LossInputs:
    """One micro-batch. Every tensor is [tokens], ordered by row and by position in the row.

    `logprobs` (current) and `entropy` have gradients. `proximal_logprobs` are the trainer's at the
    start of the batch and `behaviour_logprobs` the engine's; both are defined where `sampled` is
    true. The weights are already divided by their global denominators (`losses.weights`), so losses
    and metrics of micro-batches add up. `turn` identifies turns by numbers from 0; -1 is no turn.
    """

    logprobs: Tensor
    proximal_logprobs: Tensor
    behaviour_logprobs: Tensor
    entropy: Tensor
    advantages: Tensor
    rl_weight: Tensor
    ce_weight: Tensor
    ref_kl_weight: Tensor
    entropy_weight: Tensor
    metric_weight: Tensor
    sampled: Tensor
    turn: Tensor
    ref_logprobs: Tensor | None = None

    def __post_init__(self) -> None:
        """Check the shapes; a broadcast would give a wrong loss without an error."""
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
        """`log_ratio` of tokens with policy gradient, 0 elsewhere, [tokens]."""
        return torch.where(self.has_rl, self.log_ratio, torch.zeros_like(self.logprobs))

    @property
    def has_rl(self) -> Tensor:
        """Mask of the tokens with policy gradient, bool [tokens]."""
        return self.rl_weight != 0
