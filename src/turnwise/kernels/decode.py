"""Attention of rows that go on by a few tokens, over shared prompts and over their own tokens.

Provides `DecodePlan`. The keys and values of a prompt are stored once for all of its rows. The
queries of these rows are multiplied with them in one matrix product, without copies.

Shapes: N rows, T new tokens of all rows, row by row; H query heads, K key-value heads of R = H / K
query heads each, D width of a head; G prompts of up to P tokens with up to M new tokens each; Q
most new tokens of a row, S most tokens of a row after its prompt, the new ones included.
"""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass

import numpy as np
import torch
from torch import Tensor, nn

from turnwise.types import IntArray

PromptKV = Callable[[int, Tensor], tuple[Tensor, Tensor]]
"""Maps a layer's index and its rows' keys to the keys and values of the prompts, [G, K, P, D]."""


@dataclass(frozen=True, kw_only=True, slots=True, eq=False)
class Grouping:
    """New tokens in groups of equal size, padded with token 0, and back.

    `members` [groups x largest] are the tokens of each group and `slots` [T] the place of each
    token among them. Both are None where the tokens have that order already.
    """

    groups: int
    members: Tensor | None
    slots: Tensor | None

    @classmethod
    def of(cls, group_of: IntArray, groups: int, device: torch.device) -> Grouping:
        """Return the grouping of tokens that belong to the groups `group_of` [T]."""
        sizes = np.bincount(group_of, minlength=groups)
        largest = int(sizes.max())
        order = np.argsort(group_of, kind="stable")
        rank = np.arange(len(order)) - np.repeat(np.cumsum(sizes) - sizes, sizes)
        slots = np.empty(len(order), dtype=np.int64)
        slots[order] = group_of[order] * largest + rank
        if len(order) == groups * largest and bool((slots == np.arange(len(order))).all()):
            return cls(groups=groups, members=None, slots=None)
        members = np.zeros(groups * largest, dtype=np.int64)
        members[slots] = np.arange(len(order))
        both = torch.from_numpy(members).to(device), torch.from_numpy(slots).to(device)
        return cls(groups=groups, members=both[0], slots=both[1])

    def gather(self, values: Tensor) -> Tensor:
        """Return [T, K, R, ...] as one matrix a group, [groups, K, members x R, ...]."""
        grouped = values if self.members is None else values[self.members]
        return grouped.unflatten(0, (self.groups, -1)).transpose(1, 2).flatten(2, 3)

    def scatter(self, grouped: Tensor, repeats: int) -> Tensor:
        """Return [groups, K, members x R, ...] as [T, K, R, ...]."""
        values = grouped.unflatten(2, (-1, repeats)).transpose(1, 2).flatten(0, 1)
        return values if self.slots is None else values[self.slots]


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
            by_prompt=Grouping.of(prompt_of, len(prompt_lengths), device),
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
        # All new tokens of a prompt form one matrix of queries: [G, K, M * R, P].
        scores = torch.matmul(self.by_prompt.gather(asked), prompt_keys.transpose(-1, -2))
        # All new tokens of a row form one, too: [N, K, Q * R, S].
        own = torch.matmul(self.by_row.gather(asked), key.transpose(-1, -2))
        own = self.by_row.scatter(own, repeats)  # [T, K, R, S]
        if softcap is not None:
            scores, own = (torch.tanh(s / softcap) * softcap for s in (scores, own))
        scores, own = self._hide(scores, own, window)
        every = torch.cat([scores, self.by_prompt.gather(own)], -1)
        shares = every.softmax(-1, dtype=torch.float32).to(value.dtype)
        output = torch.matmul(shares[..., :length], prompt_values)  # [G, K, M * R, D]
        output, shares = (
            self.by_prompt.scatter(t, repeats) for t in (output, shares[..., length:])
        )
        after = torch.matmul(self.by_row.gather(shares), value)
        output = output + self.by_row.scatter(after, repeats)
        return output.reshape(tokens, 1, heads, width)

    def _hide(self, scores: Tensor, own: Tensor, window: int | None) -> tuple[Tensor, Tensor]:
        """Mask scores of padding and of tokens outside the sliding window."""
        lowest = torch.finfo(scores.dtype).min
        length, steps = scores.shape[-1], own.shape[-1]
        at_prompt = torch.arange(length, device=scores.device)
        if self.prompt_lengths is not None:
            hidden = at_prompt >= self.prompt_lengths[:, None]
            scores = scores.masked_fill(hidden[:, None, None], lowest)
        if self.written is not None:
            hidden = torch.arange(steps, device=own.device) > self.written[:, None]
            own = own.masked_fill(hidden[:, None, None], lowest)
        if window is None or int(self.positions.max()) < window:
            return scores, own
        members = self.by_prompt.members
        positions = self.positions if members is None else self.positions[members]
        far = at_prompt <= positions.view(self.by_prompt.groups, -1, 1) - window  # [G, M, P]
        repeats = scores.shape[2] // far.shape[1]
        scores = scores.masked_fill(far.repeat_interleave(repeats, 1)[:, None], lowest)
        latest = (
            torch.full_like(self.positions, steps - 1) if self.written is None else self.written
        )
        outside = torch.arange(steps, device=own.device) <= latest[:, None] - window
        return scores, own.masked_fill(outside[:, None, None], lowest)
