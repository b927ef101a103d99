"""Sizes of nano models, and their presets by name. The module does not import torch."""

from __future__ import annotations

from pydantic import Field, model_validator

from turnwise.errors import ConfigError, unknown_name
from turnwise.settings import Settings


class NanoConfig(Settings):
    """Sizes of a model made on the spot. The defaults are those of the preset "nano".

    A policy's `nano` table changes the sizes of the preset that its `model` names.
    """

    hidden: int = Field(default=128, ge=8)
    """Width of the residual stream."""
    layers: int = Field(default=4, ge=1)
    """Number of decoder layers."""
    heads: int = Field(default=4, ge=1)
    """Number of query heads."""
    kv_heads: int = Field(default=2, ge=1)
    """Number of key and value heads (grouped queries, arXiv:2305.13245); divides `heads`."""
    head_dim: int = Field(default=32, ge=2)
    """Width of one head; even, for rotary positions."""
    intermediate: int = Field(default=384, ge=8)
    """Width inside the feed-forward blocks."""
    context: int = Field(default=512, ge=16)
    """Longest sequence of prompt and completion, in tokens."""
    rope_theta: float = Field(default=10_000.0, gt=0)
    """Base of the rotary position frequencies; 10,000 as published (RoFormer, arXiv:2104.09864,
    section 3.2.2)."""
    tied_embeddings: bool = True
    """Whether the output layer shares the embedding's weights (arXiv:1608.05859)."""
    init_std: float | None = Field(default=None, gt=0)
    """Standard deviation of the initial weights; None is 0.02 (GPT, Radford et al. 2018), and 1 /
    sqrt(hidden) where `turnwise.train` chooses the defaults for an env."""
    max_words: int = Field(default=4096, ge=0)
    """The number of words of the transcripts that become tokens, the most frequent first."""

    @property
    def layer_weights(self) -> int:
        """The number of weights of all decoder layers, without embeddings and norms."""
        attention = 2 * (self.heads + self.kv_heads) * self.head_dim
        return self.layers * self.hidden * (attention + 3 * self.intermediate)

    @model_validator(mode="after")
    def _check_heads(self) -> NanoConfig:
        if self.heads % self.kv_heads:
            raise ConfigError(
                f"kv_heads = {self.kv_heads} must divide heads = {self.heads}: change one of them"
            )
        if self.head_dim % 2:
            raise ConfigError(f"head_dim = {self.head_dim} must be even: add or remove 1")
        return self


PRESETS: dict[str, NanoConfig] = {
    "pico": NanoConfig(hidden=64, layers=2, heads=2, kv_heads=1, intermediate=192, init_std=0.1),
    "nano": NanoConfig(),
    "micro": NanoConfig(hidden=256, heads=8, kv_heads=4, intermediate=768),
    "small": NanoConfig(hidden=384, layers=8, heads=12, kv_heads=6, intermediate=1024),
}


def nano_preset(name: str) -> NanoConfig:
    """Return the sizes called `name`: about 0.1, 0.8, 3 and 13 million parameters.

    Raises:
        UnknownNameError: if there is no such preset.

    Example:
        >>> nano_preset("micro").hidden
        256
    """
    if name not in PRESETS:
        raise unknown_name("nano preset", name, PRESETS)
    return PRESETS[name]


def is_nano(model: str) -> bool:
    """Whether a policy's `model` is the name of a preset.

    Example:
        >>> is_nano("nano"), is_nano("Qwen/Qwen3-0.6B")
        (True, False)
    """
    return model in PRESETS
