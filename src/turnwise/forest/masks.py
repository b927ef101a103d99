"""Ancestor masks, and the forms in which transformers' decoders take a mask of four dimensions.

Owns the map from a micro-batch's subtree ends to attention masks. Knows nothing of rows or losses.

Shapes: B tries of N nodes.
"""

from __future__ import annotations

from typing import Literal

import torch
from torch import Tensor

from turnwise.errors import ModelError
from turnwise.forest.batches import MicroBatch
from turnwise.kernels import ATTENTION, BY_HAND, Planned

KINDS = ("full_attention", "sliding_attention")
"""transformers' names of the layers' types."""
MaskForm = Literal["by layer type", "windowed", "full"]
"""One mask per layer type; one mask within the window for all layers; one full mask for all."""


def ancestor_mask(end: Tensor) -> Tensor:
    """Return who sees whom, bool [B, 1, N, N]: node i sees j iff j is i or its ancestor.

    Example:
        >>> ancestor_mask(torch.tensor([[3, 2, 3]]))[0, 0].int().tolist()
        [[1, 0, 0], [1, 1, 0], [1, 0, 1]]
    """
    node = torch.arange(end.shape[1], device=end.device)
    later = node[:, None] >= node[None, :]
    return (later & (node[None, :, None] < end[:, None, :])).unsqueeze(1)


def windowed(mask: Tensor, positions: Tensor, window: int) -> Tensor:
    """Keep of `mask` what lies less than `window` positions back, the node itself included."""
    apart = positions[:, :, None] - positions[:, None, :]
    return mask & (apart < window).unsqueeze(1)


def sliding_window(config: dict[str, object]) -> int | None:
    """Return the window of a decoder's config, as a dict, or None."""
    window = config.get("sliding_window")
    return window if isinstance(window, int) else None


def mask_forms(config: dict[str, object]) -> tuple[MaskForm, ...]:
    """Return the forms worth trying for a decoder's config, the likeliest first.

    Which one a model obeys is found by measurement, not here: models with a window either name
    their layers' types (Gemma 2) or use the window everywhere (Mistral).
    """
    forms: list[MaskForm] = []
    if config.get("layer_types") is not None:
        forms.append("by layer type")
    if sliding_window(config) is not None:
        forms.append("windowed")
    return (*forms, "full")


def tree_masks(
    batch: MicroBatch, form: MaskForm, window: int | None, attention: str, dtype: torch.dtype
) -> Tensor | dict[str, Tensor]:
    """Return what to pass as `attention_mask`, on the device of `batch.end`.

    Packed tries pass their plan; the others a mask, or one for each type of layers.

    Raises:
        ModelError: if the attention implementation takes no mask of four dimensions.
    """
    if batch.plan is not None:
        if attention not in (ATTENTION, BY_HAND):
            raise ModelError(
                f"attention implementation {attention!r} knows no plans: give the model turnwise's "
                "with `turnwise.kernels.use(model)`, or set forest.layout = 'flat'"
            )
        mask = Planned.of(batch.plan, batch.end.device)
        return dict.fromkeys(KINDS, mask) if form == "by layer type" else mask
    full = ancestor_mask(batch.end)
    near = full if window is None else windowed(full, batch.positions, window)
    if form == "full":
        return _as_taken(full, attention, dtype)
    if form == "windowed":
        return _as_taken(near, attention, dtype)
    masks = zip(KINDS, (full, near), strict=True)
    return {kind: _as_taken(mask, attention, dtype) for kind, mask in masks}


def _as_taken(mask: Tensor, attention: str, dtype: torch.dtype) -> Tensor:
    """Return `mask` as booleans for SDPA, or as a float to add to the scores for eager."""
    if attention in ("sdpa", ATTENTION, BY_HAND):
        return mask
    if attention == "eager":
        blocked = torch.finfo(dtype).min
        return torch.zeros(mask.shape, dtype=dtype, device=mask.device).masked_fill(~mask, blocked)
    raise ModelError(
        f"attention implementation {attention!r} takes no 4-D mask: load the model with "
        "attn_implementation='sdpa' or 'eager', or set forest.layout = 'flat'"
    )
