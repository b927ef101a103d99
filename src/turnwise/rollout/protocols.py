"""What the agents of an episode need of others: a renderer, and a rule that samples their turns.

Provides `RendererLike`, `TurnRule` and `Score`.
"""

from __future__ import annotations

from collections.abc import Callable, Sequence
from typing import Any, Protocol

from turnwise.formats import ReplyFormat
from turnwise.rollout.branch import Branch
from turnwise.types import Prompt, Sampling, Span, Turn

Score = Callable[[str], float]
"""From the answer to a question to its score."""


class RendererLike(Protocol):
    """The part of a policy's renderer that a seat calls."""

    def prompt_ids(self, prompt: Prompt) -> tuple[int, ...]:
        """Return the ids of a prompt."""
        ...

    def continued_ids(
        self, before: Prompt, ids: tuple[int, ...], reply: str, prompt: Prompt
    ) -> tuple[int, ...] | None:
        """Return the ids of a prompt that goes on from an earlier one, or None if it does not."""
        ...

    def decode(self, ids: Sequence[int]) -> str:
        """Return a completion's text."""
        ...

    def spans(self, completion_ids: tuple[int, ...], reply_format: ReplyFormat) -> tuple[Span, ...]:
        """Return the named parts of a completion."""
        ...

    def calls(self, reply: str) -> str | None:
        """Return the calls of tools in a reply as an action, None if it calls nothing."""
        ...

    def spoken(self, reply: str) -> str:
        """Return a reply whose calls stand in an env's form as the model would say it."""
        ...


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
