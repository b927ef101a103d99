"""GiGPO: episodes are compared, and turns that were taken in the same state.

Source: Feng et al. 2025 (arXiv 2505.10978).
"""

from __future__ import annotations

from collections.abc import Sequence
from typing import Literal

import numpy as np
from pydantic import Field

from turnwise.credit.config import Std, VisitCreditConfig
from turnwise.credit.returns import Floats
from turnwise.credit.schemes.base import Comparison, Scheme, state_key, visit_key
from turnwise.credit.schemes.grpo import mean_centred
from turnwise.credit.units import episode_units, state_units
from turnwise.types import EpisodeId


class GigpoConfig(VisitCreditConfig):
    """The mean-centred return of the episode, plus that of the turn among turns of equal state.

    Example:
        >>> GigpoConfig().own_episode
        'exclude'
    """

    scheme: Literal["gigpo"] = "gigpo"
    std: Std = "none"
    """The standard deviation that advantages are divided by, as in grpo."""
    gamma: float = Field(default=0.95, ge=0, le=1)
    """Discount of the return-to-go (arXiv:2505.10978)."""
    state_weight: float = Field(default=1.0, ge=0, allow_inf_nan=False)
    """Weight of the turn-level part (arXiv:2505.10978)."""
    own_episode: Literal["exclude", "include"] = "exclude"
    """Whether a state's baseline holds the episode's own visits (`include`, as published in
    arXiv:2505.10978), or leaves them out, which is unbiased (docs/math.md 2)."""

    @property
    def divides_by(self) -> Std:
        """The divisor of advantages."""
        return self.std

    @property
    def weight_of_second(self) -> float:
        """The weight of the turn-level comparison."""
        return self.state_weight

    @property
    def lone_groups_teach(self) -> bool:
        """Whether a group of one episode may have advantages: by its own visits of a state."""
        return self.own_episode == "include"


def centred_by_state(values: Floats, episodes: Sequence[EpisodeId], config: GigpoConfig) -> Floats:
    """Return `G - mean of G over the visits of the same state`, [turns].

    With `own_episode = "exclude"` the mean runs over the other episodes' visits only, so that a
    turn's baseline does not depend on its own action; as published, `"include"`, it runs over all.
    A turn with nothing to compare with has 0.
    """
    if config.own_episode == "include":
        return values - float(values.mean())
    numbers: dict[EpisodeId, int] = {}
    owner = np.array([numbers.setdefault(episode, len(numbers)) for episode in episodes])
    if len(numbers) == 1:
        return np.zeros(len(values))
    means = np.array([float(values[owner != number].mean()) for number in range(len(numbers))])
    return values - means[owner]


GIGPO = Scheme(
    config=GigpoConfig,
    compare=Comparison(key=visit_key, unit=episode_units, estimator=mean_centred),
    add=Comparison(key=state_key, unit=state_units, estimator=centred_by_state),
    needs_states=True,
)
