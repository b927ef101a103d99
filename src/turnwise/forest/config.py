"""The options of the forest: layout, budgets and the length of the probe at load.

Provides `ForestConfig`.
"""

from __future__ import annotations

from typing import Annotated, Literal

from pydantic import Field

from turnwise.settings import Settings

Layout = Literal["packed", "blocked", "padded", "flat"]
"""Concatenated tries, with few kernel calls (CPUs) or FlexAttention (accelerators); tries padded to
one width with a mask; or single rows, padded."""
END_TO_END = ("packed", "blocked")
"""Layouts in which tries are concatenated and attend by a plan."""


MOST_TOKENS = 32_768
"""The largest token budget that `auto` chooses; larger batches are not faster."""


class ForestConfig(Settings):
    """The layout of training rows, and the memory of one micro-batch.

    Example:
        >>> ForestConfig(layout="flat").token_budget
        'auto'
    """

    layout: Literal["auto", "tree", "flat"] = "auto"
    """`auto` measures at load whether trees give the same numbers as flat rows; `tree` requires it;
    `flat` computes every row separately. In a tree a token attends to its ancestors (as in
    SpecInfer, arXiv:2305.09781)."""
    token_budget: Annotated[int, Field(ge=1)] | Literal["auto"] = "auto"
    """Largest number of tokens in a micro-batch, including padding. A longer row is a micro-batch
    of its own. `auto` is the number that fits into `activation_megabytes` for the model's sizes."""
    activation_megabytes: int = Field(default=4096, ge=1)
    """Memory for the activations of a micro-batch's backward pass, if `token_budget` is `auto`."""
    mask_budget: int = Field(default=4_194_304, ge=1)
    """Largest number of query-key pairs of a tree micro-batch (tries x nodes x nodes), including
    padding."""
    head_chunk: int = Field(default=33_554_432, ge=1)
    """Largest number of logits (positions x vocabulary) computed at once; at least one row."""
    break_even: int = Field(default=512, ge=1)
    """Nodes of a trie at which attention costs as much as all other operations; about 4 x hidden
    size. A shared prefix is computed twice if the larger mask of a joint trie would cost more."""
    probe_tokens: int = Field(default=1024, ge=64)
    """Longest row that the probe at load scores. Longer sliding windows are not tested."""

    @property
    def tokens(self) -> int:
        """The token budget; the largest one for an unresolved `auto`."""
        return MOST_TOKENS if self.token_budget == "auto" else self.token_budget

    def resolved(self, bytes_per_token: int) -> ForestConfig:
        """Return the config with `auto` replaced by a number.

        Example:
            >>> ForestConfig(activation_megabytes=1).resolved(1024).tokens
            1024
        """
        if self.token_budget != "auto":
            return self
        fit = max(1, (self.activation_megabytes << 20) // max(1, bytes_per_token))
        return self.model_copy(update={"token_budget": min(fit, MOST_TOKENS)})
