"""The table of credit schemes: what is compared with what, by which formula, with which options.

To add a scheme, write a file with its config class, its estimator and its `Scheme`, and add a line
here and a test.
"""

from __future__ import annotations

from typing import TYPE_CHECKING, Any

from turnwise.credit.config import CreditConfig
from turnwise.credit.schemes.at_grpo import AT_GRPO
from turnwise.credit.schemes.base import Comparison, Scheme, batch_key, state_key, visit_key
from turnwise.credit.schemes.counterfactual import COUNTERFACTUAL
from turnwise.credit.schemes.gae import GAE
from turnwise.credit.schemes.gigpo import GIGPO
from turnwise.credit.schemes.grpo import DR_GRPO, GRPO
from turnwise.credit.schemes.leave_one_role_out import LEAVE_ONE_ROLE_OUT
from turnwise.credit.schemes.max_at_k import MAX_AT_K
from turnwise.credit.schemes.maxrl import MAXRL
from turnwise.credit.schemes.rae import RAE
from turnwise.credit.schemes.reinforce import REINFORCE, REINFORCE_PLUS
from turnwise.credit.schemes.rloo import RLOO
from turnwise.settings import make_one_of, one_of

SCHEMES: dict[str, Scheme] = {
    "reinforce": REINFORCE,
    "reinforce++": REINFORCE_PLUS,
    "rloo": RLOO,
    "grpo": GRPO,
    "dr_grpo": DR_GRPO,
    "maxrl": MAXRL,
    "max_at_k": MAX_AT_K,
    "gigpo": GIGPO,
    "gae": GAE,
    "rae": RAE,
    "at_grpo": AT_GRPO,
    "leave_one_role_out": LEAVE_ONE_ROLE_OUT,
    "counterfactual": COUNTERFACTUAL,
}
DEFAULT = "grpo"
_CONFIGS = {name: scheme.config for name, scheme in SCHEMES.items()}
if TYPE_CHECKING:
    AnyCredit = CreditConfig
else:
    AnyCredit = one_of(_CONFIGS, by="scheme", default=DEFAULT)
    """The `[credit]` section of a recipe."""


def make_credit(**options: Any) -> CreditConfig:
    """Return the options of credit assignment.

    Args:
        options: as in the `[credit]` section of a recipe; `scheme` is "grpo" by default.

    Raises:
        ConfigError: if an option is unknown, wrong or does not apply to the scheme.

    Example:
        >>> make_credit(scheme="gigpo", rewards={"goal": 1.0}).gamma
        0.95
    """
    return make_one_of(_CONFIGS, options, "credit", by="scheme", default=DEFAULT)


__all__ = [
    "DEFAULT",
    "SCHEMES",
    "AnyCredit",
    "Comparison",
    "Scheme",
    "batch_key",
    "make_credit",
    "state_key",
    "visit_key",
]
