"""The choice of the sibling with which an episode goes on. Provides `choose`."""

from __future__ import annotations

from collections.abc import Sequence

import numpy as np

from turnwise.workflows.topologies import SiblingsConfig


def choose(values: Sequence[float], config: SiblingsConfig, rng: np.random.Generator) -> int:
    """Return the place of the sibling with which the episode goes on.

    Args:
        values: the siblings' scores; of equal ones the first is the best.
        config: `continuation` and `epsilon`.
        rng: what is drawn.

    Example:
        >>> from turnwise.workflows.topologies import SpineConfig
        >>> choose([0.0, 1.0, 1.0], SpineConfig(), np.random.default_rng(0))
        1
    """
    scores = np.array(values, dtype=float)
    if config.continuation == "proportional":
        weights = scores - min(0.0, float(scores.min()))
        total = float(weights.sum())
        return int(rng.choice(len(scores), p=weights / total if total > 0 else None))
    if rng.random() < config.chance_of_any:
        return int(rng.integers(len(scores)))
    return int(scores.argmax())
