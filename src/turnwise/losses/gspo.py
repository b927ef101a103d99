"""GSPO: one ratio for a whole completion, the geometric mean of its tokens' ratios.

Owns one formula. Source: Zheng et al. 2025 (arXiv 2507.18071). Its bounds (3e-4, 4e-4) lie below
engine noise, so the proximal log-probabilities have to be the trainer's own.
"""

from __future__ import annotations

import torch
from torch import Tensor

from turnwise.losses.clipped import clipped_term
from turnwise.losses.inputs import LossInputs
from turnwise.losses.terms import Clip, RlTerm


def mean_by_turn(values: Tensor, turn: Tensor, mask: Tensor) -> Tensor:
    """Return, for every token, the mean of `values` over the masked tokens of its turn, [tokens].

    Tokens outside the mask get 0.

    Example:
        >>> turn, mask = torch.tensor([0, 0, 1]), torch.tensor([True, True, True])
        >>> mean_by_turn(torch.tensor([1.0, 3.0, 5.0]), turn, mask).tolist()
        [2.0, 2.0, 5.0]
    """
    one = mask.to(values.dtype)
    numbers, where = torch.unique(turn, return_inverse=True)
    bins = values.new_zeros(len(numbers))
    sums = bins.index_add(0, where, values * one)
    counts = bins.index_add(0, where, one)
    return (sums / counts.clamp(min=1))[where] * one


def gspo_loss(inputs: LossInputs, advantages: Tensor, clip: Clip) -> RlTerm:
    """Return the clipped term with `s = exp(mean over the turn's tokens of log r)` for each token.

    The mean runs over the turn's tokens that carry policy gradient. It is without gradient: each
    token moves by its own advantage (GSPO-token, section 4.3), and where a turn has one advantage
    that is the gradient of `s` itself.
    """
    token = inputs.rl_log_ratio
    mean = mean_by_turn(token, inputs.turn, inputs.has_rl)
    return clipped_term(mean.detach() + token - token.detach(), advantages, clip)
