"""AT-GRPO: the siblings of one turn of one role are compared (arXiv 2510.11062)."""

from __future__ import annotations

from typing import Literal

from turnwise.credit.config import Std, VisitCreditConfig
from turnwise.credit.schemes.base import Comparison, Scheme, question_key
from turnwise.credit.schemes.grpo import mean_centred
from turnwise.credit.siblings import sibling_units


class SiblingCreditConfig(VisitCreditConfig):
    """The options of schemes that compare siblings."""

    @property
    def lone_groups_teach(self) -> bool:
        """Whether a group of one episode may have advantages: its turns have siblings."""
        return True


class AtGrpoConfig(SiblingCreditConfig):
    """The score of a turn less the mean of its siblings', over a standard deviation.

    Answers of one role to one question in one round are compared (arXiv:2510.11062, section 4.1).

    Example:
        >>> AtGrpoConfig().std
        'group'
    """

    scheme: Literal["at_grpo"] = "at_grpo"
    std: Std = "group"
    """The standard deviation that advantages are divided by, as in grpo; by default that of the
    siblings' scores (arXiv:2510.11062, eq. 1)."""

    @property
    def divides_by(self) -> Std:
        """The divisor of advantages."""
        return self.std


AT_GRPO = Scheme(
    config=AtGrpoConfig,
    compare=Comparison(key=question_key, unit=sibling_units, estimator=mean_centred),
    topologies=("spine", "vine"),
)
