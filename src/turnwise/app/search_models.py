"""The models that a search asks: an OpenAI-compatible endpoint.

Provides `Endpoint`. Its key is read from the environment variable that the settings name, by the
remote engine, which keeps it out of every message and reply.
"""

from __future__ import annotations

import asyncio

from turnwise.engines import Request
from turnwise.engines.remote import RemoteEngine
from turnwise.search.config import EndpointConfig
from turnwise.search.cost import tokens_in
from turnwise.search.prompted import Reply
from turnwise.types import EpisodeId, Message, Prompt, Sampling, TurnId

ROLE = "searcher"


def turn_of(slot: int, attempt: int) -> TurnId:
    """Return the identity of a model call, which decides its draws."""
    episode = EpisodeId(iteration=slot, visit=0, task="search", member=0)
    return TurnId(episode=episode, role=ROLE, turn=attempt)


class Endpoint:
    """Asks an endpoint, one request at a time.

    Raises:
        ConfigError: if the key's environment variable is not set.
        MissingDependencyError: if httpx is not installed.
    """

    def __init__(self, config: EndpointConfig, seed: int) -> None:
        self._sampling = Sampling(temperature=config.temperature, max_tokens=config.max_tokens)
        self._engine = RemoteEngine(ROLE, config, seed)
        self._runner = asyncio.Runner()

    def ask(self, prompt: str, slot: int, attempt: int) -> Reply:
        """Return the model's reply; its tokens are estimated where the server counts none.

        Raises:
            EngineError: if there is none.
        """
        messages = (Message(role="user", content=prompt),)
        request = Request(
            id=turn_of(slot, attempt), stream="train", policy=ROLE, prompt_ids=(),
            sampling=self._sampling, prompt=Prompt(messages=messages),
        )  # fmt: skip
        drawn = self._runner.run(self._engine.generate(request))
        text = drawn.text or ""
        if drawn.usage is not None:
            return Reply(
                text=text, prompt_tokens=drawn.usage.prompt_tokens,
                completion_tokens=drawn.usage.completion_tokens,
            )  # fmt: skip
        return Reply(text=text, prompt_tokens=tokens_in(prompt), completion_tokens=tokens_in(text))

    def close(self) -> None:
        """Close the connections."""
        self._runner.run(self._engine.close())
        self._runner.close()
