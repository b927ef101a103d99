"""Calls of one agent's model: from a prompt to a turn that has no action yet.

Provides `ModelCalls`, `RendererLike` and `without_failures`.
"""

from __future__ import annotations

import asyncio
from collections.abc import Coroutine, Sequence
from typing import Any, Protocol, TypeVar

from turnwise.engines.base import Engine, Request
from turnwise.errors import EngineError, SandboxError
from turnwise.formats import ReplyFormat
from turnwise.types import Prompt, Sampling, Span, Stream, Turn, TurnId

T = TypeVar("T")
Said = tuple[Prompt, tuple[int, ...], str]
"""A prompt, the ids of it and of its reply, and the reply."""


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


class ModelCalls:
    """Samples the replies of one agent, and renders its prompts.

    Args:
        policy: the policy that replies.
        reply_format: finds the named parts of a reply.
        goes_on: whether each prompt of the agent holds its earlier ones and their replies.
        engine: samples.
        renderer: of the policy.
        stream: the stream of the random draws.
    """

    def __init__(
        self,
        *,
        policy: str,
        reply_format: ReplyFormat,
        goes_on: bool,
        engine: Engine,
        renderer: RendererLike,
        stream: Stream,
    ) -> None:
        self.renderer = renderer
        self._policy, self._format, self._goes_on = policy, reply_format, goes_on
        self._engine = engine
        self._stream: Stream = stream

    def ids_of(self, prompt: Prompt, said: Said | None = None) -> tuple[int, ...]:
        """Return a prompt's ids, with the replies that it holds as they were sampled.

        `said` is the agent's last prompt with its reply, where the prompt may continue it.
        """
        if said is not None and self._goes_on:
            before, ids, reply = said
            continued = self.renderer.continued_ids(before, ids, reply, prompt)
            if continued is not None:
                return continued
        return self.renderer.prompt_ids(prompt)

    async def turn(
        self,
        identity: TurnId,
        order: int,
        prompt: Prompt,
        prompt_ids: tuple[int, ...],
        sampling: Sampling,
    ) -> Turn:
        """Sample a reply; return its turn, which has no action and no reward yet."""
        request = Request(
            id=identity,
            stream=self._stream,
            policy=self._policy,
            prompt_ids=prompt_ids,
            sampling=sampling,
            media=prompt.media_key,
            prompt=prompt,
            goes_on=self._goes_on,
        )
        drawn = await self._engine.generate(request)
        ids, served = drawn.token_ids, drawn.text
        return Turn(
            id=identity,
            order=order,
            policy=self._policy,
            policy_version=drawn.policy_version,
            prompt_ids=prompt_ids,
            completion_ids=ids,
            logprobs=drawn.logprobs,
            sampling=sampling,
            finish_reason=drawn.finish_reason,
            text=self.renderer.decode(ids) if served is None else served,
            spans=self.renderer.spans(ids, self._format),
            media=prompt.media_key,
            prompt_text="" if served is None else prompt.transcript,
        )


async def without_failures(calls: Sequence[Coroutine[Any, Any, T]]) -> list[T]:
    """Return the results of calls made side by side, without those that the engine failed.

    Raises:
        EngineError: or `SandboxError`, of the first call, if all of them failed.
    """
    found = await asyncio.gather(*calls, return_exceptions=True)
    failed = [each for each in found if isinstance(each, BaseException)]
    for cause in failed:
        if not isinstance(cause, EngineError | SandboxError) or len(failed) == len(found):
            raise cause
    return [each for each in found if not isinstance(each, BaseException)]
