"""Calls of one agent's model: from a prompt to a turn that has no action yet.

Provides `ModelCalls` and `without_failures`.
"""

from __future__ import annotations

import asyncio
from collections.abc import Coroutine, Sequence
from typing import Any, TypeVar

from turnwise.agents import AgentConfig
from turnwise.engines.base import Engine, Request
from turnwise.errors import EngineError, SandboxError
from turnwise.rollout.protocols import RendererLike
from turnwise.types import Prompt, Sampling, Stream, Turn, TurnId

T = TypeVar("T")
Said = tuple[Prompt, tuple[int, ...], str]
"""A prompt, the ids of it and of its reply, and the reply."""


class ModelCalls:
    """Samples the replies of one agent, and renders its prompts."""

    def __init__(
        self, *, config: AgentConfig, engine: Engine, renderer: RendererLike, stream: Stream
    ) -> None:
        self.config, self.renderer = config, renderer
        self._engine = engine
        self._stream: Stream = stream

    def ids_of(self, prompt: Prompt, said: Said | None = None) -> tuple[int, ...]:
        """Return a prompt's ids, with the replies that it holds as they were sampled.

        `said` is the agent's last prompt with its reply, where the prompt may continue it.
        """
        if said is not None and self.config.history == "full":
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
        policy = self.config.policy
        request = Request(
            id=identity,
            stream=self._stream,
            policy=policy,
            prompt_ids=prompt_ids,
            sampling=sampling,
            media=prompt.media_key,
            prompt=prompt,
            goes_on=self.config.history == "full",
        )
        drawn = await self._engine.generate(request)
        ids, served = drawn.token_ids, drawn.text
        return Turn(
            id=identity,
            order=order,
            policy=policy,
            policy_version=drawn.policy_version,
            prompt_ids=prompt_ids,
            completion_ids=ids,
            logprobs=drawn.logprobs,
            sampling=sampling,
            finish_reason=drawn.finish_reason,
            text=self.renderer.decode(ids) if served is None else served,
            spans=self.renderer.spans(ids, self.config.reply_format),
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
