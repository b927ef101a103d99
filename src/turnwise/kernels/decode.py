"""Attention of rows that go on by a few tokens, over shared prompts and over their own tokens.

Provides `DecodePlan`. The keys and values of a prompt are stored once for all of its rows. The
queries of these rows are multiplied with them in one matrix product, without copies.

Shapes: N rows, T new tokens of all rows, row by row; H query heads, K key-value heads of R = H / K
query heads each, D width of a head; G prompts of up to P tokens with up to M new tokens each; Q
most new tokens of a row, S most tokens of a row after its prompt, the new ones included.
"""

from __future__ import annotations

from collections.abc import Callable, Sequence
from dataclasses import dataclass, replace

import numpy as np
import torch
from torch import Tensor, nn

from turnwise.types import IntArray

PromptKV = Callable[[int, Tensor], tuple[Tensor, Tensor]]
"""Maps a layer's index and its rows' keys to the keys and values of the prompts, [G, K, P, D]."""


@dataclass(frozen=True, kw_only=True, slots=True, eq=False)
class Groups:
    """Some groups of new tokens, padded with token 0 to equal size.

    `numbers` are those of the groups, or None for all; `members` [groups x largest] the tokens of
    each, or None where the tokens have that order already.
    """

    count: int
    numbers: Tensor | None
    members: Tensor | None

    def gather(self, values: Tensor) -> Tensor:
        """Return [T, K, R, ...] as one matrix a group, [groups, K, largest x R, ...]."""
        grouped = values if self.members is None else values[self.members]
        return grouped.unflatten(0, (self.count, -1)).transpose(1, 2).flatten(2, 3)

    def of(self, values: Tensor) -> Tensor:
        """Return these groups' part of the values of all groups."""
        return values if self.numbers is None else values[self.numbers]


@dataclass(frozen=True, kw_only=True, slots=True, eq=False)
class Grouping:
    """New tokens in groups, and back: `slots` [T] is the place of each token in all `parts`.

    There are two parts, of large and of small groups, where one would be padding for the most.
    """

    parts: tuple[Groups, ...]
    slots: Tensor | None

    @classmethod
    def of(
        cls, group_of: IntArray, groups: int, device: torch.device, *, split: bool = False
    ) -> Grouping:
        """Return the grouping of tokens that belong to the groups `group_of` [T]."""
        sizes = np.bincount(group_of, minlength=groups)
        order = np.argsort(group_of, kind="stable")
        begins = np.cumsum(sizes) - sizes
        slots = np.empty(len(order), dtype=np.int64)
        parts: list[Groups] = []
        before = 0
        for numbers in _parts(sizes) if split else [np.arange(groups)]:
            count, largest = len(numbers), int(sizes[numbers].max())
            each = sizes[numbers]
            rank = np.arange(int(each.sum())) - np.repeat(np.cumsum(each) - each, each)
            tokens = order[np.repeat(begins[numbers], each) + rank]
            places = np.repeat(np.arange(count), each) * largest + rank
            members = np.zeros(count * largest, dtype=np.int64)
            members[places], slots[tokens] = tokens, before + places
            before += count * largest
            own = None if count == groups else torch.from_numpy(numbers).to(device)
            padded = torch.from_numpy(members).to(device)
            parts.append(Groups(count=count, numbers=own, members=padded))
        in_order = before == len(slots) and bool((slots == np.arange(len(slots))).all())
        if len(parts) == 1 and in_order:
            return cls(parts=(replace(parts[0], members=None),), slots=None)
        return cls(parts=tuple(parts), slots=torch.from_numpy(slots).to(device))

    def scatter(self, grouped: Sequence[Tensor], repeats: int) -> Tensor:
        """Return the parts' [groups, K, largest x R, ...] as [T, K, R, ...]."""
        values = [
            part.unflatten(2, (-1, repeats)).transpose(1, 2).flatten(0, 1) for part in grouped
        ]
        joined = values[0] if len(values) == 1 else torch.cat(values)
        return joined if self.slots is None else joined[self.slots]


def _parts(sizes: IntArray) -> list[IntArray]:
    """Return the numbers of groups in one part, or in two with less than half of its area.

    Groups without tokens are in none, unless there is one part.
    """
    whole = len(sizes) * int(sizes.max())
    order = np.argsort(sizes, kind="stable")[int((sizes == 0).sum()) :]
    ordered = sizes[order]
    below = np.arange(1, len(order))
    areas = below * ordered[:-1] + (len(order) - below) * ordered[-1]
    if len(areas) and 2 * int(areas.min()) < whole:
        cut = int(areas.argmin()) + 1
        return [np.sort(order[:cut]), np.sort(order[cut:])]
    return [np.arange(len(sizes))]


@dataclass(frozen=True, kw_only=True, slots=True, eq=False)
class DecodePlan:
    """Attention of one pass over T new tokens of N rows.

    `by_prompt` and `by_row` group the tokens. `prompt_lengths` [G] are the tokens of each prompt,
    and `written` [T] the tokens that come before each token in its row, after the prompt. They
    mask the padding, and are None where there is no padding. `positions` [T] are those of the
    tokens in their sequences.
    """

    prompt_kv: PromptKV
    by_prompt: Grouping
    by_row: Grouping
    prompt_lengths: Tensor | None
    written: Tensor | None
    positions: Tensor

    @classmethod
    def of(
        cls,
        prompt_kv: PromptKV,
        prompt_of: IntArray,
        prompt_lengths: IntArray,
        written: IntArray,
        device: torch.device,
        *,
        sizes: IntArray | None = None,
    ) -> DecodePlan:
        """Return the plan of rows that continue prompts.

        Args:
            prompt_kv: the keys and values of prompts.
            prompt_of: the prompt of each row, [N].
            prompt_lengths: the tokens of each prompt, [G].
            written: the tokens of each row after its prompt, before this pass, [N].
            device: where the tensors go.
            sizes: the new tokens of each row, [N]; None is one of each.
        """
        rows = np.arange(len(prompt_of))
        if sizes is not None:
            rows = np.repeat(rows, sizes)
            begins = np.repeat(np.cumsum(sizes) - sizes, sizes)
            written = written[rows] + np.arange(len(rows)) - begins
            prompt_of = prompt_of[rows]

        def to_device(array: IntArray) -> Tensor:
            return torch.from_numpy(array).to(device)

        alike = bool((prompt_lengths == prompt_lengths.max()).all())
        level = len(rows) == rows[-1] + 1 and bool((written == written[0]).all())
        return cls(
            prompt_kv=prompt_kv,
            by_prompt=Grouping.of(prompt_of, len(prompt_lengths), device, split=True),
            by_row=Grouping.of(rows, int(rows[-1]) + 1, device),
            prompt_lengths=None if alike else to_device(prompt_lengths),
            written=None if level else to_device(written),
            positions=to_device(prompt_lengths[prompt_of] + written),
        )

    def attend(
        self,
        module: nn.Module,
        query: Tensor,
        key: Tensor,
        value: Tensor,
        *,
        scale: float,
        softcap: float | None,
        window: int | None,
    ) -> Tensor:
        """Attend in one layer (see `attention.AttentionPlan`); `key` and `value` are the rows'."""
        prompt_keys, prompt_values = self.prompt_kv(int(module.layer_idx), key)  # type: ignore[arg-type]
        tokens, heads, _, width = query.shape
        kv_heads, length = prompt_keys.shape[1], prompt_keys.shape[2]
        repeats = heads // kv_heads
        asked = (query * scale).reshape(tokens, kv_heads, repeats, width)
        if window is not None and int(self.positions.max()) < window:
            window = None
        # All new tokens of a row form one matrix of queries: [N, K, Q * R, S].
        rows = self.by_row.parts[0]
        own = torch.matmul(rows.gather(asked), key.transpose(-1, -2))
        own = self._hide_own(_capped(self.by_row.scatter([own], repeats), softcap), window)
        outputs: list[Tensor] = []
        shares: list[Tensor] = []
        for part in self.by_prompt.parts:  # all of a prompt form one, too: [G, K, M * R, P]
            keys, values = part.of(prompt_keys), part.of(prompt_values)
            scores = _capped(torch.matmul(part.gather(asked), keys.transpose(-1, -2)), softcap)
            scores = self._hide_prompt(scores, part, window)
            every = torch.cat([scores, part.gather(own)], -1)
            every = every.softmax(-1, dtype=torch.float32).to(value.dtype)
            outputs.append(torch.matmul(every[..., :length], values))
            shares.append(every[..., length:])
        after = torch.matmul(rows.gather(self.by_prompt.scatter(shares, repeats)), value)
        output = self.by_prompt.scatter(outputs, repeats) + self.by_row.scatter([after], repeats)
        return output.reshape(tokens, 1, heads, width)

    def _hide_prompt(self, scores: Tensor, part: Groups, window: int | None) -> Tensor:
        """Mask scores of prompts' padding and of what is outside the sliding window."""
        lowest, length = torch.finfo(scores.dtype).min, scores.shape[-1]
        at_prompt = torch.arange(length, device=scores.device)
        if self.prompt_lengths is not None:
            hidden = at_prompt >= part.of(self.prompt_lengths)[:, None]
            scores = scores.masked_fill(hidden[:, None, None], lowest)
        if window is None:
            return scores
        positions = self.positions if part.members is None else self.positions[part.members]
        far = at_prompt <= positions.view(part.count, -1, 1) - window  # [G, M, P]
        repeats = scores.shape[2] // far.shape[1]
        return scores.masked_fill(far.repeat_interleave(repeats, 1)[:, None], lowest)

    def _hide_own(self, own: Tensor, window: int | None) -> Tensor:
        """Mask scores of rows' padding, of later tokens, and of what is outside the window."""
        lowest, steps = torch.finfo(own.dtype).min, own.shape[-1]
        at_row = torch.arange(steps, device=own.device)
        if self.written is not None:
            own = own.masked_fill((at_row > self.written[:, None])[:, None, None], lowest)
        if window is None:
            return own
        latest = (
            torch.full_like(self.positions, steps - 1) if self.written is None else self.written
        )
        outside = at_row <= latest[:, None] - window
        return own.masked_fill(outside[:, None, None], lowest)


def _capped(scores: Tensor, softcap: float | None) -> Tensor:
    """Return scores within a soft-cap, where there is one."""
    return scores if softcap is None else torch.tanh(scores / softcap) * softcap
