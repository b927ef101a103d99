"""Prompts remembered for an iteration: a trie of tokens whose keys and values are kept.

Owns the trie and its memory. Every distinct token after a distinct beginning has one entry. One
store belongs to one policy and version, and is dropped with it. Knows nothing of models, rows being
written or requests.

Shapes: E entries, T tokens, H key-value heads, D width of a head.
"""

from __future__ import annotations

from collections.abc import Sequence

import torch
from torch import Tensor

from turnwise.engines.cache import SlotLayer

ROOT = -1
FIRST_ENTRIES = 1024


class PrefixStore:
    """Which beginnings are known, and their keys and values, layer by layer.

    Example:
        >>> store = PrefixStore(0)
        >>> store.match((5, 6, 7))
        []
    """

    def __init__(self, budget_bytes: int) -> None:
        self._budget = budget_bytes
        self._children: dict[tuple[int, int], int] = {}
        self._memory: list[tuple[Tensor, Tensor]] = []
        self._full = False

    @property
    def enabled(self) -> bool:
        """Whether anything may be remembered."""
        return self._budget > 0

    def __len__(self) -> int:
        return len(self._children)

    def match(self, tokens: Sequence[int]) -> list[int]:
        """Return the entries of the longest known beginning of `tokens`."""
        entries: list[int] = []
        parent = ROOT
        for token in tokens:
            child = self._children.get((parent, token))
            if child is None:
                break
            entries.append(child)
            parent = child
        return entries

    def load(
        self, layers: Sequence[SlotLayer], entries: Tensor, rows: Tensor, positions: Tensor
    ) -> None:
        """Copy entries [T] to positions [T] of rows [T]."""
        for layer, (keys, values) in zip(layers, self._memory, strict=True):
            assert layer.keys is not None and layer.values is not None
            layer.keys[rows, :, positions] = keys[entries]
            layer.values[rows, :, positions] = values[entries]

    def save(
        self, layers: Sequence[SlotLayer], prompts: Sequence[tuple[Sequence[int], int]]
    ) -> None:
        """Remember prompts, given as (tokens, row that holds them), if the budget allows it."""
        if not self.enabled or not layers:
            return
        entries, rows, positions = self._enter(prompts)
        if not entries:
            return
        if not self._reserve(layers, len(self._children)):
            for _ in entries:
                self._children.popitem()
            self._full = True
            return
        device = self._memory[0][0].device
        entry, row, position = torch.tensor([entries, rows, positions], device=device)
        for layer, (keys, values) in zip(layers, self._memory, strict=True):
            assert layer.keys is not None and layer.values is not None
            keys[entry] = layer.keys[row, :, position]
            values[entry] = layer.values[row, :, position]

    def clear(self) -> None:
        """Forget everything and give the memory back."""
        self._children.clear()
        self._memory.clear()
        self._full = False

    def make_room(self) -> None:
        """Forget everything if something did not fit in since the last time.

        Called only when no matched entries are waiting to be loaded.
        """
        if self._full:
            self.clear()

    def _enter(
        self, prompts: Sequence[tuple[Sequence[int], int]]
    ) -> tuple[list[int], list[int], list[int]]:
        """Make entries for what is new; return them with the row and position of each."""
        entries: list[int] = []
        rows: list[int] = []
        positions: list[int] = []
        for tokens, row in prompts:
            parent = ROOT
            for position, token in enumerate(tokens):
                child = self._children.get((parent, token))
                if child is None:
                    child = len(self._children)
                    self._children[parent, token] = child
                    entries.append(child)
                    rows.append(row)
                    positions.append(position)
                parent = child
        return entries, rows, positions

    def _reserve(self, layers: Sequence[SlotLayer], wanted: int) -> bool:
        """Make room for `wanted` entries; False if the budget does not allow it."""
        kept = [tensor for layer in layers for tensor in (layer.keys, layer.values)]
        each = sum(t.shape[1] * t.shape[3] * t.element_size() for t in kept if t is not None)
        if wanted * each > self._budget:
            return False
        have = len(self._memory[0][0]) if self._memory else 0
        if wanted <= have:
            return True
        room = min(max(wanted, 2 * have, FIRST_ENTRIES), self._budget // each)
        grown: list[tuple[Tensor, Tensor]] = []
        for number, layer in enumerate(layers):
            assert layer.keys is not None and layer.values is not None
            pair = [t.new_zeros(room, t.shape[1], t.shape[3]) for t in (layer.keys, layer.values)]
            if self._memory:
                for new, old in zip(pair, self._memory[number], strict=True):
                    new[:have] = old
            grown.append((pair[0], pair[1]))
        self._memory = grown
        return True
