"""The prefix cache: keys and values of prompts, kept until the iteration ends.

Provides a radix tree of tokens and its memory. Every distinct token after a distinct prefix has one
entry; sequences with different media share none. A store belongs to one policy and version.

Shapes: E entries, T tokens, H key-value heads, D width of a head.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass, field

import numpy as np
import torch
from torch import Tensor

from turnwise.engines.base import PromptKey
from turnwise.engines.local.cache import SlotLayer, position_bytes
from turnwise.types import IntArray, MediaKey

FIRST_ENTRIES = 1024
Tokens = tuple[int, ...]


@dataclass(kw_only=True, slots=True)
class _Edge:
    """A run of tokens, their entries from `first` on, and the runs that follow."""

    tokens: Tokens
    first: int
    next: dict[int, _Edge] = field(default_factory=dict)

    def split(self, length: int) -> None:
        """Make the first `length` tokens a run of their own."""
        rest = _Edge(tokens=self.tokens[length:], first=self.first + length, next=self.next)
        self.tokens, self.next = self.tokens[:length], {rest.tokens[0]: rest}


class PrefixStore:
    """Which beginnings are known, and their keys and values, layer by layer.

    Example:
        >>> store = PrefixStore(0)
        >>> store.match(PromptKey((), (5, 6, 7))).tolist()
        []
    """

    def __init__(self, budget_bytes: int) -> None:
        self._budget = budget_bytes
        self._roots: dict[MediaKey, _Edge] = {}
        self._count = 0
        self._memory: list[tuple[Tensor, Tensor]] = []
        self._full = False

    @property
    def enabled(self) -> bool:
        """Whether anything may be remembered."""
        return self._budget > 0

    def __len__(self) -> int:
        """Return the number of entries."""
        return self._count

    def match(self, sequence: PromptKey) -> IntArray:
        """Return the entries of the longest known beginning of a sequence, [T]."""
        known = [np.zeros(0, dtype=np.int64)]
        tokens, edge, at = sequence.ids, self._root(sequence.media), 0
        while at < len(tokens) and tokens[at] in edge.next:
            edge = edge.next[tokens[at]]
            common = common_length(edge.tokens, tokens[at : at + len(edge.tokens)])
            known.append(np.arange(edge.first, edge.first + common))
            at += common
            if common < len(edge.tokens):
                break
        return np.concatenate(known)

    def load(
        self, layers: Sequence[SlotLayer], entries: Tensor, rows: Tensor, positions: Tensor
    ) -> None:
        """Copy entries [T] to positions [T] of rows [T]."""
        for layer, (keys, values) in zip(layers, self._memory, strict=True):
            assert layer.keys is not None and layer.values is not None
            layer.keys[rows, :, positions] = keys[entries]
            layer.values[rows, :, positions] = values[entries]

    def save(self, layers: Sequence[SlotLayer], kept: Sequence[tuple[PromptKey, int, int]]) -> None:
        """Remember sequences, if the budget allows it.

        Args:
            layers: where their keys and values are.
            kept: each sequence; the row that holds them; and how many tokens came before
                the row's first. What is new of a sequence must be in its row.
        """
        if not self.enabled or not layers or self._full:
            return
        entries, rows, positions = [], [], []
        for sequence, row, before in kept:
            length = len(sequence.ids)
            if not self._room(layers, self._count + length - len(self.match(sequence))):
                self._full = True
                break
            begin = self._enter(sequence, before)
            if begin is None:
                continue
            count = length - begin
            entries.append(np.arange(self._count - count, self._count))
            rows.append(np.full(count, row))
            positions.append(np.arange(begin - before, length - before))
        if not entries:
            return
        all_three = np.stack([np.concatenate(part) for part in (entries, rows, positions)])
        entry, at_row, position = torch.from_numpy(all_three).to(self._memory[0][0].device)
        for layer, (keys, values) in zip(layers, self._memory, strict=True):
            assert layer.keys is not None and layer.values is not None
            keys[entry] = layer.keys[at_row, :, position]
            values[entry] = layer.values[at_row, :, position]

    def clear(self) -> None:
        """Forget everything and give the memory back."""
        self._roots.clear()
        self._count = 0
        self._memory.clear()
        self._full = False

    def make_room(self, coming: Sequence[PromptKey]) -> None:
        """If something did not fit in, forget what none of the `coming` sequences begins with.

        Where they begin with most of it, all stays, and nothing new fits in: to forget what is in
        use would be to compute it again. Called only when no matched entries wait to be loaded.
        """
        if not self._full:
            return
        if not self._count:  # what did not fit in would not fit into an empty store
            self._full = False
            return
        known = [self.match(sequence) for sequence in coming]
        used = len(np.unique(np.concatenate(known))) if known else 0
        if 2 * used > self._count:
            return
        self._roots, self._count, self._full = {}, 0, False
        kept = [np.zeros(0, dtype=np.int64)]
        for sequence, entries in zip(coming, known, strict=True):
            begin = self._enter(PromptKey(sequence.media, sequence.ids[: len(entries)]), 0)
            if begin is not None:
                kept.append(entries[begin:])
        where = torch.from_numpy(np.concatenate(kept)).to(self._memory[0][0].device)
        for pair in self._memory:
            for tensor in pair:
                tensor[: len(where)] = tensor[where]

    def _root(self, media: MediaKey) -> _Edge:
        """Return what sequences with these media begin at."""
        if media not in self._roots:
            self._roots[media] = _Edge(tokens=(), first=0)
        return self._roots[media]

    def _enter(self, sequence: PromptKey, least: int) -> int | None:
        """Add a sequence of which at least `least` tokens should be known.

        Returns:
            From which token on it is new; None if nothing of it is, or if too little is known.
        """
        tokens, edge, at = sequence.ids, self._root(sequence.media), 0
        while at < len(tokens) and tokens[at] in edge.next:
            child = edge.next[tokens[at]]
            common = common_length(child.tokens, tokens[at : at + len(child.tokens)])
            at += common
            if common < len(child.tokens):
                if at < max(least, 1) or at == len(tokens):
                    return None
                child.split(common)
            edge = child
        if at < least or at == len(tokens):
            return None
        edge.next[tokens[at]] = _Edge(tokens=tokens[at:], first=self._count)
        self._count += len(tokens) - at
        return at

    def _room(self, layers: Sequence[SlotLayer], wanted: int) -> bool:
        """Make room for `wanted` entries; False if the budget does not allow it."""
        have = len(self._memory[0][0]) if self._memory else 0
        if wanted <= have:
            return True
        each = position_bytes(layers)
        if wanted * each > self._budget:
            return False
        room = min(max(wanted, 2 * have, FIRST_ENTRIES), self._budget // each)
        grown: list[tuple[Tensor, Tensor]] = []
        for number, layer in enumerate(layers):
            assert layer.keys is not None and layer.values is not None
            pair = [t.new_empty(room, t.shape[1], t.shape[3]) for t in (layer.keys, layer.values)]
            if self._memory:
                for new, old in zip(pair, self._memory[number], strict=True):
                    new[: self._count] = old[: self._count]
            grown.append((pair[0], pair[1]))
        self._memory = grown
        return True


def shared_length(one: PromptKey, other: PromptKey) -> int:
    """Return how many tokens two prompts share at their beginning; none with other media."""
    return common_length(one.ids, other.ids) if one.media == other.media else 0


def common_length(one: Sequence[int], other: Sequence[int]) -> int:
    """Return how many tokens two sequences share at their beginning.

    Example:
        >>> common_length((5, 6, 7), (5, 6, 8, 9))
        2
    """
    least, most = 0, min(len(one), len(other))
    while least < most:  # slices compare at the speed of memory
        middle = (least + most + 1) // 2
        if one[least:middle] == other[least:middle]:
            least = middle
        else:
            most = middle - 1
    return least
