"""The options of a policy whose completions come from a server, `RemoteConfig`.

A key is given by the name of an environment variable: recipes are shared with results.
"""

from __future__ import annotations

import re
from typing import Literal
from urllib.parse import urlsplit

from pydantic import Field, field_validator

from turnwise.settings import Settings

_SUCH = "give one such as https://api.openai.com/v1"
_KEY = re.compile(r"(?=.*[a-z])(?=.*\d)\w{20,}$")
"""A key that could be a name: long, with small letters and digits, such as `hf_...`."""


class RemoteConfig(Settings):
    """A policy behind an OpenAI-compatible endpoint: chat messages in, text out, never trained.

    Example:
        >>> RemoteConfig(base_url="http://localhost:8000/v1", model="Qwen/Qwen3-0.6B").retries
        4
    """

    kind: Literal["remote"] = "remote"
    """The source of the policy's replies."""
    base_url: str
    """The endpoint's address up to `/chat/completions`, such as `https://api.openai.com/v1`."""
    model: str = Field(min_length=1)
    """The name by which the endpoint knows the model."""
    api_key_env: str = ""
    """The name of the environment variable that holds the key; empty for an endpoint without."""
    timeout: float = Field(default=120.0, gt=0, allow_inf_nan=False)
    """Most seconds that one attempt may take, from the connection to the reply's last byte."""
    max_concurrent: int = Field(default=16, ge=1)
    """Most requests under way at once; the others wait."""
    retries: int = Field(default=4, ge=0)
    """Attempts after the first one, with growing pauses between them."""
    max_reply_bytes: int = Field(default=1 << 20, ge=1024)
    """Most bytes of one reply; a larger one is not read to its end."""

    @field_validator("base_url")
    @classmethod
    def _is_an_address(cls, value: str) -> str:
        """Refuse other texts than addresses; the value, which may hold a key, is not repeated."""
        if not value.startswith(("http://", "https://")):
            raise ValueError("must begin with http:// or https://")
        try:
            parts = urlsplit(value)
            known, port = bool(parts.hostname), parts.port
        except ValueError as error:
            raise ValueError(f"is not an address ({error}): {_SUCH}") from None
        if "@" in parts.netloc:
            raise ValueError("holds a name or a password: leave it out and use api_key_env")
        if parts.query or parts.fragment or "?" in value or "#" in value:
            raise ValueError("ends in `?` or `#`: give the address alone, a key by api_key_env")
        if not known or port == 0 or not value.isprintable() or " " in value:
            raise ValueError(f"is not an address of a server: {_SUCH}")
        if parts.path.rstrip("/").endswith("/chat/completions"):
            raise ValueError("ends in /chat/completions, which is added: leave that part out")
        return value.rstrip("/")

    @field_validator("api_key_env")
    @classmethod
    def _is_a_name(cls, value: str) -> str:
        if value and (not value.isidentifier() or _KEY.match(value)):
            raise ValueError(
                "must be the name of an environment variable, such as OPENAI_API_KEY, not the key"
            )
        return value
