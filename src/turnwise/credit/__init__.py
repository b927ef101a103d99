"""Keys, units and estimators: episodes in, advantages out. Pure numpy."""

from turnwise.credit.assign import Credit, assign_advantages
from turnwise.credit.config import CreditConfig, check_components, fill_rewards
from turnwise.credit.groups import Group, GroupKey, Unit, group
from turnwise.credit.invalid import assign_below_worst
from turnwise.credit.metrics import score_metrics
from turnwise.credit.returns import Penalties, episode_return, returns_to_go
from turnwise.credit.role_baselines import RoleBaselines
from turnwise.credit.schemes import SCHEMES, AnyCredit, Scheme, make_credit
from turnwise.utils.rewards import mix_rewards

__all__ = [
    "SCHEMES",
    "AnyCredit",
    "Credit",
    "CreditConfig",
    "Group",
    "GroupKey",
    "Penalties",
    "RoleBaselines",
    "Scheme",
    "Unit",
    "assign_advantages",
    "assign_below_worst",
    "check_components",
    "episode_return",
    "fill_rewards",
    "group",
    "make_credit",
    "mix_rewards",
    "returns_to_go",
    "score_metrics",
]
