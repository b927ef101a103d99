"""CISPO: the capped ratio is a weight without gradient, so no token's gradient is clipped away.

Owns one formula. Source: MiniMax-M1 (arXiv 2506.13585), with only the upper bound, as published.
"""

from __future__ import annotations

import torch
from torch import Tensor

from turnwise.losses.inputs import LossInputs
from turnwise.losses.terms import RlTerm


def cispo_term(log_ratio: Tensor, logprobs: Tensor, advantages: Tensor, cap: float) -> RlTerm:
    """Return `-sg(min(r, cap)) A log pi` for each token, sg stopping the gradient.

    The value is not that of an objective; its gradient is what it is for.

    Example:
        >>> one = torch.ones(1)
        >>> cispo_term(torch.log(8 * one), -0.5 * one, one, cap=5.0).loss.item()
        2.5
    """
    ratio = log_ratio.detach().exp()
    loss = -torch.clamp(ratio, max=cap) * advantages * logprobs
    return RlTerm(loss=loss, ratio=ratio, clipped={"high": ratio > cap})


def cispo_loss(inputs: LossInputs, advantages: Tensor, cap: float) -> RlTerm:
    """Return the CISPO term of a micro-batch."""
    return cispo_term(inputs.rl_log_ratio, inputs.logprobs, advantages, cap)
