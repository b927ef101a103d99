"""The clipped token ratio: PPO's surrogate with asymmetric bounds and an optional dual clip.

Owns one formula. Sources: Schulman et al. 2017 (arXiv 1707.06347); asymmetric bounds, DAPO (Yu et
al. 2025, arXiv 2503.14476); dual clip, Ye et al. 2020 (arXiv 1912.09729).
"""

from __future__ import annotations

import torch
from torch import Tensor

from turnwise.losses.inputs import LossInputs
from turnwise.losses.terms import Clip, RlTerm


def clipped_term(log_ratio: Tensor, advantages: Tensor, clip: Clip) -> RlTerm:
    """Return `-min(r A, clip(r, 1 - low, 1 + high) A)` for each token.

    With a dual clip c, tokens of negative advantage lose at most `-c A`.

    Args:
        log_ratio: log(current / proximal), with gradient, [tokens].
        advantages: [tokens].
        clip: the bounds.

    Example:
        >>> term = clipped_term(torch.tensor([2.0]).log(), torch.tensor([1.0]), Clip(0.2, 0.28))
        >>> round(term.loss.item(), 4), term.clipped["high"].item()
        (-1.28, True)
    """
    ratio = log_ratio.exp()
    bounded = ratio.clamp(1 - clip.low, 1 + clip.high)
    gain = torch.minimum(ratio * advantages, bounded * advantages)
    clipped = {
        "low": (ratio < 1 - clip.low) & (advantages < 0),
        "high": (ratio > 1 + clip.high) & (advantages > 0),
    }
    if clip.dual is not None:
        negative = advantages < 0
        gain = torch.where(negative, torch.maximum(gain, clip.dual * advantages), gain)
        clipped["dual"] = negative & (ratio > clip.dual)
    return RlTerm(loss=-gain, ratio=ratio.detach(), clipped=clipped)


def clipped_loss(inputs: LossInputs, advantages: Tensor, clip: Clip) -> RlTerm:
    """Return the clipped term of a micro-batch."""
    return clipped_term(inputs.rl_log_ratio, advantages, clip)
