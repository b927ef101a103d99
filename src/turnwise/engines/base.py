"""What an engine is: something that continues token ids and tells the log-probabilities it drew at.

Owns `Request`, `Completion` and the `Engine` contract. Knows no messages, environments or rewards.
"""

from __future__ import annotations

from dataclasses import dataclass
from typing import Protocol

from turnwise.types import FinishReason, Sampling, Stream, TurnId


@dataclass(frozen=True, kw_only=True, slots=True)
class Request:
    """One model call. `id`, `stream` and the engine's seed decide every draw.

    Example:
        >>> Request(id=TurnId(iteration=0, visit=0, task="t", sample=0, role="player", turn=0),
        ...         stream="train", policy="main", prompt_ids=(1, 2), sampling=Sampling()).policy
        'main'
    """

    id: TurnId
    stream: Stream
    policy: str
    prompt_ids: tuple[int, ...]
    sampling: Sampling
    goes_on: bool = False
    """Whether a later prompt may begin with this one and its completion."""


@dataclass(frozen=True, kw_only=True, slots=True)
class Completion:
    """What was drawn: ids and log-probabilities of equal length, the end token included."""

    token_ids: tuple[int, ...]
    logprobs: tuple[float, ...]
    finish_reason: FinishReason
    policy_version: int


class Engine(Protocol):
    """Samples completions for many coroutines at once."""

    deterministic: bool

    async def sample(self, request: Request) -> Completion:
        """Return one completion; many calls may wait at once and share a batch."""
        ...

    def advance(self) -> bool:
        """Do one unit of work for the waiting requests; False if nothing waits.

        The event loop of `engines.loop` calls it only when every runnable coroutine waits, which
        is what makes batches, and so every bit of a run, repeatable.
        """
        ...

    def hand_over(self, policy: str) -> None:
        """Learn that `policy` has new weights: everything cached for it is dropped."""
        ...

    def end_iteration(self) -> None:
        """Drop all prefix caches, frozen policies' too."""
        ...
