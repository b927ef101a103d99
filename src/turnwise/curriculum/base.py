"""The interface of curricula."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from typing import Any, Protocol

import numpy as np

from turnwise.tasks.openings import WorldDraws
from turnwise.types import Episode, Opening, Task, TaskVisit


class Curriculum(Protocol):
    """The choice of the tasks of each iteration.

    Attributes:
        per_iteration: the number of visits of an iteration.
    """

    per_iteration: int

    def visits(
        self, iteration: int, *, first: int = 0, count: int | None = None
    ) -> list[TaskVisit]:
        """Return `count` visits (default: one iteration's worth), numbered from `first`.

        They depend on the numbers and on what was learned from earlier iterations only.
        """
        ...

    def beginning(self, rng: np.random.Generator) -> tuple[Task, Opening] | None:
        """Return where a game of random play begins; None for the first state of a task."""
        ...

    def prepare(self, draws: WorldDraws) -> None:
        """Do what comes before the first iteration; `draws` is the noise of training's env steps.

        What the env raises is not caught.
        """
        ...

    def learn(self, episodes: Sequence[Episode]) -> None:
        """Take note of all episodes of an iteration, before the visits of the next one."""
        ...

    def state(self) -> Mapping[str, Any]:
        """Return what was learned, as JSON-able values; empty for nothing."""
        ...

    def restore(self, state: Mapping[str, Any]) -> None:
        """Go back to a state that `state` returned."""
        ...
