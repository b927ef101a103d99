"""Attention of rows that each write one token: over a prompt that rows share, and over their own.

Owns `DecodePlan`. Prompts are kept once, however many rows go on from one; the rows of a prompt
ask it together, in one matrix product, and nothing is copied.

Shapes: N rows, H query heads, K key-value heads of R = H / K query heads each, D width of a head;
G prompts of up to P tokens with up to M rows each; T tokens that rows have written, the new one
included.
"""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass

import numpy as np
import torch
from torch import Tensor, nn

from turnwise.types import IntArray

Kept = Callable[[int], tuple[Tensor, Tensor]]
"""A layer's number -> keys and values of the prompts, [G, K, P, D] each."""


@dataclass(frozen=True, kw_only=True, slots=True, eq=False)
class DecodePlan:
    """One step of N rows.

    `members` [G, M] are the rows of each prompt, filled up with row 0; `places` [N] is where each
    row is among the G x M; both None where rows lie in that order. `prompt_lengths` [G] and
    `written` [N] are the tokens of each prompt and those that each row wrote before this one; they
    hide the rest, and are None where nothing is to be hidden.
    """

    kept: Kept
    groups: int
    members: Tensor | None
    places: Tensor | None
    prompt_lengths: Tensor | None
    written: Tensor | None
    positions: Tensor

    @classmethod
    def of(
        cls,
        kept: Kept,
        prompt_of: IntArray,
        prompt_lengths: IntArray,
        written: IntArray,
        device: torch.device,
    ) -> DecodePlan:
        """Return the plan of rows that go on from the prompts `prompt_of` [N]."""
        groups = len(prompt_lengths)
        sizes = np.bincount(prompt_of, minlength=groups)
        largest = int(sizes.max())
        order = np.argsort(prompt_of, kind="stable")
        number = np.arange(len(order)) - np.repeat(np.cumsum(sizes) - sizes, sizes)
        places = np.empty(len(order), dtype=np.int64)
        places[order] = prompt_of[order] * largest + number
        in_order = len(order) == groups * largest and bool((places == np.arange(len(order))).all())
        members = np.zeros(groups * largest, dtype=np.int64)
        members[places] = np.arange(len(order))

        def sent(array: IntArray) -> Tensor:
            return torch.from_numpy(array).to(device)

        return cls(
            kept=kept,
            groups=groups,
            members=None if in_order else sent(members),
            places=None if in_order else sent(places),
            prompt_lengths=None
            if (prompt_lengths == prompt_lengths.max()).all()
            else sent(prompt_lengths),
            written=None if (written == written.max()).all() else sent(written),
            positions=sent(prompt_lengths[prompt_of] + written),
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
        """Attend in one layer (see `attention.Plan`); `key` and `value` are the rows' own."""
        prompt_keys, prompt_values = self.kept(int(module.layer_idx))  # type: ignore[arg-type]
        rows, heads, _, width = query.shape
        groups, shared, length = self.groups, prompt_keys.shape[1], prompt_keys.shape[2]
        asked = (query * scale).reshape(rows, shared, heads // shared, width)
        together = asked if self.members is None else asked[self.members]
        # The rows of a prompt ask it as one matrix: [G, K, M * R, P].
        together = together.unflatten(0, (groups, -1)).transpose(1, 2).flatten(2, 3)
        scores = torch.matmul(together, prompt_keys.transpose(-1, -2))
        own = torch.matmul(asked, key.transpose(-1, -2))  # [N, K, R, T]
        if softcap is not None:
            scores, own = (torch.tanh(s / softcap) * softcap for s in (scores, own))
        scores, own = self._hide(scores, own, window)
        own = own if self.members is None else own[self.members]
        own = own.unflatten(0, (groups, -1)).transpose(1, 2).flatten(2, 3)
        shares = torch.cat([scores, own], -1).softmax(-1, dtype=torch.float32).to(value.dtype)
        found = torch.matmul(shares[..., :length], prompt_values)  # [G, K, M * R, D]
        found, shares = (self._by_row(t, heads // shared) for t in (found, shares[..., length:]))
        found = found + torch.matmul(shares, value)
        return found.reshape(rows, 1, heads, width)

    def _by_row(self, together: Tensor, repeats: int) -> Tensor:
        """Return [G, K, M * R, ...] as [N, K, R, ...]."""
        rows = together.unflatten(2, (-1, repeats)).transpose(1, 2).flatten(0, 1)
        return rows if self.places is None else rows[self.places]

    def _hide(self, scores: Tensor, own: Tensor, window: int | None) -> tuple[Tensor, Tensor]:
        """Take from the scores what lies behind a prompt's or a row's end, or beyond the window."""
        least = torch.finfo(scores.dtype).min
        length, steps = scores.shape[-1], own.shape[-1]
        at_prompt = torch.arange(length, device=scores.device)
        if self.prompt_lengths is not None:
            behind = at_prompt >= self.prompt_lengths[:, None]
            scores = scores.masked_fill(behind[:, None, None], least)
        if self.written is not None:
            behind = torch.arange(steps, device=own.device) > self.written[:, None]
            own = own.masked_fill(behind[:, None, None], least)
        if window is None or int(self.positions.max()) < window:
            return scores, own
        positions = self.positions if self.members is None else self.positions[self.members]
        far = at_prompt <= positions.view(self.groups, -1, 1) - window  # [G, M, P]
        repeats = scores.shape[2] // far.shape[1]
        scores = scores.masked_fill(far.repeat_interleave(repeats, 1)[:, None], least)
        latest = (
            torch.full_like(self.positions, steps - 1) if self.written is None else self.written
        )
        gone = torch.arange(steps, device=own.device) <= latest[:, None] - window
        return scores, own.masked_fill(gone[:, None, None], least)
