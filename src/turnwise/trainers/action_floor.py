"""A floor under the frequency of actions: below it the SFT mix imitates random actions more.

Provides `ActionFloor`. An action that is right in few states is wrong in most. A policy learns that
first, and hardly takes the action any more before it has learned to tell the states apart. Then
nothing shows where the action is right.
"""

from __future__ import annotations

from collections import Counter
from collections.abc import Iterable, Mapping
from dataclasses import dataclass
from typing import Any

ENDS = 0.8
"""The share of the training after which there is no floor: a good policy may give an action up."""
STEP, MOST = 1.5, 20.0
"""The change of the factor by an iteration, and the largest one."""
COMMON = 0.1
"""The least share of an action in the first iteration with which it has a floor: of many actions a
good policy may need few."""


@dataclass(kw_only=True, slots=True)
class ActionFloor:
    """The factor by which the weight of random actions in the SFT mix is multiplied.

    It is at least 1, and grows while some action is rarer than its floor: `share` of its frequency
    in the first iteration, falling to 0 in a straight line.

    Example:
        >>> floor = ActionFloor(share=0.5)
        >>> floor.learn(["up", "up", "down", "down"], 0.0)
        1.0
        >>> floor.learn(["up", "up", "up", "up", "up", "up", "up", "down"], 0.4), floor.factor
        (0.25, 1.0)
        >>> floor.learn(["up"] * 8, 0.4), floor.factor
        (0.0, 1.5)
    """

    share: float
    start: dict[str, float] | None = None
    factor: float = 1.0

    def learn(self, actions: Iterable[str], done: float) -> float:
        """Adapt the factor to the actions of an iteration.

        Args:
            actions: those of all turns.
            done: the share of the training that is over.

        Returns:
            The frequency of the action that has become the rarest, as a share of its first one; 1
            where no action is common.
        """
        found = Counter(actions)
        total = max(found.total(), 1)
        if self.start is None and found:
            self.start = {a: n / total for a, n in found.items() if n >= COMMON * total}
        starts = (self.start or {}).items()
        left = min((found[a] / total / was for a, was in starts), default=1.0)
        rare = left < self.share * max(0.0, 1 - done / ENDS)
        self.factor = min(max(self.factor * STEP if rare else self.factor / STEP, 1.0), MOST)
        return left

    def metrics_of(self, actions: Iterable[str], done: float) -> dict[str, float]:
        """Adapt the factor as `learn` does; return the factor before, and the rarest frequency."""
        before = self.factor
        return {"sft_mix/factor": before, "policy/rarest_action": self.learn(actions, done)}

    def state(self) -> dict[str, Any]:
        """Return what a resumed run needs, as JSON-able values."""
        return {"start": self.start, "factor": self.factor}

    def restore(self, state: Mapping[str, Any]) -> None:
        """Go back to what `state` returned."""
        self.start, self.factor = state["start"], state["factor"]
