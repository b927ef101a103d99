"""Exact attention over a forest, in which a node attends to its ancestors and to itself.

Provides `TreePlan`. `blocks.plan_calls` chooses the blocks that cover a forest. A block of
neighbouring nodes attends to its keys in one call of the kernel, under a mask.

Shapes: N nodes, H query heads, C key heads, D width of a head; M blocks of Q nodes in all; B blocks
of a call and K keys of each.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass, field
from typing import Any

import torch
from torch import Tensor, nn

from turnwise.kernels.blocks import BlockCall, block_size, plan_calls
from turnwise.types import IntArray

FORWARD = torch.ops.aten._scaled_dot_product_flash_attention_for_cpu
BACKWARD = torch.ops.aten._scaled_dot_product_flash_attention_for_cpu_backward
KEPT_PAIRS = 1 << 24
"""Largest number of pairs of a plan whose masks are kept from layer to layer: 64 MiB in float32 for
each query head of a key head. Masks of larger plans are made in each layer."""


@dataclass(frozen=True, kw_only=True, slots=True, eq=False)
class Call:
    """A `BlockCall` as tensors on the CPU.

    `blocks` is [B] and `keys` [B, K]. `hidden` [B, Q, K] is 0 for the pairs that attend and -inf
    for the others, in bfloat16, which takes half the memory of a mask in float32. `masks` are those
    that layers have used, if `keeps_masks`.
    """

    blocks: Tensor
    keys: Tensor
    hidden: Tensor
    keeps_masks: bool
    masks: dict[tuple[int, torch.dtype], Tensor] = field(default_factory=dict)

    @classmethod
    def of(cls, call: BlockCall, *, keeps_masks: bool) -> Call:
        """Return the tensors of a call."""
        hidden = torch.zeros(call.visible.shape, dtype=torch.bfloat16)
        return cls(
            blocks=torch.from_numpy(call.blocks),
            keys=torch.from_numpy(call.keys),
            hidden=hidden.masked_fill_(~torch.from_numpy(call.visible), float("-inf")),
            keeps_masks=keeps_masks,
        )

    def gather(self, rows: Tensor, heads: int) -> Tensor:
        """Return the keys' rows [N + 1, C * D] as [B, C, K, D]."""
        found = rows.index_select(0, self.keys.flatten())
        return found.unflatten(0, self.keys.shape).unflatten(2, (heads, -1)).transpose(1, 2)

    def mask(self, copies: int, dtype: torch.dtype) -> Tensor:
        """Return what is added to the scores, [B, 1, copies * Q, K]."""
        mask = self.masks.get((copies, dtype))
        if mask is None:
            mask = self.hidden.to(dtype).repeat(1, copies, 1)[:, None]
            if self.keeps_masks:
                self.masks[copies, dtype] = mask
        return mask


@dataclass(frozen=True, kw_only=True, slots=True, eq=False)
class TreePlan:
    """Attention of a forest's nodes, in depth-first order, to their ancestors.

    `size` is the number of nodes of a block. `pairs` is the number of query-key pairs computed,
    including masked ones. `deepest` is the largest depth.
    """

    calls: tuple[Call, ...]
    size: int
    pairs: int
    deepest: int

    @classmethod
    def of(cls, end: IntArray, depth: IntArray) -> TreePlan:
        """Return the plan of a forest from the end of each node's subtree and its depth, [N]."""
        calls = plan_calls(end, depth)
        pairs = sum(call.visible.size for call in calls)
        return cls(
            calls=tuple(Call.of(call, keeps_masks=pairs <= KEPT_PAIRS) for call in calls),
            size=block_size(depth),
            pairs=pairs,
            deepest=int(depth.max(initial=0)),
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
        """Attend in one layer (see `attention.AttentionPlan`); the batch size is 1."""
        if softcap is not None or (window is not None and window <= self.deepest):
            raise ValueError(
                "TreePlan supports neither soft-caps nor sliding windows: use FlexPlan"
            )
        q, k, v = (t[0].transpose(0, 1) for t in (query, key, value))
        return _TreeAttention.apply(q, k, v, self.calls, self.size, scale)[None]


class _TreeAttention(torch.autograd.Function):
    """Attention of queries [N, H, D] to keys and values [N, C, D] by the calls of a plan.

    The queries of the heads that share a key head are rows of one call.
    """

    @staticmethod
    def forward(
        ctx: Any,
        query: Tensor,
        key: Tensor,
        value: Tensor,
        calls: Sequence[Call],
        size: int,
        scale: float,
    ) -> Tensor:
        nodes, heads = key.shape[:2]
        copies = query.shape[1] // heads
        queries, keys, values = _as_blocks(query, heads, size), _as_rows(key), _as_rows(value)
        output = torch.empty_like(queries)
        exact = torch.promote_types(query.dtype, torch.float32)
        total = queries.new_empty(queries.shape[:3], dtype=exact)
        for call in calls:
            output[call.blocks], total[call.blocks] = FORWARD(
                queries.index_select(0, call.blocks),
                call.gather(keys, heads),
                call.gather(values, heads),
                0.0,
                False,
                attn_mask=call.mask(copies, query.dtype),
                scale=scale,
            )
        ctx.save_for_backward(queries, keys, values, output, total)
        ctx.calls, ctx.size, ctx.scale, ctx.shapes = calls, size, scale, (nodes, heads, copies)
        return _as_nodes(output, nodes, copies)

    @staticmethod
    def backward(ctx: Any, *slopes: Any) -> tuple[Tensor | None, ...]:
        queries, keys, values, output, total = ctx.saved_tensors
        nodes, heads, copies = ctx.shapes
        gradient = _as_blocks(slopes[0], heads, ctx.size)
        for_queries = torch.empty_like(queries)
        for_keys, for_values = (torch.zeros_like(t, dtype=total.dtype) for t in (keys, values))
        for call in ctx.calls:
            for_queries[call.blocks], *found = BACKWARD(
                gradient.index_select(0, call.blocks),
                queries.index_select(0, call.blocks),
                call.gather(keys, heads),
                call.gather(values, heads),
                output.index_select(0, call.blocks),
                total.index_select(0, call.blocks),
                0.0,
                False,
                attn_mask=call.mask(copies, queries.dtype),
                scale=ctx.scale,
            )
            for whole, part in zip((for_keys, for_values), found, strict=True):
                rows = part.transpose(1, 2).reshape(-1, whole.shape[1]).to(whole.dtype)
                whole.index_add_(0, call.keys.flatten(), rows)
        k, v = (
            whole[:nodes].unflatten(1, (heads, -1)).to(keys.dtype)
            for whole in (for_keys, for_values)
        )
        return _as_nodes(for_queries, nodes, copies), k, v, None, None, None


def _as_rows(values: Tensor) -> Tensor:
    """Return keys or values [N, C, D] as rows, with zeros for padding, [N + 1, C * D]."""
    nodes = len(values)
    rows = values.new_empty(nodes + 1, values[0].numel())
    rows[:nodes], rows[nodes] = values.reshape(nodes, -1), 0
    return rows


def _as_blocks(values: Tensor, heads: int, size: int) -> Tensor:
    """Return values of nodes [N, H, D] as blocks, padded with zeros, [M, C, H / C * Q, D]."""
    nodes, all_heads, width = values.shape
    count = -(-nodes // size)
    padded = values.new_empty(count * size, all_heads, width)
    padded[:nodes], padded[nodes:] = values, 0
    split = padded.view(count, size, heads, all_heads // heads, width)
    return split.permute(0, 2, 3, 1, 4).reshape(count, heads, -1, width)


def _as_nodes(blocks: Tensor, nodes: int, copies: int) -> Tensor:
    """Return blocks [M, C, copies * Q, D] as values of nodes, [N, H, D]."""
    split = blocks.unflatten(2, (copies, -1)).permute(0, 3, 1, 2, 4)
    return split.reshape(-1, blocks.shape[1] * copies, blocks.shape[3])[:nodes]
