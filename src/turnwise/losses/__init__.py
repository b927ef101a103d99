"""Pure functions on tensors: policy-gradient, cross-entropy and reference-KL parts."""

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
