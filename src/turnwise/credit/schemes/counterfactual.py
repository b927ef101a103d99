"""Counterfactual credit: other answers to the same question, each played on by the same policy.

Source: C3, Chen et al. 2026 (arXiv 2603.06859).
"""

from __future__ import annotations

from typing import Literal

from turnwise.credit.schemes.at_grpo import SiblingCreditConfig
from turnwise.credit.schemes.base import Comparison, Scheme, question_key
from turnwise.credit.schemes.rloo import leave_one_out
from turnwise.credit.siblings import sibling_units


class CounterfactualConfig(SiblingCreditConfig):
    """The return-to-go of an answer less the mean of its siblings' (arXiv:2603.06859).

    Example:
        >>> CounterfactualConfig().divides_by
        'none'
    """

    scheme: Literal["counterfactual"] = "counterfactual"


COUNTERFACTUAL = Scheme(
    config=CounterfactualConfig,
    compare=Comparison(key=question_key, unit=sibling_units, estimator=leave_one_out),
    topologies=("vine",),
)
