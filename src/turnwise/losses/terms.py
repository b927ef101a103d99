"""The values that policy-gradient losses exchange: `Clip`, the bounds, and `RlTerm`, the result."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass
from typing import TYPE_CHECKING

if TYPE_CHECKING:
    from torch import Tensor


@dataclass(frozen=True, slots=True)
class Clip:
    """The bounds [1 - low, 1 + high] of the ratio, and its bound for negative advantages.

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

    `loss` has a gradient and `ratio` is the bounded ratio. `clipped` maps the name of a bound to
    the tokens whose gradient it removed (CISPO: whose weight it capped).
    """

    loss: Tensor
    ratio: Tensor
    clipped: Mapping[str, Tensor]
