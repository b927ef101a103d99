"""Attention masks for rows that are at different positions of their sequences.

Provides `MaskRule`. `kernels.probe` measures which form of a mask of four dimensions a model
supports.

Shapes: N rows, Q new tokens per row, L cached positions.
"""

from __future__ import annotations

from dataclasses import dataclass

import torch
from torch import Tensor

from turnwise.kernels import PlanMask
from turnwise.kernels.probe import MaskForm


@dataclass(frozen=True, kw_only=True, slots=True)
class MaskRule:
    """The rule that tells a model which cached positions a token may attend to.

    `form` says what is passed: one mask that looks back without end, one with a sliding window, or
    one of each by the names that transformers gives to types of layers. `blind` shows a token
    nothing but itself: a wrong mask on purpose, to see that the measurement would notice.
    """

    form: MaskForm
    window: int | None
    dtype: torch.dtype
    blind: bool = False

    def masks(self, positions_NQ: Tensor, length: int) -> Tensor | dict[str, Tensor]:
        """Return what to pass as `attention_mask` for tokens at `positions_NQ`, [N, 1, Q, L].

        Masks are added to the scores, 0 or the most negative number, which eager attention needs
        and which saves SDPA a conversion in every layer.
        """
        keys_L = torch.arange(length, device=positions_NQ.device)
        last_NQ1 = positions_NQ[:, :, None]
        full = keys_L <= last_NQ1
        if self.blind:
            full &= keys_L == last_NQ1
        if self.form == "full":
            return self._added(full)
        near = full if self.window is None else full & (keys_L > last_NQ1 - self.window)
        if self.form == "windowed":
            return self._added(near)
        near_mask = self._added(near)
        full_mask = near_mask if near is full else self._added(full)
        return {"full_attention": full_mask, "sliding_attention": near_mask}

    def plan_mask(self, mask: PlanMask) -> Tensor | dict[str, Tensor]:
        """Return what to pass as `attention_mask` for a plan, which minds windows itself."""
        if self.form == "by layer type":
            return {"full_attention": mask, "sliding_attention": mask}
        return mask

    def _added(self, visible_NQL: Tensor) -> Tensor:
        mask = torch.zeros(visible_NQL.shape, dtype=self.dtype, device=visible_NQL.device)
        return mask.masked_fill_(~visible_NQL, torch.finfo(self.dtype).min)[:, None]
