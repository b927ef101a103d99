"""Running means of each role's returns, which are the baselines of later iterations.

Provides `RoleBaselines`. A baseline holds no return of the batch that it is subtracted from.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import replace
from typing import Any

import numpy as np

from turnwise.credit.config import CreditConfig
from turnwise.credit.groups import Group


class RoleBaselines:
    """The exponential moving mean of each role's returns, corrected for its first value, 0.

    Example:
        >>> from turnwise.credit.schemes.rae import RaeConfig
        >>> baselines = RoleBaselines()
        >>> baselines.values()
        {}
    """

    def __init__(self) -> None:
        self._sums: dict[str, float] = {}
        self._weights: dict[str, float] = {}

    def values(self) -> dict[str, float]:
        """Return the baseline of each role that has earned something before."""
        return {role: total / self._weights[role] for role, total in self._sums.items()}

    def learn(self, groups: Sequence[Group], config: CreditConfig) -> None:
        """Add the mean returns of an iteration's roles, where the scheme has such baselines."""
        decay = config.baseline_decay
        if decay is None:
            return
        for group in groups:
            role, mean = group.key.role, float(np.mean(group.returns))
            self._sums[role] = decay * self._sums.get(role, 0.0) + (1 - decay) * mean
            self._weights[role] = decay * self._weights.get(role, 0.0) + 1 - decay

    def state(self) -> dict[str, Any]:
        """Return the sums and their weights, as JSON-able values."""
        return {role: [total, self._weights[role]] for role, total in self._sums.items()}

    def restore(self, state: Mapping[str, Any]) -> None:
        """Go back to what `state` returned."""
        self._sums = {role: total for role, (total, _) in state.items()}
        self._weights = {role: weight for role, (_, weight) in state.items()}


def less_baselines(groups: Sequence[Group], baselines: Mapping[str, float]) -> tuple[Group, ...]:
    """Return groups whose advantages are less by the baseline of their role; none is 0."""
    return tuple(
        replace(
            group,
            advantages=tuple(a - baselines.get(group.key.role, 0.0) for a in group.advantages),
        )
        for group in groups
    )
