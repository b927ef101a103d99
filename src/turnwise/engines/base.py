"""The contract of engines: an engine generates completions and their log-probabilities.

Provides `Request`, `Completion` and the `Engine` protocol.
"""

from __future__ import annotations

from dataclasses import dataclass
from typing import NamedTuple, Protocol

from turnwise.types import FinishReason, MediaKey, Prompt, Sampling, Stream, TurnId


class PromptKey(NamedTuple):
    """The identity of a prompt's keys and values, apart from the weights: its media and its tokens.

    Example:
        >>> PromptKey((), (1, 2)) == PromptKey(("a68b",), (1, 2))
        False
    """

    media: MediaKey
    ids: tuple[int, ...]


@dataclass(frozen=True, kw_only=True, slots=True)
class Request:
    """One model call. `id`, `stream` and the engine's seed decide every draw.

    Example:
        >>> from turnwise.types import EpisodeId
        >>> episode = EpisodeId(iteration=0, visit=0, task="t", member=0)
        >>> Request(id=TurnId(episode=episode, role="player", turn=0),
        ...         stream="train", policy="main", prompt_ids=(1, 2), sampling=Sampling()).policy
        'main'
    """

    id: TurnId
    stream: Stream
    policy: str
    prompt_ids: tuple[int, ...]
    sampling: Sampling
    media: MediaKey = ()
    """The hashes of what the prompt shows beside its tokens."""
    prompt: Prompt | None = None
    """The source of `prompt_ids`, for engines that take messages and no ids."""
    goes_on: bool = False
    """Whether a later prompt may begin with this one and its completion."""

    @property
    def prompt_key(self) -> PromptKey:
        """The key of everything that is kept for the prompt."""
        return PromptKey(self.media, self.prompt_ids)


class Usage(NamedTuple):
    """The tokens of a model call, as the server that served it counts them.

    Example:
        >>> Usage(12, 3).completion_tokens
        3
    """

    prompt_tokens: int
    completion_tokens: int


@dataclass(frozen=True, kw_only=True, slots=True)
class Completion:
    """A sampled completion: ids and log-probabilities of equal length, the end token included.

    `text` is what an engine says that gives no ids: such a turn is never trained. It is None where
    the ids say everything. `usage` is what a server counts, None where none does.
    """

    token_ids: tuple[int, ...]
    logprobs: tuple[float, ...]
    finish_reason: FinishReason
    policy_version: int
    text: str | None = None
    usage: Usage | None = None


class Engine(Protocol):
    """Samples completions for many coroutines at once, on this machine or at a server."""

    async def generate(self, request: Request) -> Completion:
        """Return one completion; many calls may wait at once and share a batch.

        Raises:
            EngineError: if there is none, with what was given, what was expected and the cure.
        """
        ...

    def update_weights(self, policy: str) -> None:
        """Take the new weights of `policy`: everything cached for the old ones is dropped."""
        ...

    async def close(self) -> None:
        """Give back connections and memory; awaited on the loop on which it generated."""
        ...
