"""Policies: the weights that answer, how they are made, loaded, saved and moved.

Knows tokenizers only through the renderer. Must not know environments, episodes or losses.
"""

from turnwise.policies.config import LoraSettings, PolicyConfig
from turnwise.policies.continuations import continuations
from turnwise.policies.loading import load_policies, load_policy
from turnwise.policies.nano import PRESETS, NanoConfig, is_nano, make_nano, nano_preset
from turnwise.policies.optimizer import (
    OptimizerConfig,
    PolicyOptimizer,
    learning_rate,
    make_optimizer,
)
from turnwise.policies.policy import Policy

__all__ = [
    "PRESETS",
    "LoraSettings",
    "NanoConfig",
    "OptimizerConfig",
    "Policy",
    "PolicyConfig",
    "PolicyOptimizer",
    "continuations",
    "is_nano",
    "learning_rate",
    "load_policies",
    "load_policy",
    "make_nano",
    "make_optimizer",
    "nano_preset",
]
