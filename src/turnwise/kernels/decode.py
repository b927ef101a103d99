"""Attention of rows that each decode one token, over shared prompts and over their own tokens.

Provides `DecodePlan`. The keys and values of a prompt are stored once for all of its rows. The
queries of these rows are multiplied with them in one matrix product, without copies.

Shapes: N rows, H query heads, K key-value heads of R = H / K query heads each, D width of a head;
G prompts of up to P tokens with up to M rows each; T tokens written by the rows, including the new
one.
"""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass

import numpy as np
import torch
from torch import Tensor, nn

from turnwise.types import IntArray

PromptKV = Callable[[int], tuple[Tensor, Tensor]]
"""Maps a layer's index to the keys and values of the prompts, [G, K, P, D] each."""


@dataclass(frozen=True, kw_only=True, slots=True, eq=False)
class DecodePlan:
    """Attention of one decoding step of N rows.

    `members` [G, M] are the rows of each prompt, padded with row 0. `slots` [N] is the index of
    each row among the G x M members. Both are None if the rows already have that order.
    `prompt_lengths` [G] are the tokens of each prompt, and `written` [N] the tokens that each row
    wrote before this one. They mask the padding, and are None where there is no padding.
    """

    prompt_kv: PromptKV
    groups: int
    members: Tensor | None
    slots: Tensor | None
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
    ) -> DecodePlan:
        """Return the plan of rows that continue the prompts `prompt_of` [N]."""
        groups = len(prompt_lengths)
        sizes = np.bincount(prompt_of, minlength=groups)
        largest = int(sizes.max())
        order = np.argsort(prompt_of, kind="stable")
        rank = np.arange(len(order)) - np.repeat(np.cumsum(sizes) - sizes, sizes)
        slots = np.empty(len(order), dtype=np.int64)
        slots[order] = prompt_of[order] * largest + rank
        in_order = len(order) == groups * largest and bool((slots == np.arange(len(order))).all())
        members = np.zeros(groups * largest, dtype=np.int64)
        members[slots] = np.arange(len(order))

        def to_device(array: IntArray) -> Tensor:
            return torch.from_numpy(array).to(device)

        return cls(
            prompt_kv=prompt_kv,
            groups=groups,
            members=None if in_order else to_device(members),
            slots=None if in_order else to_device(slots),
            prompt_lengths=None
            if (prompt_lengths == prompt_lengths.max()).all()
            else to_device(prompt_lengths),
            written=None if (written == written.max()).all() else to_device(written),
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
        prompt_keys, prompt_values = self.prompt_kv(int(module.layer_idx))  # type: ignore[arg-type]
        rows, heads, _, width = query.shape
        groups, kv_heads, length = self.groups, prompt_keys.shape[1], prompt_keys.shape[2]
        asked = (query * scale).reshape(rows, kv_heads, heads // kv_heads, width)
        grouped = asked if self.members is None else asked[self.members]
        # All rows of a prompt form one matrix of queries: [G, K, M * R, P].
        grouped = grouped.unflatten(0, (groups, -1)).transpose(1, 2).flatten(2, 3)
        scores = torch.matmul(grouped, prompt_keys.transpose(-1, -2))
        own = torch.matmul(asked, key.transpose(-1, -2))  # [N, K, R, T]
        if softcap is not None:
            scores, own = (torch.tanh(s / softcap) * softcap for s in (scores, own))
        scores, own = self._hide(scores, own, window)
        own = own if self.members is None else own[self.members]
        own = own.unflatten(0, (groups, -1)).transpose(1, 2).flatten(2, 3)
        shares = torch.cat([scores, own], -1).softmax(-1, dtype=torch.float32).to(value.dtype)
        output = torch.matmul(shares[..., :length], prompt_values)  # [G, K, M * R, D]
        output, shares = (
            self._by_row(t, heads // kv_heads) for t in (output, shares[..., length:])
        )
        output = output + torch.matmul(shares, value)
        return output.reshape(rows, 1, heads, width)

    def _by_row(self, grouped: Tensor, repeats: int) -> Tensor:
        """Return [G, K, M * R, ...] as [N, K, R, ...]."""
        rows = grouped.unflatten(2, (-1, repeats)).transpose(1, 2).flatten(0, 1)
        return rows if self.slots is None else rows[self.slots]

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
        positions = self.positions if self.members is None else self.positions[self.members]
        far = at_prompt <= positions.view(self.groups, -1, 1) - window  # [G, M, P]
        repeats = scores.shape[2] // far.shape[1]
        scores = scores.masked_fill(far.repeat_interleave(repeats, 1)[:, None], lowest)
        latest = (
            torch.full_like(self.positions, steps - 1) if self.written is None else self.written
        )
        outside = torch.arange(steps, device=own.device) <= latest[:, None] - window
        return scores, own.masked_fill(outside[:, None, None], lowest)
