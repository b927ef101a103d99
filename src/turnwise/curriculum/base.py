"""The interface of curricula."""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from typing import Any, Protocol

import numpy as np

from turnwise.tasks.openings import WorldDraws
from turnwise.types import Episode, Opening, Task, TaskVisit, TurnId

GoesOn = Callable[[int, int], bool]
"""Called with the steps that are done and their total; returns whether to go on."""


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

    def explore(self, draws: WorldDraws, goes_on: GoesOn) -> Mapping[str, Any]:
        """Return what is found before the first iteration, as JSON-able values for `begin`.

        `steps` is the number of env steps; it is empty where there is nothing to find. `draws` is
        the noise of training's env steps.
        """
        ...

    def begin(self, found: Mapping[str, Any]) -> None:
        """Begin with what `explore` found, here or in another process.

        It is called after `restore`, if that is called.
        """
        ...

    def learn(self, episodes: Sequence[Episode], advantages: Mapping[TurnId, float]) -> None:
        """Take note of all episodes of an iteration, before the visits of the next one.

        Args:
            episodes: all that were played.
            advantages: those by the return, of turns that are trained.
        """
        ...

    def exam(self, iteration: int) -> Sequence[Task]:
        """Return the tasks that the policy is to be evaluated on after `iteration` iterations."""
        ...

    def judge(self, episodes: Sequence[Episode]) -> None:
        """Take note of the episodes of an exam, one for each of its tasks."""
        ...

    def metrics(self) -> Mapping[str, float]:
        """Return what is recorded with every iteration, by name of the metric."""
        ...

    def state(self) -> Mapping[str, Any]:
        """Return what was learned, as JSON-able values; empty for nothing."""
        ...

    def restore(self, state: Mapping[str, Any]) -> None:
        """Go back to a state that `state` returned."""
        ...
