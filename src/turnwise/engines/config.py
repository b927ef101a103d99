"""The options of the local engine, `EngineConfig`. Imports no torch."""

from __future__ import annotations

from typing import Literal

from pydantic import Field

from turnwise.settings import Settings

CacheChoice = Literal["auto", "slots", "none"]


class EngineConfig(Settings):
    """The options of the engine that samples completions on this machine.

    Example:
        >>> EngineConfig(max_rows=64).cache
        'auto'
    """

    kind: Literal["local"] = "local"
    """Which engine samples."""
    max_rows: int = Field(default=512, ge=1)
    """Most completions that one policy writes at once; the others wait."""
    cache: CacheChoice = "auto"
    """Whether keys and values are kept: `auto` measures at load if that gives the model's own
    numbers, `slots` insists on it, `none` computes every sequence anew for every token."""
    share_rows: bool = True
    """Whether completions of one prompt that have said the same so far are computed once."""
    drafts: bool = True
    """Whether tokens that a policy will probably write are computed ahead, in one pass with those
    before them. Completions stay the same. Where drafts are too often wrong, none are made."""
    prefix_megabytes: int = Field(default=1024, ge=0)
    """Most memory that a policy may use to remember prompts and what was said after them, until the
    iteration ends; 0 for none. It is taken as it is needed."""
    probe_tokens: int = Field(default=1024, ge=64)
    """Longest row that the measurement at load computes; longer sliding windows are not crossed."""
    deterministic: bool = True
    """Whether equal runs are equal to the bit: requests are admitted in the order of their turns
    and prompts are forgotten when an iteration ends. Otherwise requests are admitted as they come
    and the prompts of a policy are remembered until it gets new weights."""
