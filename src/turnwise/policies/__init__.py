"""Policies: model weights, and how they are created, loaded, saved and optimised."""

from typing import TYPE_CHECKING

from turnwise.utils.lazy_imports import lazy_names

if TYPE_CHECKING:
    from turnwise.policies.config import LoraSettings, PolicyConfig
    from turnwise.policies.loading import load_policies, load_policy
    from turnwise.policies.nano import make_nano
    from turnwise.policies.optimizer import PolicyOptimizer, make_optimizer
    from turnwise.policies.policy import Policy
    from turnwise.policies.presets import PRESETS, NanoConfig, is_nano, nano_preset
    from turnwise.policies.schedule import (
        AnyOptimizerConfig,
        OptimizerConfig,
        SftOptimizerConfig,
        learning_rate,
    )
    from turnwise.policies.threads import (
        cores_are_chosen,
        default_threads,
        kept_threads,
        measure_threads,
        use_threads,
    )

__all__ = [
    "PRESETS",
    "AnyOptimizerConfig",
    "LoraSettings",
    "NanoConfig",
    "OptimizerConfig",
    "Policy",
    "PolicyConfig",
    "PolicyOptimizer",
    "SftOptimizerConfig",
    "cores_are_chosen",
    "default_threads",
    "is_nano",
    "kept_threads",
    "learning_rate",
    "load_policies",
    "load_policy",
    "make_nano",
    "make_optimizer",
    "measure_threads",
    "nano_preset",
    "use_threads",
]

__getattr__, __dir__ = lazy_names(
    __name__,
    {
        "PRESETS": "turnwise.policies.presets",
        "LoraSettings": "turnwise.policies.config",
        "NanoConfig": "turnwise.policies.presets",
        "AnyOptimizerConfig": "turnwise.policies.schedule",
        "OptimizerConfig": "turnwise.policies.schedule",
        "SftOptimizerConfig": "turnwise.policies.schedule",
        "Policy": "turnwise.policies.policy",
        "PolicyConfig": "turnwise.policies.config",
        "PolicyOptimizer": "turnwise.policies.optimizer",
        "cores_are_chosen": "turnwise.policies.threads",
        "default_threads": "turnwise.policies.threads",
        "is_nano": "turnwise.policies.presets",
        "kept_threads": "turnwise.policies.threads",
        "learning_rate": "turnwise.policies.schedule",
        "load_policies": "turnwise.policies.loading",
        "load_policy": "turnwise.policies.loading",
        "make_nano": "turnwise.policies.nano",
        "make_optimizer": "turnwise.policies.optimizer",
        "measure_threads": "turnwise.policies.threads",
        "nano_preset": "turnwise.policies.presets",
        "use_threads": "turnwise.policies.threads",
    },
)
