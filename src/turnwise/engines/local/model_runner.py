"""The rows that one model generates: from prompts to the logits of the next token.

Provides two forms of the forward passes behind one interface: `CachedRows` keeps keys and values,
`RecomputedRows` computes whole sequences for every token and supports any causal decoder.

Shapes: N rows, Q new tokens per row, L longest sequence, V vocabulary.
"""

from __future__ import annotations

from collections.abc import Sequence
from typing import Protocol, TypeAlias

import numpy as np
import torch
from torch import Tensor

from turnwise.engines.base import PromptKey
from turnwise.engines.local.cache import SlotCache
from turnwise.engines.local.forward import HeadAtLast, Pass
from turnwise.engines.local.masks import MaskRule
from turnwise.engines.local.prefix_cache import PrefixStore, shared_length
from turnwise.kernels import DecodePlan
from turnwise.kernels.wrapped import Model, base_of
from turnwise.types import IntArray

Ids: TypeAlias = tuple[int, ...]
PIECE = 512
"""Longest part of a prompt that is computed at once."""
AREA = 1 << 22
"""Most query-key pairs of one pass over prompts."""
WORTH_WAITING = 256
"""Tokens that must be saved before prompts wait for others that begin like them."""
GAPS = 8
"""One gap in so many prompts is left open."""
KEPT_BYTES = 256 << 20
"""Memory of slots that is kept from one iteration to the next on a CPU."""
SHARED = 16
"""Tokens that two prompts must share for one to wait for the other."""


class RowStore(Protocol):
    """The rows of one policy; `count` of them are being written, at 0 to count - 1.

    `prefilled` counts prompt tokens computed, `decoded` appended tokens, `calls` forward passes,
    and `copied` bytes of keys and values that were moved or remembered.
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

    def prefill(self, prompts: Sequence[PromptKey]) -> tuple[list[int], Tensor]:
        """Add a row for every prompt, after the others.

        Returns:
            The order in which they were added, as indices of `prompts`, and the logits of the token
            after each, in that order, [N, V].
        """
        ...

    def decode(self, tokens: IntArray) -> Tensor:
        """Append one token to every row; return the logits of the token after, [N, V]."""
        ...

    def rearrange(self, source: IntArray, target: IntArray, count: int) -> None:
        """Copy rows `source` to `target`, all at once, and keep the first `count`."""
        ...

    def remember(self, ended: Sequence[tuple[int, PromptKey, Ids]]) -> None:
        """Keep what rows wrote, where that saves work: their prompts will be gone on with.

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


class CachedRows:
    """Rows whose keys and values are kept: each prompt once, and what its rows wrote after it."""

    def __init__(self, model: Model, rule: MaskRule, prefix_bytes: int, *, shift: int = 0) -> None:
        """Begin without rows; their first tokens have position `shift`."""
        self.count = self.prefilled = self.decoded = self.calls = 0
        self._model, self._rule, self._shift = model, rule, shift
        self._device = base_of(model).device
        self._head = HeadAtLast(model)
        self._prompts, self._own = SlotCache(), SlotCache()
        self._store = PrefixStore(prefix_bytes)
        self._prompt_lengths = np.zeros(0, dtype=np.int64)  # of each prompt slot in use
        self._prompt_of = np.zeros(0, dtype=np.int64)  # the prompt slot of each row
        self._wrote = np.zeros(0, dtype=np.int64)  # tokens that each row has after its prompt
        self._written = False
        self._moved = 0  # bytes between prompts and what is remembered

    @property
    def copied(self) -> int:
        """Bytes of keys and values moved (see `RowStore`)."""
        return self._moved + self._prompts.copied + self._own.copied

    def reset_counts(self) -> None:
        """Begin to count anew (see `RowStore`)."""
        self.prefilled = self.decoded = self.calls = self._moved = 0
        self._prompts.copied = self._own.copied = 0

    def prefill(self, prompts: Sequence[PromptKey]) -> tuple[list[int], Tensor]:
        """Add rows; what is known of a prompt is copied, the rest computed (see `RowStore`)."""
        order: list[int] = []
        logits: list[Tensor] = []
        self._store.make_room(prompts)
        self._drop_prompts()
        waiting = self._waiting(prompts)
        for wave in (sorted(set(range(len(prompts))) - waiting), sorted(waiting)):
            begun = {i: PromptKey(prompts[i].media, prompts[i].ids[:-1]) for i in wave}
            known = {i: self._store.match(begun[i]) for i in wave}
            lengths = {i: len(prompts[i].ids) for i in wave}
            sizes = [(lengths[i] - len(known[i]), lengths[i], i) for i in wave]
            for batch in _batches(sizes):
                order += batch
                found = self._fill([prompts[i] for i in batch], [known[i] for i in batch])
                logits.append(found)
        return order, torch.cat(logits)

    def decode(self, tokens: IntArray) -> Tensor:
        """Append one token to every row (see `RowStore`)."""
        self.calls += 1
        return self.prepare(tokens).run()

    def prepare(self, tokens: IntArray) -> Pass:
        """Append one token to every row; return the pass that must be run before anything else."""
        length = int(self._wrote.max()) + 1
        self._own.reserve(self.count, length)
        plan = DecodePlan.of(
            self._kept, self._prompt_of, self._prompt_lengths, self._wrote, self._device
        )
        both = torch.from_numpy(np.stack([tokens, self._wrote])).to(self._device)
        self._own.aim(0, both[1][:, None], length)
        self._written = True
        self._wrote = self._wrote + 1
        self.decoded += self.count
        return Pass(
            head=self._head,
            rule=self._rule,
            input_ids=both[0][:, None],
            positions=plan.positions[:, None] + self._shift,
            plan=plan,
            cache=self._own,
        )

    def rearrange(self, source: IntArray, target: IntArray, count: int) -> None:
        """Copy rows to their new places (see `RowStore`)."""
        missing = (0, max(0, count - len(self._wrote)))
        prompt_of, wrote = np.pad(self._prompt_of, missing), np.pad(self._wrote, missing)
        begun = wrote[source] > 0  # the others hold nothing yet, perhaps not even memory
        prompt_of[target], wrote[target] = prompt_of[source], wrote[source]
        if begun.any():
            longest = int(wrote[target].max())
            self._own.reserve(count, longest)
            where = torch.from_numpy(np.stack([source[begun], target[begun]])).to(self._device)
            self._own.copy(where[0], where[1], longest)
        self.count, self._prompt_of, self._wrote = count, prompt_of[:count], wrote[:count]

    def remember(self, ended: Sequence[tuple[int, PromptKey, Ids]]) -> None:
        """Keep what rows wrote, for prompts that will begin so (see `RowStore`)."""
        kept = [
            (PromptKey(prompt.media, prompt.ids + wrote[:-1]), row, len(prompt.ids))
            for row, prompt, wrote in ended
        ]
        self._remember(self._own, kept)

    def clean(self) -> None:
        """Overwrite what is not finite: a later row would read it, masked, and 0 x nan is nan."""
        for cache in (self._prompts, self._own):
            for layer in cache.slot_layers:
                layer.clean()

    def forget(self) -> None:
        """Drop remembered prompts, and what is in the slots if no row is being written.

        A trainer needs an accelerator's memory. Of a CPU's, `KEPT_BYTES` stay, because allocating
        them again costs as much as a few passes.
        """
        self._store.clear()
        if self._written and not self.count:
            with torch.inference_mode():  # what was made in this mode can only be written in it
                for cache in (self._prompts, self._own):
                    cache.wipe(keep_bytes=KEPT_BYTES if self._device.type == "cpu" else 0)
            self._prompt_lengths = self._prompt_lengths[:0]
            self._written = False

    def _kept(self, layer: int) -> tuple[Tensor, Tensor]:
        """Return a layer's keys and values of all prompts in use."""
        return self._prompts.seen(layer, len(self._prompt_lengths), int(self._prompt_lengths.max()))

    def _drop_prompts(self) -> None:
        """Close the gaps that prompts without rows leave.

        Every step would read them again; few of them are not worth moving the others.
        """
        live, numbers = np.unique(self._prompt_of, return_inverse=True)
        if GAPS * (len(self._prompt_lengths) - len(live)) <= len(live):
            return
        lengths = self._prompt_lengths[live]
        if len(live):
            where = torch.from_numpy(np.stack([live, np.arange(len(live))])).to(self._device)
            self._prompts.copy(where[0], where[1], int(lengths.max()))
        self._prompt_of, self._prompt_lengths = numbers.astype(np.int64), lengths

    def _waiting(self, prompts: Sequence[PromptKey]) -> set[int]:
        """Return which prompts should wait until others that begin like them are remembered."""
        if not self._store.enabled or len(prompts) < 2:
            return set()
        known = [len(self._store.match(prompt)) for prompt in prompts]
        order = sorted(range(len(prompts)), key=prompts.__getitem__)
        pilot, saved, waiting = order[0], 0, set[int]()
        for index in order[1:]:
            gain = shared_length(prompts[pilot], prompts[index]) - known[index]
            if gain >= SHARED:
                waiting.add(index)
                saved += gain
            else:
                pilot = index
        return waiting if saved >= WORTH_WAITING else set()

    def _fill(self, prompts: list[PromptKey], known: list[IntArray]) -> Tensor:
        """Add prompts of similar unknown lengths and a row for each; return the logits after."""
        first, rows = len(self._prompt_lengths), len(prompts)
        longest = max(len(prompt.ids) for prompt in prompts)
        self._prompts.reserve(first + rows, longest + 1)
        self._load(first, known)
        starts = np.array([len(entries) for entries in known])
        rests = [prompt.ids[start:] for prompt, start in zip(prompts, starts, strict=True)]
        self.prefilled += sum(map(len, rests))
        logits: list[Tensor | None] = [None] * rows
        width = max(map(len, rests))
        for begin in range(0, width, PIECE):
            piece = _padded([rest[begin : begin + PIECE] for rest in rests])
            # Padding is written behind the longest prompt, where it is never seen.
            positions = np.minimum(starts[:, None] + begin + np.arange(piece.shape[1]), longest)
            ends = [min(max(len(rest) - begin, 1), piece.shape[1]) - 1 for rest in rests]
            found = self._forward(first, piece, positions, ends)
            for row, rest in enumerate(rests):
                if begin < len(rest) <= begin + PIECE:
                    logits[row] = found[row]
        self.count += rows
        self._prompt_of = np.append(self._prompt_of, np.arange(first, first + rows))
        self._wrote = np.append(self._wrote, np.zeros(rows, dtype=np.int64))
        self._prompt_lengths = np.append(self._prompt_lengths, [len(p.ids) for p in prompts])
        self._remember(
            self._prompts, [(prompt, first + row, 0) for row, prompt in enumerate(prompts)]
        )
        return torch.stack([found for found in logits if found is not None])

    def _load(self, first: int, known: list[IntArray]) -> None:
        """Copy what is remembered to the prompt slots from `first` on."""
        lengths = [len(entries) for entries in known]
        if not any(lengths):
            return
        slots = np.repeat(np.arange(first, first + len(known)), lengths)
        positions = np.concatenate([np.arange(length) for length in lengths])
        where = torch.from_numpy(np.stack([np.concatenate(known), slots, positions]))
        self._store.load(self._prompts.slot_layers, *where.to(self._device))
        self._moved += sum(lengths) * self._prompts.position_bytes

    def _remember(self, cache: SlotCache, kept: Sequence[tuple[PromptKey, int, int]]) -> None:
        """Save what slots hold, as far as the budget allows (see `PrefixStore.save`)."""
        before = len(self._store)
        self._store.save(cache.slot_layers, kept)
        self._moved += (len(self._store) - before) * cache.position_bytes

    def _forward(
        self, first: int, tokens_NQ: IntArray, positions_NQ: IntArray, ends: list[int]
    ) -> Tensor:
        """Run the model on new tokens of the prompts from `first` on; logits at `ends`, [N, V]."""
        length = int(positions_NQ[np.arange(len(ends)), ends].max()) + 1
        self._prompts.reserve(first + len(tokens_NQ), length)
        both = torch.from_numpy(np.stack([tokens_NQ, positions_NQ])).to(self._device)
        self._prompts.aim(first, both[1], length)
        self.calls += 1
        self._written = True
        return self._head(
            ends,
            input_ids=both[0],
            position_ids=both[1].clamp(max=length - 1) + self._shift,
            attention_mask=self._rule.masks(both[1], length),
            past_key_values=self._prompts,
            use_cache=True,
        )


class RecomputedRows:
    """Rows without a cache: every pass computes every row from its first token on."""

    def __init__(self, model: Model) -> None:
        self.count = self.prefilled = self.decoded = self.calls = 0
        self._device = base_of(model).device
        self._head = HeadAtLast(model)
        self._tokens: list[list[int]] = []

    copied = 0
    """Nothing is kept, so nothing is moved."""

    def reset_counts(self) -> None:
        """Begin to count anew (see `RowStore`)."""
        self.prefilled = self.decoded = self.calls = 0

    def prefill(self, prompts: Sequence[PromptKey]) -> tuple[list[int], Tensor]:
        """Add rows (see `RowStore`)."""
        order: list[int] = []
        logits: list[Tensor] = []
        for batch in _batches([(len(p.ids), len(p.ids), i) for i, p in enumerate(prompts)]):
            order += batch
            logits.append(self._forward([list(prompts[i].ids) for i in batch]))
        self._tokens[self.count :] = [list(prompts[i].ids) for i in order]
        self.count += len(prompts)
        self.prefilled += sum(len(prompt.ids) for prompt in prompts)
        return order, torch.cat(logits)

    def decode(self, tokens: IntArray) -> Tensor:
        """Append one token to every row (see `RowStore`)."""
        for row, token in zip(self._tokens, tokens.tolist(), strict=True):
            row.append(token)
        self.decoded += self.count
        batches = _batches([(len(row), len(row), i) for i, row in enumerate(self._tokens)])
        found = torch.cat([self._forward([self._tokens[i] for i in batch]) for batch in batches])
        places = np.argsort([i for batch in batches for i in batch])
        return found[torch.from_numpy(places).to(self._device)]

    def rearrange(self, source: IntArray, target: IntArray, count: int) -> None:
        """Copy rows to their new places (see `RowStore`)."""
        copies = [list(self._tokens[row]) for row in source]
        self._tokens += [[] for _ in range(count - len(self._tokens))]
        for row, tokens in zip(target.tolist(), copies, strict=True):
            self._tokens[row] = tokens
        del self._tokens[count:]
        self.count = count

    def remember(self, ended: Sequence[tuple[int, PromptKey, Ids]]) -> None:
        """Do nothing: nothing is remembered."""

    def clean(self) -> None:
        """Do nothing: nothing is kept."""

    def forget(self) -> None:
        """Do nothing: nothing is remembered."""

    def _forward(self, rows: list[list[int]]) -> Tensor:
        """Return the logits after whole sequences, [N, V]; padding is to the right of them."""
        self.calls += 1
        tokens_NL = torch.from_numpy(_padded(rows)).to(self._device)
        return self._head([len(row) - 1 for row in rows], input_ids=tokens_NL, use_cache=False)


def _batches(sized: list[tuple[int, int, int]]) -> list[list[int]]:
    """Cut items into batches with little padding and a bounded area of attention.

    Args:
        sized: (tokens to compute, length of the whole sequence, index) of every item.
    """
    batches: list[list[int]] = []
    widest = longest = 0
    for width, length, index in sorted(sized, key=lambda item: (-item[0], item[2])):
        area = (len(batches[-1]) + 1) * min(widest, PIECE) * max(longest, length) if batches else 0
        if batches and widest <= 2 * width + SHARED and area <= AREA:
            batches[-1].append(index)
            longest = max(longest, length)
        else:
            batches.append([index])
            widest, longest = width, length
    return batches


def _padded(rows: Sequence[Sequence[int]]) -> IntArray:
    """Return rows as one array, with token 0 to the right of the shorter ones, [N, L]."""
    array = np.zeros((len(rows), max(map(len, rows))), dtype=np.int64)
    for line, row in zip(array, rows, strict=True):
        line[: len(row)] = row
    return array
