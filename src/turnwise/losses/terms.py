"""What the policy-gradient losses exchange: bounds in, per-token terms out.

Owns `Clip` and `RlTerm`, and nothing that computes.
"""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass

from torch import Tensor


@dataclass(frozen=True, slots=True)
class Clip:
    """The ratio's bounds [1 - low, 1 + high], and the dual bound for negative advantages.

    Example:
        >>> Clip(0.2, 0.28).high
        0.28
    """

    low: float
    high: float
    dual: float | None = None


@dataclass(frozen=True, kw_only=True, slots=True, eq=False)
class RlTerm:
    """A policy-gradient loss before weighting, every tensor [tokens].

    `loss` has gradient; `ratio` is the one the loss bounds; `clipped` says by side where the bound
    took the gradient away (for CISPO: where the weight was capped).
    """

    loss: Tensor
    ratio: Tensor
    clipped: Mapping[str, Tensor]
