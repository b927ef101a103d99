"""Ancestor masks, in the forms that the decoders of transformers accept.

Provides `tree_masks`, the attention masks of a micro-batch from the ends of its subtrees.
Shapes: B tries of N nodes.
"""

from __future__ import annotations

import torch
from torch import Tensor

from turnwise.errors import ModelError
from turnwise.forest.batches import MicroBatch
from turnwise.kernels import ATTENTION, EAGER, PlanMask
from turnwise.kernels.probe import MaskForm

LAYER_TYPES = ("full_attention", "sliding_attention")
"""The names of layer types in transformers."""


def ancestor_mask(end: Tensor) -> Tensor:
    """Return the ancestor mask, bool [B, 1, N, N]: node i attends to j iff j is i or its ancestor.

    Example:
        >>> ancestor_mask(torch.tensor([[3, 2, 3]]))[0, 0].int().tolist()
        [[1, 0, 0], [1, 1, 0], [1, 0, 1]]
    """
    node = torch.arange(end.shape[1], device=end.device)
    later = node[:, None] >= node[None, :]
    return (later & (node[None, :, None] < end[:, None, :])).unsqueeze(1)


def windowed(mask: Tensor, positions: Tensor, window: int) -> Tensor:
    """Restrict `mask` to the last `window` positions, a node's own included."""
    apart = positions[:, :, None] - positions[:, None, :]
    return mask & (apart < window).unsqueeze(1)


def tree_masks(
    batch: MicroBatch, form: MaskForm, window: int | None, attention: str, dtype: torch.dtype
) -> Tensor | dict[str, Tensor]:
    """Return the value of `attention_mask`, on the device of `batch.end`.

    It carries the plan of concatenated tries; for padded tries it is a mask, or one mask for each
    layer type.

    Raises:
        ModelError: if the attention implementation accepts no 4-D mask.
    """
    if batch.plan is not None:
        if attention not in (ATTENTION, EAGER):
            raise ModelError(
                f"attention implementation {attention!r} does not support plans: call "
                "`turnwise.kernels.use(model)`, or set forest.layout = 'flat'"
            )
        mask = PlanMask.of(batch.plan, batch.end.device)
        return dict.fromkeys(LAYER_TYPES, mask) if form == "by layer type" else mask
    full = ancestor_mask(batch.end)
    near = full if window is None else windowed(full, batch.positions, window)
    if form == "full":
        return _to_attention_mask(full, attention, dtype)
    if form == "windowed":
        return _to_attention_mask(near, attention, dtype)
    masks = zip(LAYER_TYPES, (full, near), strict=True)
    return {kind: _to_attention_mask(mask, attention, dtype) for kind, mask in masks}


def _to_attention_mask(mask: Tensor, attention: str, dtype: torch.dtype) -> Tensor:
    """Return `mask` as booleans for SDPA, or as numbers to add to the scores for eager."""
    if attention in ("sdpa", ATTENTION, EAGER):
        return mask
    if attention == "eager":
        blocked = torch.finfo(dtype).min
        return torch.zeros(mask.shape, dtype=dtype, device=mask.device).masked_fill(~mask, blocked)
    raise ModelError(
        f"attention implementation {attention!r} accepts no 4-D mask: load the model with "
        "attn_implementation='sdpa' or 'eager', or set forest.layout = 'flat'"
    )
