"""The rule by which the agents of an episode sample their turns, where turns have siblings.

Provides `TurnRule` and `Score`.
"""

from __future__ import annotations

from collections.abc import Callable, Sequence
from typing import Any, Protocol

from turnwise.rollout.branch import Branch
from turnwise.types import Prompt, Sampling, Turn

Score = Callable[[str], float]
"""From the answer to a question to its score."""


class TurnRule(Protocol):
    """What samples the turns of agents that have siblings (`rollout.siblings.Siblings`)."""

    async def of_turn(
        self, seat: str, state: Any, sampling: Sampling
    ) -> tuple[Branch, Sequence[Turn]]:
        """Return the branch with which a seat goes on from `state`, and its siblings."""
        ...

    async def of_question(
        self, seat: str, prompt: Prompt, sampling: Sampling, score: Score | None
    ) -> tuple[Turn, Sequence[Turn]]:
        """Return the answer to a question with which the workflow goes on, and its siblings."""
        ...
