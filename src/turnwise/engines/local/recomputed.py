"""The rows that one model generates, computed anew for every token.

Provides `RecomputedRows`, which supports any causal decoder.

Shapes: N rows, L longest sequence, W tokens after which logits are wanted, V vocabulary.
"""

from __future__ import annotations

from collections.abc import Sequence

import numpy as np
import torch
from torch import Tensor

from turnwise.engines.base import PromptKey
from turnwise.engines.local.forward import HeadAt
from turnwise.engines.local.model_runner import batches, padded
from turnwise.engines.local.row_store import Ids, NewTokens
from turnwise.kernels.wrapped import Model, base_of
from turnwise.types import IntArray


class RecomputedRows:
    """Rows without a cache: every pass computes every row from its first token on."""

    def __init__(self, model: Model) -> None:
        self.count = self.prefilled = self.decoded = self.calls = 0
        self._device = base_of(model).device
        self._head = HeadAt(model)
        self._tokens: list[list[int]] = []

    copied = 0
    """Nothing is kept, so nothing is moved."""

    def reset_counts(self) -> None:
        """Begin to count anew (see `RowStore`)."""
        self.prefilled = self.decoded = self.calls = 0

    def prefill(self, prompts: Sequence[PromptKey]) -> tuple[list[int], list[Ids]]:
        """Add rows, of which nothing is computed yet (see `RowStore`)."""
        self._tokens += [[] for _ in prompts]
        self.count += len(prompts)
        return list(range(len(prompts))), [prompt.ids for prompt in prompts]

    def decode(self, new: NewTokens) -> Tensor:
        """Append tokens to every row (see `RowStore`)."""
        ends = np.cumsum(new.sizes)
        for row, part in zip(self._tokens, np.split(new.tokens, ends[:-1]), strict=True):
            row.extend(part.tolist())
        self.prefilled += new.prompt_tokens
        self.decoded += len(new.tokens) - new.prompt_tokens
        parts = batches([(len(row), len(row), i) for i, row in enumerate(self._tokens)])
        found: list[Tensor | None] = [None] * self.count
        for batch in parts:
            wanted = new.wanted[batch]
            logits = self._forward([self._tokens[i] for i in batch], wanted)
            for row, part in zip(batch, logits.split(wanted.tolist()), strict=True):
                found[row] = part
        return torch.cat([part for part in found if part is not None])

    def rearrange(self, source: IntArray, target: IntArray, lengths: IntArray) -> None:
        """Copy rows to their new places (see `RowStore`)."""
        copies = [list(self._tokens[row]) for row in source]
        self._tokens += [[] for _ in range(len(lengths) - len(self._tokens))]
        for row, tokens in zip(target.tolist(), copies, strict=True):
            self._tokens[row] = tokens
        self.count = len(lengths)
        self._tokens = [
            row[:length]
            for row, length in zip(self._tokens[: self.count], lengths.tolist(), strict=True)
        ]

    def remember(self, ended: Sequence[tuple[int, PromptKey, Ids]]) -> None:
        """Do nothing: nothing is remembered."""

    def clean(self) -> None:
        """Do nothing: nothing is kept."""

    def forget(self) -> None:
        """Do nothing: nothing is remembered."""

    def _forward(self, rows: list[list[int]], wanted: IntArray) -> Tensor:
        """Return the logits after the last `wanted` tokens of rows, [W, V].

        Padding is to the right of the rows.
        """
        self.calls += 1
        tokens_NL = torch.from_numpy(padded(rows)).to(self._device)
        lengths = np.array([len(row) for row in rows])
        places = np.arange(int(wanted.sum())) + np.repeat(lengths - np.cumsum(wanted), wanted)
        at = np.stack([np.repeat(np.arange(len(rows)), wanted), places])
        where = torch.from_numpy(at).to(self._device)
        return self._head((where[0], where[1]), input_ids=tokens_NL, use_cache=False)
