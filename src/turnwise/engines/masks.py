"""Attention masks for rows that are at different positions of their sequences.

Owns the forms in which decoders take a mask of four dimensions. Which one a model obeys is found by
measurement (`measure`), not here. Knows nothing of caches or models.

Shapes: N rows, Q new tokens a row, L cached positions.
"""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass
from typing import Any, Literal

import torch
from torch import Tensor

from turnwise.kernels import Planned

MaskForm = Literal["by layer type", "windowed", "full"]


@dataclass(frozen=True, kw_only=True, slots=True)
class MaskRule:
    """How a model is shown which cached positions a token may see.

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

    def planned(self, mask: Planned) -> Tensor | dict[str, Tensor]:
        """Return what to pass as `attention_mask` for a plan, which minds windows itself."""
        if self.form == "by layer type":
            return {"full_attention": mask, "sliding_attention": mask}
        return mask

    def _added(self, visible_NQL: Tensor) -> Tensor:
        mask = torch.zeros(visible_NQL.shape, dtype=self.dtype, device=visible_NQL.device)
        return mask.masked_fill_(~visible_NQL, torch.finfo(self.dtype).min)[:, None]


def sliding_window(config: Mapping[str, Any]) -> int | None:
    """Return the sliding window of a decoder's config, or None."""
    window = config.get("sliding_window")
    return window if isinstance(window, int) else None


def mask_forms(config: Mapping[str, Any]) -> tuple[MaskForm, ...]:
    """Return the forms worth trying for a decoder's config, the likeliest first.

    Models with a window either name the types of their layers (Gemma 2) or use the window
    everywhere (Mistral).

    Example:
        >>> mask_forms({"sliding_window": 4096, "layer_types": None})
        ('windowed', 'full')
    """
    forms: list[MaskForm] = []
    if config.get("layer_types") is not None:
        forms.append("by layer type")
    if sliding_window(config) is not None:
        forms.append("windowed")
    return (*forms, "full")
