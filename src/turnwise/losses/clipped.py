"""The clipped token ratio: PPO's surrogate with asymmetric bounds and an optional dual clip.

Provides `ClippedConfig`, `clipped_term` and `clipped_loss`. Sources: Schulman et al. 2017 (arXiv
1707.06347); asymmetric bounds, DAPO (Yu et al. 2025, arXiv 2503.14476); dual clip, Ye et al. 2020
(arXiv 1912.09729).
"""

from __future__ import annotations

from typing import TYPE_CHECKING, Literal

from pydantic import Field

from turnwise.losses.config import LossConfig
from turnwise.losses.terms import Clip, RlTerm

if TYPE_CHECKING:
    from torch import Tensor

    from turnwise.losses.inputs import LossInputs


class ClippedConfig(LossConfig):
    """The clipped token ratio (PPO, arXiv:1707.06347, eq. 7).

    Example:
        >>> ClippedConfig().clip_high
        0.28
    """

    kind: Literal["clipped"] = "clipped"
    clip_low: float = Field(default=0.2, gt=0, le=1)
    """The largest fall of the ratio below 1 (DAPO, arXiv:2503.14476, section 4.1)."""
    clip_high: float = Field(default=0.28, gt=0, allow_inf_nan=False)
    """The largest rise of the ratio above 1 (DAPO, arXiv:2503.14476, section 4.1)."""
    dual_clip: float | None = Field(default=None, gt=1, allow_inf_nan=False)
    """Bound of the ratio where the advantage is negative (dual-clip PPO, arXiv:1912.09729); None is
    no bound."""


def clipped_term(log_ratio: Tensor, advantages: Tensor, clip: Clip) -> RlTerm:
    """Return `-min(r A, clip(r, 1 - low, 1 + high) A)` for each token.

    With a dual clip c, tokens of negative advantage lose at most `-c A`.

    Args:
        log_ratio: log(current / proximal), with gradient, [tokens].
        advantages: [tokens].
        clip: the bounds.

    Example:
        >>> import torch
        >>> term = clipped_term(torch.tensor([2.0]).log(), torch.tensor([1.0]), Clip(0.2, 0.28))
        >>> round(term.loss.item(), 4), term.clipped["high"].item()
        (-1.28, True)
    """
    ratio = log_ratio.exp()
    bounded = ratio.clamp(1 - clip.low, 1 + clip.high)
    gain = (ratio * advantages).minimum(bounded * advantages)
    clipped = {
        "low": (ratio < 1 - clip.low) & (advantages < 0),
        "high": (ratio > 1 + clip.high) & (advantages > 0),
    }
    if clip.dual is not None:
        negative = advantages < 0
        gain = gain.maximum(clip.dual * advantages).where(negative, gain)
        clipped["dual"] = negative & (ratio > clip.dual)
    return RlTerm(loss=-gain, ratio=ratio.detach(), clipped=clipped)


def clipped_loss(inputs: LossInputs, config: ClippedConfig) -> RlTerm:
    """Return the clipped term of a micro-batch."""
    clip = Clip(config.clip_low, config.clip_high, config.dual_clip)
    return clipped_term(inputs.rl_log_ratio, inputs.advantages, clip)
