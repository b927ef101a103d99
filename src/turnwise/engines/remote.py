"""The engine of an OpenAI-compatible endpoint for chat completions.

Provides `RemoteEngine`: requests over HTTP, retries, and the parsing of replies. A server's reply
is hostile input: it is bounded while it is read and parses to a completion or to an `EngineError`.
A completion has text but no token ids and no log-probabilities, so it is recorded and never
trained.
"""

from __future__ import annotations

import asyncio
import json
import math
import os
from collections.abc import Callable, Mapping
from dataclasses import dataclass, replace
from datetime import UTC, datetime
from email.utils import parsedate_to_datetime
from http.cookiejar import CookieJar, DefaultCookiePolicy
from typing import TYPE_CHECKING, Any

from turnwise.engines.base import Completion, Request, Usage
from turnwise.engines.masking import KeyMask
from turnwise.engines.remote_config import RemoteConfig
from turnwise.errors import (
    ConfigError,
    EndpointError,
    EndpointRefusedError,
    EngineError,
    MissingDependencyError,
)
from turnwise.seeding import generator
from turnwise.types import FinishReason

if TYPE_CHECKING:
    import httpx

FIRST_PAUSE, LONGEST_PAUSE = 0.5, 60.0
"""Seconds before the first retry, doubled for each one after; and the most seconds of a pause,
whatever the server asks for."""
SEEDS = 1 << 31
MOST_TOKENS = 1 << 40
"""The largest count of tokens that is believed."""
QUOTED = 200
"""Most characters of a server's words in a message."""
AGAIN = frozenset({408, 425, 429})
"""Refusals that may end by themselves, beside the server's own failures (500 and above)."""
CURES = {
    401: "check the key in the environment variable that api_key_env names",
    403: "check that the key in the variable that api_key_env names may use this model",
    404: "check base_url and model: the server knows no such address or model",
}


@dataclass(frozen=True, kw_only=True, slots=True)
class _Open:
    """The connections of one event loop."""

    loop: asyncio.AbstractEventLoop
    client: httpx.AsyncClient
    slots: asyncio.Semaphore


class _Attempt(Exception):
    """An attempt failed in a way that another one may not; `pause` is what the server asked for."""

    def __init__(self, said: str, pause: float | None = None) -> None:
        super().__init__(said)
        self.pause = pause


class RemoteEngine:
    """Samples one policy's completions at a server.

    The seed of a request is a function of the run's seed and the turn, and is sent along: a server
    may use it. The weights are the server's, at version 0.

    Args:
        policy: the policy's name.
        config: its options.
        seed: of the run.
        section: where the options stand in the settings, for messages; `policies.<policy>` by
            default.

    Raises:
        ConfigError: if the environment variable that `api_key_env` names is not set, or
            `base_url` is not an address.
        MissingDependencyError: if httpx is not installed.
    """

    def __init__(self, policy: str, config: RemoteConfig, seed: int, section: str = "") -> None:
        self.policy, self.config = policy, config
        section = section or f"policies.{policy}"
        self._seed, self._key = seed, _key_of(section, config)
        self._mask = KeyMask(self._key)
        self._open: _Open | None = None
        self._calls = self._retries = 0
        self._unanswered, self._trying = 0, False
        httpx = _httpx()
        try:
            httpx.URL(config.base_url)
        except httpx.InvalidURL as error:
            raise ConfigError(
                f"{section}.base_url = {config.base_url!r} is not an address ({error}): "
                "give one such as https://api.openai.com/v1"
            ) from error

    async def generate(self, request: Request) -> Completion:
        """Return the server's reply to the request's prompt.

        Attempts that time out, are refused for now or bring no readable reply are repeated with
        growing pauses; a pause that the server asks for (Retry-After) is kept, up to a minute. When
        as many attempts in a row had no answer as `max_concurrent` requests may take, one request
        at a time is tried once, until there is an answer; the others fail at once.

        Raises:
            EndpointError: if no attempt brings a reply, or the server refuses for good.
            EngineError: if the request is not one of text.
        """
        body, opened = self._body(request), self._opened()
        pause = FIRST_PAUSE
        self._calls += 1
        for attempt in range(self.config.retries + 1):
            try:
                async with opened.slots:
                    return await self._attempt_if_reachable(opened.client, body)
            except _Attempt as failed:
                if attempt == self.config.retries or self._unreachable:
                    raise EndpointError(
                        f"policy {self.policy!r}: {self._url} {failed}; tried "
                        f"{attempt + 1} times. Expected a chat completion: check that the server "
                        "runs and how much it is asked (max_concurrent, timeout, retries)"
                    ) from failed
                self._retries += 1
                wanted = pause if failed.pause is None else max(pause, failed.pause)
                await asyncio.sleep(min(wanted, LONGEST_PAUSE))
                pause *= 2
        raise AssertionError("the last attempt returns or raises")

    def update_weights(self, policy: str) -> None:
        """Refuse: the weights are the server's.

        Raises:
            EngineError: always.
        """
        raise EngineError(
            f"policy {policy!r} is remote, and its weights are the server's: train only policies "
            "with weights of their own"
        )

    async def close(self) -> None:
        """Close the connections."""
        if self._open is not None:
            opened, self._open = self._open, None
            await opened.client.aclose()

    def metrics(self) -> dict[str, float]:
        """Return how many completions were asked for and attempts repeated since the last call."""
        found = {
            "engine/remote_calls": float(self._calls),
            "engine/remote_retries": float(self._retries),
        }
        self._calls = self._retries = 0
        return found

    @property
    def _unreachable(self) -> bool:
        """Whether so many attempts in a row had no answer that the server counts as unreachable."""
        return self._unanswered >= self.config.max_concurrent * (self.config.retries + 1)

    @property
    def _url(self) -> str:
        return f"{self.config.base_url}/chat/completions"

    def _body(self, request: Request) -> bytes:
        """Return what is sent for a request."""
        prompt = request.prompt
        if prompt is None or not prompt.messages or prompt.tools or prompt.media:
            raise EngineError(
                f"policy {self.policy!r} is remote and takes messages of text, but turn "
                f"{request.id} gives something else: leave raw text, tools and media to policies "
                "with weights of their own"
            )
        draws = generator(self._seed, "remote", request.stream, str(request.id))
        body = {
            "model": self.config.model,
            "messages": [message.as_dict() for message in prompt.messages],
            "temperature": request.sampling.temperature,
            "max_tokens": request.sampling.max_tokens,
            "seed": int(draws.integers(SEEDS)),
            "stream": False,
        }
        # As ASCII, lone surrogates of a program's output included.
        return json.dumps(body).encode("ascii")

    def _opened(self) -> _Open:
        """Return the connections of the loop that runs; a new loop has new ones."""
        loop = asyncio.get_running_loop()
        if self._open is None or self._open.loop is not loop:
            httpx, most = _httpx(), self.config.max_concurrent
            headers = {"content-type": "application/json", "accept-encoding": "identity"}
            if self._key:
                headers["authorization"] = f"Bearer {self._key}"
            client = httpx.AsyncClient(
                headers=headers,
                cookies=CookieJar(DefaultCookiePolicy(allowed_domains=[])),  # none are kept
                timeout=None,  # an attempt is timed as a whole
                limits=httpx.Limits(max_connections=most, max_keepalive_connections=most),
            )
            self._open = _Open(loop=loop, client=client, slots=asyncio.Semaphore(most))
        return self._open

    async def _attempt_if_reachable(self, client: httpx.AsyncClient, body: bytes) -> Completion:
        """Ask once, unless the server is unreachable and another request is trying it.

        Raises:
            _Attempt: if another attempt may go better.
            EndpointError: if it is not asked, or refuses for good.
        """
        if self._unreachable:
            if self._trying:
                raise EndpointError(
                    f"policy {self.policy!r}: {self._url} gave no answer {self._unanswered} times "
                    "in a row, so this request was not sent: check that the server runs"
                )
            self._trying = True
            try:
                return await self._attempt(client, body)
            finally:
                self._trying = False
        return await self._attempt(client, body)

    async def _attempt(self, client: httpx.AsyncClient, body: bytes) -> Completion:
        """Ask once.

        Raises:
            _Attempt: if another attempt may go better.
            EndpointError: if the server refuses for good.
        """
        httpx = _httpx()
        try:
            async with (
                asyncio.timeout(self.config.timeout),
                client.stream("POST", self._url, content=body) as reply,
            ):
                told = await self._read(reply)
                status, headers = reply.status_code, reply.headers
            self._unanswered = 0
        except TimeoutError as late:
            self._unanswered += 1
            raise _Attempt(f"did not answer within {self.config.timeout:g} s") from late
        except (
            httpx.HTTPError,
            httpx.InvalidURL,
            httpx.StreamError,
            OSError,
            UnicodeError,
        ) as lost:
            self._unanswered += 1
            said = self._mask.hidden(str(lost).encode(errors="replace").decode())[: 2 * QUOTED]
            raise _Attempt(f"could not be reached ({type(lost).__name__}: {said})") from lost
        if status == 200:
            found = completion_of(told, self._mask.hidden)
            return replace(found, text=self._mask.hidden_in_reply(found.text or ""))
        said = f"answered with status {status}: {_quoted(told, self._mask.hidden)}"
        if status in AGAIN or status >= 500:
            raise _Attempt(said, pause_of(headers))
        cure = CURES.get(status, "check base_url, model and the options of sampling")
        raise EndpointRefusedError(
            f"policy {self.policy!r}: {self._url} {said}. Expected status 200: {cure}"
        )

    async def _read(self, reply: httpx.Response) -> bytes:
        """Return a reply's body, bounded while it is read; it must not be compressed."""
        most = self.config.max_reply_bytes
        coding = reply.headers.get("content-encoding", "identity")
        if coding != "identity":
            said = self._mask.hidden(coding)[:20]
            raise _Attempt(f"answered in the encoding {said!r}, which was not asked for")
        told = bytearray()
        async for piece in reply.aiter_raw():
            told += piece
            if len(told) > most:
                raise _Attempt(f"answered with more than max_reply_bytes = {most} bytes")
        return bytes(told)


def completion_of(told: bytes, mask: Callable[[str], str] = str) -> Completion:
    """Return the completion that a server's JSON holds.

    Args:
        told: the JSON.
        mask: hides the key in what an error quotes.

    Raises:
        _Attempt: if it is anything else.

    Example:
        >>> completion_of(b'{"choices": [{"message": {"content": "4"}}]}').text
        '4'
    """
    try:
        found: Any = json.loads(told.decode("utf-8"))
    except (ValueError, RecursionError) as error:
        raise _Attempt(f"answered with no JSON in UTF-8 ({type(error).__name__})") from error
    choices = found.get("choices") if isinstance(found, dict) else None
    first = choices[0] if isinstance(choices, list) and choices else None
    message = first.get("message") if isinstance(first, dict) else None
    content = message.get("content") if isinstance(message, dict) else None
    if not isinstance(first, dict) or not isinstance(content, str):
        raise _Attempt(
            'answered with JSON that has no text at choices[0]["message"]["content"]: '
            f"{_quoted(told, mask)}"
        )
    try:
        content.encode("utf-8")
    except UnicodeEncodeError as error:  # JSON can spell halves of characters
        raise _Attempt("answered with text that is not Unicode (a lone surrogate)") from error
    cut = first.get("finish_reason") == "length"
    reason: FinishReason = "length" if cut else "stop"
    return Completion(
        token_ids=(), logprobs=(), finish_reason=reason, policy_version=0, text=content,
        usage=_usage_of(found),
    )  # fmt: skip


def _usage_of(found: dict[str, Any]) -> Usage | None:
    """Return the tokens that a reply counts; None if it does not, or not in whole numbers."""
    usage = found.get("usage")
    counted = usage if isinstance(usage, dict) else {}
    numbers = [counted.get(name) for name in ("prompt_tokens", "completion_tokens")]
    known = [n for n in numbers if type(n) is int and 0 <= n <= MOST_TOKENS]
    return Usage(known[0], known[1]) if len(known) == len(numbers) else None


def _quoted(told: bytes, mask: Callable[[str], str]) -> str:
    """Return the beginning of a server's words, without the key, which it may repeat."""
    return repr(mask(told.decode("utf-8", "replace"))[:QUOTED])


def pause_of(headers: Mapping[str, str]) -> float | None:
    """Return the seconds that a server asks to wait (Retry-After); None if it says nothing valid.

    Example:
        >>> pause_of({"retry-after": "7"}), pause_of({"retry-after": "soon"})
        (7.0, None)
    """
    asked = headers.get("retry-after", "")
    try:
        seconds = float(asked)
    except ValueError:
        try:
            when = parsedate_to_datetime(asked)
        except (ValueError, OverflowError):
            return None
        when = when if when.tzinfo else when.replace(tzinfo=UTC)
        seconds = (when - datetime.now(UTC)).total_seconds()
    return max(0.0, seconds) if math.isfinite(seconds) else None


def _key_of(section: str, config: RemoteConfig) -> str:
    if not config.api_key_env:
        return ""
    key = os.environ.get(config.api_key_env, "").strip()
    if not key:
        raise ConfigError(
            f"{section}.api_key_env = {config.api_key_env!r}: this environment variable "
            "is not set; set it to the endpoint's key, or leave api_key_env out"
        )
    if not key.isascii() or not key.isprintable():
        raise ConfigError(
            f"{section}.api_key_env = {config.api_key_env!r}: the variable holds "
            "characters that no HTTP header can carry; set it to the endpoint's key"
        )
    return key


def _httpx() -> Any:
    """Import the HTTP client."""
    try:
        import httpx
    except ImportError as error:
        raise MissingDependencyError(
            "remote policies need httpx: pip install 'turnwise[remote]'"
        ) from error
    return httpx
