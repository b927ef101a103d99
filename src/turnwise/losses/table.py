"""The table of policy-gradient losses: name -> options and function.

To add a loss, write a file with its config class and its function, and add a line here and a test.
"""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass
from typing import TYPE_CHECKING, Any

from turnwise.losses.cispo import CispoConfig, cispo_loss
from turnwise.losses.clipped import ClippedConfig, clipped_loss
from turnwise.losses.config import LossConfig
from turnwise.losses.gspo import GspoConfig, gspo_loss
from turnwise.losses.terms import RlTerm
from turnwise.settings import make_one_of, one_of


@dataclass(frozen=True, slots=True)
class Loss:
    """A loss: the class of its options, and its function of a micro-batch and these options."""

    config: type[LossConfig]
    function: Callable[..., RlTerm]


LOSSES: dict[str, Loss] = {
    "clipped": Loss(ClippedConfig, clipped_loss),
    "gspo": Loss(GspoConfig, gspo_loss),
    "cispo": Loss(CispoConfig, cispo_loss),
}
_CONFIGS = {name: loss.config for name, loss in LOSSES.items()}
if TYPE_CHECKING:
    AnyLoss = LossConfig
else:
    AnyLoss = one_of(_CONFIGS, default="clipped")
    """The `[loss]` section of a recipe."""


def make_loss(**options: Any) -> LossConfig:
    """Return the options of a loss.

    Args:
        options: as in the `[loss]` section of a recipe; `kind` is "clipped" by default.

    Raises:
        ConfigError: if an option is unknown, wrong or does not apply to the kind.

    Example:
        >>> make_loss(kind="gspo").clip_high
        0.0004
    """
    return make_one_of(_CONFIGS, options, "the loss", default="clipped")
