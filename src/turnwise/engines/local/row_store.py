"""The interface of the rows that one model generates.

Provides `RowStore`, which `CachedRows` and `RecomputedRows` implement, and `NewTokens`.

Shapes: N rows, T new tokens, W of them after which logits are wanted, V vocabulary.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from typing import Protocol, TypeAlias

import numpy as np
from torch import Tensor

from turnwise.engines.base import PromptKey
from turnwise.types import IntArray

Ids: TypeAlias = tuple[int, ...]


class RowStore(Protocol):
    """The rows of one policy; `count` of them are being written, at 0 to count - 1.

    `prefilled` counts prompt tokens computed, `decoded` tokens computed after them, `calls` forward
    passes, and `copied` bytes of keys and values that were moved or remembered.
    """

    count: int
    prefilled: int
    decoded: int
    calls: int

    @property
    def copied(self) -> int:
        """Bytes of keys and values moved since the last `reset_counts`."""
        ...

    def reset_counts(self) -> None:
        """Begin to count anew."""
        ...

    def prefill(self, prompts: Sequence[PromptKey]) -> tuple[list[int], list[Ids]]:
        """Add a row for every prompt, after the others, and compute what is long of the prompts.

        Returns:
            The order in which they were added, as indices of `prompts`, and in that order the end
            of each prompt, one token or more, with which the row's next pass must begin.
        """
        ...

    def decode(self, new: NewTokens) -> Tensor:
        """Append tokens to every row; return the logits that are wanted, [W, V]."""
        ...

    def rearrange(self, source: IntArray, target: IntArray, lengths: IntArray) -> None:
        """Copy rows `source` to `target`, all at once, and keep the first len(lengths).

        Of each row kept, the first `lengths` of the tokens that were appended to it stay, [N].
        """
        ...

    def remember(self, ended: Sequence[tuple[int, PromptKey, Ids]]) -> None:
        """Keep what rows wrote, where that saves work: their prompts will be gone on with.

        Called after every pass, before rows are rearranged.

        Args:
            ended: row, its prompt, and what was written after it, the last token included.
        """
        ...

    def clean(self) -> None:
        """Overwrite what rows that are gone have left that is not finite."""
        ...

    def forget(self) -> None:
        """Drop everything that is remembered of rows that are gone, and all spare memory."""
        ...


@dataclass(frozen=True, kw_only=True, slots=True, eq=False)
class NewTokens:
    """What a pass appends to N rows: `tokens` [T], row by row, `sizes` [N] of them to each.

    `prompt` [N] of a row's tokens are its prompt's. Logits are wanted after the last `wanted` [N]
    tokens of each row; W in all.
    """

    tokens: IntArray
    sizes: IntArray
    wanted: IntArray
    prompt: IntArray

    @property
    def single(self) -> bool:
        """Whether there is one token of each row."""
        return len(self.tokens) == len(self.sizes)

    @property
    def places(self) -> IntArray | None:
        """The tokens after which logits are wanted, [W]; None if they are all wanted."""
        if len(self.tokens) == int(self.wanted.sum()):
            return None
        ends = np.repeat(np.cumsum(self.sizes), self.wanted)
        left = np.repeat(np.cumsum(self.wanted), self.wanted) - np.arange(int(self.wanted.sum()))
        return ends - left

    @property
    def prompt_tokens(self) -> int:
        """The number of tokens that belong to prompts."""
        return int(self.prompt.sum())
