"""The contract of workflows: plain async Python that decides which agent acts when.

Provides the `Agent` verbs (`act`, `ask`), `Agents` and the `Workflow` signature. A workflow sees
states and texts. It knows nothing of tokens, engines, groups or rewards, and cannot tell training
from evaluation.
"""

from __future__ import annotations

from collections.abc import Awaitable, Callable, Iterator, Sequence
from typing import Any, Protocol

from turnwise.envs.base import Step
from turnwise.types import Message


class Agent(Protocol):
    """One seat of an episode, as a workflow sees it."""

    async def act(
        self, state: Any, *, temperature: float | None = None, max_tokens: int | None = None
    ) -> Step[Any]:
        """Let the agent observe `state` and reply; return the step that its action leads to.

        Where turns have siblings, it is the step of the one that goes on. `temperature` and
        `max_tokens` replace the agent's own.
        """
        ...

    async def ask(
        self,
        messages: Sequence[Message],
        *,
        score: Callable[[str], float] | None = None,
        temperature: float | None = None,
        max_tokens: int | None = None,
    ) -> str:
        """Ask the agent's policy one question and return its reply. No env step is made.

        Where turns have siblings, `score` judges several replies, and one of them is returned.
        """
        ...


class Agents(Protocol):
    """The agents of one episode, by seat."""

    def __getitem__(self, seat: str, /) -> Agent:
        """Return the agent of a seat."""
        ...

    def __iter__(self) -> Iterator[str]:
        """Iterate over the seats."""
        ...

    def acting(self, state: Any) -> Sequence[str]:
        """Return the seats whose turn it is in `state`, the next one to act first."""
        ...


Workflow = Callable[[Agents, Any], Awaitable[Step[Any]]]
"""From the agents and the first state to the last step of the episode."""
