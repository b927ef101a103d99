"""An engine whose completions come from a function or a table, for tests and documents.

Provides `ScriptedEngine`. Its draws are counter-based like those of a model.
"""

from __future__ import annotations

import asyncio
import math
from collections.abc import Callable, Mapping, Sequence
from itertools import pairwise
from typing import Any, TypeAlias

from numpy.typing import NDArray

from turnwise.engines.base import Completion, Request
from turnwise.engines.loop import RunLoop
from turnwise.errors import EngineError
from turnwise.seeding import token_uniforms
from turnwise.types import FinishReason

Reply: TypeAlias = Sequence[int] | Mapping[tuple[int, ...], float] | Completion
"""Token ids; or completions with their probabilities, to be drawn from; or a whole completion."""


class ScriptedEngine:
    """Answers every request with what `reply` returns for it.

    A table of completions is drawn from token by token, each from its own uniform: probabilities of
    tokens are those of the completions that begin so. Greedy sampling takes the likeliest token.
    Plain ids are certain and have log-probability 0. Completions longer than `max_tokens` are cut.
    An `EngineError` that `reply` raises is raised by `generate`.

    Attributes:
        requests: all requests in the order in which they were answered.

    Example:
        >>> from turnwise.engines.loop import run
        >>> from turnwise.types import Sampling, EpisodeId, TurnId
        >>> episode = EpisodeId(iteration=0, visit=0, task="t", member=0)
        >>> turn = TurnId(episode=episode, role="player", turn=0)
        >>> request = Request(id=turn, stream="train", policy="main", prompt_ids=(1,),
        ...                   sampling=Sampling())
        >>> engine = ScriptedEngine(lambda request: {(5, 2): 0.25, (6, 2): 0.75})
        >>> completion = run(engine.generate(request), engine)
        >>> completion.token_ids in {(5, 2), (6, 2)}, completion.logprobs[1]
        (True, 0.0)
    """

    deterministic = True

    def __init__(
        self, reply: Callable[[Request], Reply], *, seed: int = 0, policy_version: int = 0
    ) -> None:
        self._reply, self._seed = reply, seed
        self.policy_version = policy_version
        self.loop = RunLoop()
        self.requests: list[Request] = []
        self._waiting: list[tuple[Request, asyncio.Future[Completion]]] = []

    def reason(self, policy: str) -> str:
        """Return how a policy is sampled."""
        return "scripted"

    async def generate(self, request: Request) -> Completion:
        """Return the completion that the script gives to this request."""
        future = asyncio.get_running_loop().create_future()
        self._waiting.append((request, future))
        return await future

    def advance(self) -> bool:
        """Answer all waiting requests, in the order of policies and turns."""
        waiting, self._waiting = self._waiting, []
        waiting.sort(key=lambda call: (call[0].policy, call[0].id, call[0].stream))
        for request, future in waiting:
            if future.done():  # its coroutine was cancelled
                continue
            self.requests.append(request)
            try:
                future.set_result(self._complete(request))
            except EngineError as error:
                future.set_exception(error)
        return bool(waiting)

    def update_weights(self, policy: str) -> None:
        """Count the new weights: `policy_version` goes up by one."""
        self.policy_version += 1

    def end_iteration(self) -> None:
        """Do nothing: nothing is remembered."""

    def state(self) -> dict[str, NDArray[Any]]:
        """Return nothing: completions depend on their requests alone."""
        return {}

    def restore(self, state: Mapping[str, NDArray[Any]]) -> None:
        """Do nothing: there is no state."""

    def metrics(self) -> dict[str, float]:
        """Return nothing: nothing is measured."""
        return {}

    async def close(self) -> None:
        """Do nothing: nothing is open."""

    def _complete(self, request: Request) -> Completion:
        said = self._reply(request)
        if isinstance(said, Completion):
            return said
        logprobs: Sequence[float]
        if isinstance(said, Mapping):
            ids, logprobs = self._drawn(said, request)
        else:
            ids, logprobs = tuple(said), [0.0] * len(said)
        limit = request.sampling.max_tokens
        finish_reason: FinishReason = "length" if len(ids) > limit else "stop"
        return Completion(
            token_ids=tuple(ids[:limit]),
            logprobs=tuple(logprobs[:limit]),
            finish_reason=finish_reason,
            policy_version=self.policy_version,
        )

    def _drawn(
        self, table: Mapping[tuple[int, ...], float], request: Request
    ) -> tuple[tuple[int, ...], list[float]]:
        """Draw one of the table's completions, token by token, with their log-probabilities."""
        ordered = sorted(table)  # a completion that begins another comes right before one such
        for one, after in pairwise(ordered):
            if after[: len(one)] == one:
                raise ValueError(f"completion {one} begins {after}: end it with a stop token")
        longest = max(map(len, table))
        uniforms = token_uniforms(self._seed, request.stream, request.id, longest).tolist()
        said: tuple[int, ...] = ()
        logprobs: list[float] = []
        while said not in table:
            weights: dict[int, float] = {}
            for ids, weight in table.items():
                if ids[: len(said)] == said:
                    weights[ids[len(said)]] = weights.get(ids[len(said)], 0.0) + weight
            total = sum(weights.values())
            token = _pick(weights, uniforms[len(said)] * total, request.sampling.greedy)
            logprobs.append(math.log(weights[token] / total))
            said += (token,)
        return said, logprobs


def _pick(weights: Mapping[int, float], target: float, greedy: bool) -> int:
    """Return the token at which the summed weights, in order of ids, pass `target`."""
    likely = sorted(token for token, weight in weights.items() if weight > 0)
    if greedy:
        return max(likely, key=weights.__getitem__)
    below = 0.0
    for token in likely:
        below += weights[token]
        if target < below:
            return token
    return likely[-1]
