"""The options of a policy whose completions come from a server, `RemoteConfig`.

A key is given by the name of an environment variable: recipes are shared with results.
"""

from __future__ import annotations

from typing import Literal

from pydantic import Field, field_validator

from turnwise.settings import Settings


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
    def _is_http(cls, value: str) -> str:
        if not value.startswith(("http://", "https://")):
            raise ValueError(f"{value!r} must begin with http:// or https://")
        address, path = value.rstrip("/"), "/chat/completions"
        if address.endswith(path):
            raise ValueError(f"{value!r}: leave {path} out, which is added to it")
        return address

    @field_validator("api_key_env")
    @classmethod
    def _is_a_name(cls, value: str) -> str:
        if value and not value.isidentifier():
            raise ValueError(
                "must be the name of an environment variable, such as OPENAI_API_KEY, not the key"
            )
        return value
