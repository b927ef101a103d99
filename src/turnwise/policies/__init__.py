"""Policies: the weights that answer, how they are loaded, saved and moved.

Knows tokenizers only through the renderer. Must not know environments, episodes or losses.
"""

from turnwise.policies.nano import PRESETS, NanoConfig, make_nano, nano_preset

__all__ = ["PRESETS", "NanoConfig", "make_nano", "nano_preset"]
