"""The weighted sum of reward components, which training, scores and baselines share.

Provides `mix_rewards`.
"""

from __future__ import annotations

from collections.abc import Mapping


def mix_rewards(rewards: Mapping[str, float], weights: Mapping[str, float]) -> float:
    """Return the weighted sum of a turn's reward components; an absent component is 0.

    Components without a weight do not count.

    Example:
        >>> mix_rewards({"goal": 1.0, "format": 1.0}, {"goal": 1.0, "steps": -0.5})
        1.0
    """
    return float(sum(weight * rewards.get(name, 0.0) for name, weight in weights.items()))
