"""GSPO: one ratio for each completion, the geometric mean of its tokens' ratios.

Provides `GspoConfig` and `gspo_loss`. Source: Zheng et al. 2025 (arXiv 2507.18071). The bounds
(3e-4, 4e-4) lie below engine noise, so the proximal log-probabilities have to be the trainer's own.
"""

from __future__ import annotations

from typing import TYPE_CHECKING, Literal

from pydantic import Field

from turnwise.losses.clipped import clipped_term
from turnwise.losses.config import LossConfig
from turnwise.losses.terms import Clip, RlTerm

if TYPE_CHECKING:
    from torch import Tensor

    from turnwise.losses.inputs import LossInputs


class GspoConfig(LossConfig):
    """The clipped ratio of whole completions (GSPO-token, arXiv:2507.18071, section 4.3).

    Example:
        >>> GspoConfig().clip_high
        0.0004
    """

    kind: Literal["gspo"] = "gspo"
    clip_low: float = Field(default=3e-4, gt=0, le=1)
    """The largest fall of the ratio below 1 (arXiv:2507.18071, section 5.1)."""
    clip_high: float = Field(default=4e-4, gt=0, allow_inf_nan=False)
    """The largest rise of the ratio above 1 (arXiv:2507.18071, section 5.1)."""

    @property
    def needs_own_logprobs(self) -> bool:
        """Whether the trainer's own log-probabilities at batch start are needed; always."""
        return True


def mean_by_turn(values: Tensor, turn: Tensor, mask: Tensor) -> Tensor:
    """Return, for every token, the mean of `values` over the masked tokens of its turn, [tokens].

    Tokens outside the mask get 0.

    Example:
        >>> import torch
        >>> turn, mask = torch.tensor([0, 0, 1]), torch.tensor([True, True, True])
        >>> mean_by_turn(torch.tensor([1.0, 3.0, 5.0]), turn, mask).tolist()
        [2.0, 2.0, 5.0]
    """
    one = mask.to(values.dtype)
    numbers, where = turn.unique(return_inverse=True)
    bins = values.new_zeros(len(numbers))
    sums = bins.index_add(0, where, values * one)
    counts = bins.index_add(0, where, one)
    return (sums / counts.clamp(min=1))[where] * one


def gspo_loss(inputs: LossInputs, config: GspoConfig) -> RlTerm:
    """Return the clipped term with `s = exp(mean over the turn's tokens of log r)` for each token.

    The mean is over the turn's tokens with policy gradient, and has no gradient itself. The
    gradient of each token uses its own advantage (GSPO-token, section 4.3). If a turn has a single
    advantage, the result is the gradient of `s`.
    """
    token = inputs.rl_log_ratio
    mean = mean_by_turn(token, inputs.turn, inputs.has_rl)
    log_ratio = mean.detach() + token - token.detach()
    return clipped_term(log_ratio, inputs.advantages, Clip(config.clip_low, config.clip_high))
