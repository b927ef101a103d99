"""The options of the forest: layout, budgets and what the measurement at load may cost.

Owns `ForestConfig`. Knows nothing of samples, models or torch.
"""

from __future__ import annotations

from typing import Literal

from pydantic import Field

from turnwise.settings import Settings

Layout = Literal["packed", "padded", "flat"]
"""Tries end to end, tries padded to one width under a mask, or rows one by one, padded."""


class ForestConfig(Settings):
    """How training rows are laid out and how much memory one micro-batch may take.

    Example:
        >>> ForestConfig(layout="flat").token_budget
        8192
    """

    layout: Literal["auto", "tree", "flat"] = "auto"
    """`auto` measures at load whether trees give the numbers of flat rows; `tree` insists on it."""
    token_budget: int = Field(default=8192, ge=1)
    """Most tokens of one micro-batch, padding included."""
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
