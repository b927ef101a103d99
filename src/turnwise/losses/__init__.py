"""Pure functions on tensors: policy-gradient, cross-entropy and reference-KL parts."""

from typing import TYPE_CHECKING

from turnwise.lazy import lazy_names

if TYPE_CHECKING:
    from turnwise.losses.config import LossConfig
    from turnwise.losses.inputs import LossInputs
    from turnwise.losses.terms import Clip, RlTerm
    from turnwise.losses.total import LOSSES, LossOutput, combine_metrics, total_loss
    from turnwise.losses.weights import RowWeights, token_weights

__all__ = [
    "LOSSES",
    "Clip",
    "LossConfig",
    "LossInputs",
    "LossOutput",
    "RlTerm",
    "RowWeights",
    "combine_metrics",
    "token_weights",
    "total_loss",
]

__getattr__, __dir__ = lazy_names(
    __name__,
    {
        "LOSSES": "turnwise.losses.total",
        "Clip": "turnwise.losses.terms",
        "LossConfig": "turnwise.losses.config",
        "LossInputs": "turnwise.losses.inputs",
        "LossOutput": "turnwise.losses.total",
        "RlTerm": "turnwise.losses.terms",
        "RowWeights": "turnwise.losses.weights",
        "combine_metrics": "turnwise.losses.total",
        "token_weights": "turnwise.losses.weights",
        "total_loss": "turnwise.losses.total",
    },
)
