"""The options of the forest: layout, budgets and what the measurement at load may cost.

Owns `ForestConfig`. Knows nothing of samples, models or torch.
"""

from __future__ import annotations

from typing import Annotated, Literal

from pydantic import Field

from turnwise.settings import Settings

Layout = Literal["packed", "blocked", "padded", "flat"]
"""Tries end to end, by few kernel calls (CPUs) or by FlexAttention (accelerators); tries padded to
one width under a mask; or rows one by one, padded."""
END_TO_END = ("packed", "blocked")
"""Layouts in which tries attend by a plan."""


MOST_TOKENS = 32_768
"""Where `auto` ends, however small the model: more does not make a pass faster."""


class ForestConfig(Settings):
    """How training rows are laid out and how much memory one micro-batch may take.

    Example:
        >>> ForestConfig(layout="flat").token_budget
        'auto'
    """

    layout: Literal["auto", "tree", "flat"] = "auto"
    """`auto` measures at load whether trees give the numbers of flat rows; `tree` insists on it."""
    token_budget: Annotated[int, Field(ge=1)] | Literal["auto"] = "auto"
    """Most tokens of one micro-batch, padding included; a longer row is one by itself. `auto` is as
    many as `activation_megabytes` hold, by the model's sizes."""
    activation_megabytes: int = Field(default=4096, ge=1)
    """Memory for what a micro-batch keeps for its backward pass, where `token_budget` is `auto`."""
    mask_budget: int = Field(default=4_194_304, ge=1)
    """Most query-key pairs of one tree micro-batch (tries x nodes x nodes), padding included."""
    head_chunk: int = Field(default=33_554_432, ge=1)
    """Most logits (positions x vocabulary) that the LM head makes at once; at least one row."""
    break_even: int = Field(default=512, ge=1)
    """Nodes of a trie at which attention costs as much as all else; about 4 x hidden size.

    A shared prefix is computed twice where the larger mask of one trie would cost more.
    """
    probe_tokens: int = Field(default=1024, ge=64)
    """Longest row that the measurement at load scores; longer sliding windows are not crossed."""

    @property
    def tokens(self) -> int:
        """The token budget; `auto` without a model is the largest."""
        return MOST_TOKENS if self.token_budget == "auto" else self.token_budget

    def resolved(self, bytes_per_token: int) -> ForestConfig:
        """Return the config with a number for `auto`.

        Example:
            >>> ForestConfig(activation_megabytes=1).resolved(1024).tokens
            1024
        """
        if self.token_budget != "auto":
            return self
        fit = max(1, (self.activation_megabytes << 20) // max(1, bytes_per_token))
        return self.model_copy(update={"token_budget": min(fit, MOST_TOKENS)})
