"""The rows that one model generates, with their keys and values kept.

Provides `CachedRows`, from prompts to the logits of the next token.

Shapes: N rows, T new tokens, W of them after which logits are wanted, Q new tokens of a prompt, L
longest sequence, V vocabulary.
"""

from __future__ import annotations

from collections.abc import Sequence

import numpy as np
import torch
from torch import Tensor

from turnwise.engines.base import PromptKey
from turnwise.engines.local.cache import SlotCache
from turnwise.engines.local.forward import HeadAt, Pass
from turnwise.engines.local.masks import MaskRule
from turnwise.engines.local.prefix_cache import PrefixStore, shared_length
from turnwise.engines.local.row_store import Ids, NewTokens
from turnwise.kernels import DecodePlan
from turnwise.kernels.cache_name import CACHE
from turnwise.kernels.wrapped import Model, base_of
from turnwise.types import IntArray

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
SHORT = 32
"""Prompt tokens that are computed with what the rows write, where no more of them are unknown."""


class CachedRows:
    """Rows whose keys and values are kept: each prompt once, and what its rows wrote after it."""

    def __init__(self, model: Model, rule: MaskRule, prefix_bytes: int, *, shift: int = 0) -> None:
        """Begin without rows; their first tokens have position `shift`."""
        self.count = self.prefilled = self.decoded = self.calls = 0
        self._model, self._rule, self._shift = model, rule, shift
        self._device = base_of(model).device
        self._head = HeadAt(model)
        self._prompts, self._own = SlotCache(), SlotCache()
        self._store = PrefixStore(prefix_bytes)
        self._prompt_lengths = np.zeros(0, dtype=np.int64)  # of each prompt slot in use
        self._prompt_of = np.zeros(0, dtype=np.int64)  # the prompt slot of each row
        self._wrote = np.zeros(0, dtype=np.int64)  # tokens that each row has after its prompt
        self._fresh: list[tuple[PromptKey, int, int]] = []  # as `PrefixStore.save` takes them
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

    def prefill(self, prompts: Sequence[PromptKey]) -> tuple[list[int], list[Ids]]:
        """Add rows; what is known of a prompt is copied (see `RowStore`)."""
        order: list[int] = []
        rests: list[Ids] = []
        self._store.make_room(prompts)
        self._drop_prompts()
        waiting = self._waiting(prompts)
        for wave in (sorted(set(range(len(prompts))) - waiting), sorted(waiting)):
            begun = {i: PromptKey(prompts[i].media, prompts[i].ids[:-1]) for i in wave}
            known = {i: self._store.match(begun[i]) for i in wave}
            # What others wait for must be computed now.
            short = 0 if waiting and not order else SHORT
            now = [i for i in wave if len(prompts[i].ids) - len(known[i]) > max(short, 1)]
            later = [i for i in wave if i not in set(now)]
            if later:
                order += later
                self._begin([prompts[i] for i in later], [known[i] for i in later])
                rests += [prompts[i].ids[len(known[i]) :] for i in later]
            lengths = {i: len(begun[i].ids) for i in now}
            sizes = [(lengths[i] - len(known[i]), lengths[i], i) for i in now]
            for batch in batches(sizes):
                order += batch
                self._fill([begun[i] for i in batch], [known[i] for i in batch])
                rests += [prompts[i].ids[-1:] for i in batch]
        return order, rests

    def decode(self, new: NewTokens) -> Tensor:
        """Append tokens to every row (see `RowStore`)."""
        self.calls += 1
        return self.prepare(new).run()

    def prepare(self, new: NewTokens) -> Pass:
        """Append tokens to every row; return the pass that must be run before anything else."""
        length = int((self._wrote + new.sizes).max())
        self._own.reserve(self.count, length)
        plan = DecodePlan.of(
            self._kept,
            self._prompt_of,
            self._prompt_lengths,
            self._wrote,
            self._device,
            sizes=None if new.single else new.sizes,
        )
        rows = np.repeat(np.arange(self.count), new.sizes)
        begins = np.repeat(np.cumsum(new.sizes) - new.sizes, new.sizes)
        where = self._wrote[rows] + np.arange(len(rows)) - begins
        every = torch.from_numpy(np.stack([new.tokens, where, rows])).to(self._device)
        self._own.aim(0, every[1][:, None], length, every[2])
        self._written = True
        self._wrote = self._wrote + new.sizes
        self.prefilled += new.prompt_tokens
        self.decoded += len(new.tokens) - new.prompt_tokens
        places = new.places
        return Pass(
            head=self._head,
            rule=self._rule,
            input_ids=every[0][:, None],
            positions=plan.positions[:, None] + self._shift,
            plan=plan,
            cache=self._own,
            wanted=None if places is None else torch.from_numpy(places).to(self._device),
        )

    def rearrange(self, source: IntArray, target: IntArray, lengths: IntArray) -> None:
        """Copy rows to their new places (see `RowStore`)."""
        count = len(lengths)
        prompt_of = np.pad(self._prompt_of, (0, max(0, count - len(self._prompt_of))))
        prompt_of[target] = prompt_of[source]
        begun = lengths[target] > 0  # the others hold nothing yet, perhaps not even memory
        if begun.any():
            longest = int(lengths[target].max())
            self._own.reserve(count, longest)
            where = torch.from_numpy(np.stack([source[begun], target[begun]])).to(self._device)
            self._own.copy(where[0], where[1], longest)
        self.count, self._prompt_of, self._wrote = count, prompt_of[:count], lengths

    def remember(self, ended: Sequence[tuple[int, PromptKey, Ids]]) -> None:
        """Keep what rows wrote, for prompts that will begin so (see `RowStore`)."""
        lengths = self._prompt_lengths[self._prompt_of]
        kept = [
            (PromptKey(prompt.media, prompt.ids + wrote[:-1]), row, int(lengths[row]))
            for row, prompt, wrote in ended
        ]
        fresh, self._fresh = self._fresh, []
        if fresh or kept:
            self._remember(self._own, fresh + kept)

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
        self._fresh = []
        if self._written and not self.count:
            with torch.inference_mode():  # what was made in this mode can only be written in it
                for cache in (self._prompts, self._own):
                    cache.wipe(keep_bytes=KEPT_BYTES if self._device.type == "cpu" else 0)
            self._prompt_lengths = self._prompt_lengths[:0]
            self._written = False

    def _kept(self, layer: int, like: Tensor) -> tuple[Tensor, Tensor]:
        """Return a layer's keys and values of all prompts in use."""
        lengths = self._prompt_lengths
        return self._prompts.seen(layer, len(lengths), int(lengths.max()), like)

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

    def _begin(self, prompts: list[PromptKey], known: list[IntArray]) -> None:
        """Add a row for each prompt, of which what is known is in a slot and nothing is computed.

        Prompts of which the same is known share a slot.
        """
        slots: dict[PromptKey, int] = {}
        first = len(self._prompt_lengths)
        begun = [
            PromptKey(prompt.media, prompt.ids[: len(entries)])
            for prompt, entries in zip(prompts, known, strict=True)
        ]
        for prompt in begun:
            slots.setdefault(prompt, first + len(slots))
        entries = dict(zip(begun, known, strict=True))
        lengths = [len(prompt.ids) for prompt in slots]
        if any(lengths):
            self._prompts.reserve(first + len(slots), max(lengths))
            self._load(first, [entries[prompt] for prompt in slots])
        rows = range(self.count, self.count + len(prompts))
        self._fresh += [
            (prompt, row, len(part.ids))
            for prompt, part, row in zip(prompts, begun, rows, strict=True)
        ]
        self._add([slots[prompt] for prompt in begun], lengths)

    def _fill(self, prompts: list[PromptKey], known: list[IntArray]) -> None:
        """Compute prompts of similar unknown lengths, each in a slot, and add a row for each."""
        first, rows = len(self._prompt_lengths), len(prompts)
        longest = max(len(prompt.ids) for prompt in prompts)
        self._prompts.reserve(first + rows, longest + 1)
        self._load(first, known)
        starts = np.array([len(entries) for entries in known])
        rests = [prompt.ids[start:] for prompt, start in zip(prompts, starts, strict=True)]
        self.prefilled += sum(map(len, rests))
        width = max(map(len, rests))
        for begin in range(0, width, PIECE):
            piece = padded([rest[begin : begin + PIECE] for rest in rests])
            # Padding is written behind the longest prompt, where it is never seen.
            positions = np.minimum(starts[:, None] + begin + np.arange(piece.shape[1]), longest)
            self._forward(first, piece, positions, longest)
        self._add(range(first, first + rows), [len(prompt.ids) for prompt in prompts])
        self._remember(
            self._prompts, [(prompt, first + row, 0) for row, prompt in enumerate(prompts)]
        )

    def _add(self, slots: Sequence[int], lengths: Sequence[int]) -> None:
        """Add a row for each of `slots`; `lengths` are those of the new prompt slots."""
        self.count += len(slots)
        self._prompt_of = np.append(self._prompt_of, np.array(slots, dtype=np.int64))
        self._wrote = np.append(self._wrote, np.zeros(len(slots), dtype=np.int64))
        self._prompt_lengths = np.append(self._prompt_lengths, np.array(lengths, dtype=np.int64))

    def _load(self, first: int, known: list[IntArray]) -> None:
        """Copy what is remembered to the prompt slots from `first` on."""
        lengths = [len(entries) for entries in known]
        if not any(lengths):
            return
        slots = np.repeat(np.arange(first, first + len(known)), lengths)
        positions = np.concatenate([np.arange(length) for length in lengths])
        where = torch.from_numpy(np.stack([np.concatenate(known), slots, positions]))
        self._prompts.take_shapes(self._own)
        self._store.load(self._prompts.slot_layers, *where.to(self._device))
        self._moved += sum(lengths) * self._prompts.position_bytes

    def _remember(self, cache: SlotCache, kept: Sequence[tuple[PromptKey, int, int]]) -> None:
        """Save what slots hold, as far as the budget allows (see `PrefixStore.save`)."""
        before = len(self._store)
        self._store.save(cache.slot_layers, kept)
        self._moved += (len(self._store) - before) * cache.position_bytes

    def _forward(
        self, first: int, tokens_NQ: IntArray, positions_NQ: IntArray, longest: int
    ) -> None:
        """Run the model on new tokens of the prompts from `first` on."""
        length = min(int(positions_NQ.max()) + 1, longest)
        self._prompts.reserve(first + len(tokens_NQ), length)
        both = torch.from_numpy(np.stack([tokens_NQ, positions_NQ])).to(self._device)
        self._prompts.aim(first, both[1], length)
        self.calls += 1
        self._written = True
        self._head(
            None,
            input_ids=both[0],
            position_ids=both[1].clamp(max=length - 1) + self._shift,
            attention_mask=self._rule.masks(both[1], length),
            use_cache=True,
            **{CACHE: self._prompts},
        )


def batches(sized: list[tuple[int, int, int]]) -> list[list[int]]:
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


def padded(rows: Sequence[Sequence[int]]) -> IntArray:
    """Return rows as one array, with token 0 to the right of the shorter ones, [N, L]."""
    array = np.zeros((len(rows), max(map(len, rows))), dtype=np.int64)
    for line, row in zip(array, rows, strict=True):
        line[: len(row)] = row
    return array
