"""CISPO: policy gradient weighted by the capped ratio; no token's gradient is clipped to zero.

Provides `CispoConfig` and `cispo_loss`. Source: MiniMax-M1 (arXiv 2506.13585), with only the upper
bound, as published.
"""

from __future__ import annotations

from typing import TYPE_CHECKING, Literal

from pydantic import Field

from turnwise.losses.config import LossConfig
from turnwise.losses.terms import RlTerm

if TYPE_CHECKING:
    from torch import Tensor

    from turnwise.losses.inputs import LossInputs


class CispoConfig(LossConfig):
    """The ratio as a capped weight (arXiv:2506.13585).

    Example:
        >>> CispoConfig().cispo_cap
        5.0
    """

    kind: Literal["cispo"] = "cispo"
    cispo_cap: float = Field(default=5.0, gt=0, allow_inf_nan=False)
    """Upper bound of the ratio, as a weight (arXiv:2506.13585); 5 as in ScaleRL
    (arXiv:2510.13786)."""


def cispo_term(log_ratio: Tensor, logprobs: Tensor, advantages: Tensor, cap: float) -> RlTerm:
    """Return `-sg(min(r, cap)) A log pi` for each token, where sg stops the gradient.

    Only the gradient of the term is meaningful; its value is not that of an objective.

    Example:
        >>> import torch
        >>> one = torch.ones(1)
        >>> cispo_term(torch.log(8 * one), -0.5 * one, one, cap=5.0).loss.item()
        2.5
    """
    ratio = log_ratio.detach().exp()
    loss = -ratio.clamp(max=cap) * advantages * logprobs
    return RlTerm(loss=loss, ratio=ratio, clipped={"high": ratio > cap})


def cispo_loss(inputs: LossInputs, config: CispoConfig) -> RlTerm:
    """Return the CISPO term of a micro-batch."""
    return cispo_term(inputs.rl_log_ratio, inputs.logprobs, inputs.advantages, config.cispo_cap)
