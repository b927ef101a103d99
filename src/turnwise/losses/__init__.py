"""Loss functions on tensors: policy-gradient, cross-entropy and reference-KL terms."""

from typing import TYPE_CHECKING

from turnwise.utils.lazy_imports import lazy_names

if TYPE_CHECKING:
    from turnwise.losses.config import LossConfig
    from turnwise.losses.inputs import LossInputs
    from turnwise.losses.table import LOSSES, AnyLoss, Loss, make_loss
    from turnwise.losses.terms import Clip, RlTerm
    from turnwise.losses.total import LossOutput, combine_metrics, total_loss
    from turnwise.losses.weights import RowWeights, token_weights

__all__ = [
    "LOSSES",
    "AnyLoss",
    "Clip",
    "Loss",
    "LossConfig",
    "LossInputs",
    "LossOutput",
    "RlTerm",
    "RowWeights",
    "combine_metrics",
    "make_loss",
    "token_weights",
    "total_loss",
]

__getattr__, __dir__ = lazy_names(
    __name__,
    {
        "LOSSES": "turnwise.losses.table",
        "AnyLoss": "turnwise.losses.table",
        "Clip": "turnwise.losses.terms",
        "Loss": "turnwise.losses.table",
        "LossConfig": "turnwise.losses.config",
        "LossInputs": "turnwise.losses.inputs",
        "LossOutput": "turnwise.losses.total",
        "RlTerm": "turnwise.losses.terms",
        "RowWeights": "turnwise.losses.weights",
        "combine_metrics": "turnwise.losses.total",
        "token_weights": "turnwise.losses.weights",
        "make_loss": "turnwise.losses.table",
        "total_loss": "turnwise.losses.total",
    },
)
