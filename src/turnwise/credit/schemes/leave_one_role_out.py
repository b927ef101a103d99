"""Leave one role out: seats that act at the same time, each compared over the others' actions.

The baseline of an action is the mean over the actions of its own seat, with those of the others
held: the counterfactual baseline of COMA (Foerster et al. 2018, arXiv 1705.08926), with sampled
actions in place of all of them.
"""

from __future__ import annotations

from typing import Literal

from turnwise.credit.schemes.at_grpo import SiblingCreditConfig
from turnwise.credit.schemes.base import Comparison, Scheme, question_key
from turnwise.credit.schemes.grpo import mean_centred
from turnwise.credit.siblings import sibling_units


class LeaveOneRoleOutConfig(SiblingCreditConfig):
    """The mean of a sibling's row of the cross table less the mean of the table.

    Example:
        >>> LeaveOneRoleOutConfig().divides_by
        'none'
    """

    scheme: Literal["leave_one_role_out"] = "leave_one_role_out"


LEAVE_ONE_ROLE_OUT = Scheme(
    config=LeaveOneRoleOutConfig,
    compare=Comparison(key=question_key, unit=sibling_units, estimator=mean_centred),
    topologies=("spine",),
    needs_cross_tables=True,
)
