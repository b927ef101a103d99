"""Keys, units and estimators: episodes in, advantages out. Pure numpy."""

from turnwise.credit.assign import Credit, assign_advantages
from turnwise.credit.config import CreditConfig, check_components, fill_rewards
from turnwise.credit.groups import Group, GroupKey, Unit, Visit, group
from turnwise.credit.returns import Penalties, episode_return, mix_rewards, returns_to_go
from turnwise.credit.schemes import SCHEMES, Scheme

__all__ = [
    "SCHEMES",
    "Credit",
    "CreditConfig",
    "Group",
    "GroupKey",
    "Penalties",
    "Scheme",
    "Unit",
    "Visit",
    "assign_advantages",
    "check_components",
    "episode_return",
    "fill_rewards",
    "group",
    "mix_rewards",
    "returns_to_go",
]
