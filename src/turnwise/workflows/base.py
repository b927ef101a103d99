"""What a workflow is: plain async Python that decides who speaks when.

Owns the `Seat` verbs (`act`, `ask`) and the `Workflow` signature. A workflow sees states and texts;
it knows nothing of tokens, engines, groups or rewards, and cannot tell training from evaluation.
"""

from __future__ import annotations

from collections.abc import Awaitable, Callable, Mapping, Sequence
from typing import Any, Protocol

from turnwise.envs.base import Step
from turnwise.types import Message


class Seat(Protocol):
    """One role's place at the table, as a workflow sees it."""

    async def act(self, state: Any) -> Step[Any]:
        """Let the role observe `state` and answer; return the step that its action leads to."""
        ...

    async def ask(self, messages: Sequence[Message]) -> str:
        """Put one question to the role's policy; return its reply. Steps nothing."""
        ...


Workflow = Callable[[Mapping[str, Seat], Any], Awaitable[Step[Any]]]
"""From the seats and the first state to the last step of the episode."""
