"""Exact attention over a forest that computes only the pairs of a node and its ancestors.

Provides `TreePlan`. `blocks.plan_calls` chooses the blocks that cover a forest.

A node attends to its own run and to the runs above it, each in one kernel call. The outputs are
combined by their log-sums (as in FlashAttention, Dao et al. 2022, arXiv:2205.14135, section 3.1).
The backward pass gives the kernel of each part the combined output and log-sum, so its gradients
are those of the whole.

Shapes: N nodes, H query heads, D width of a head; B blocks of Q queries and K keys.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from typing import Any

import torch
from torch import Tensor, nn

from turnwise.kernels.blocks import BlockCall, plan_calls
from turnwise.types import IntArray

FORWARD = torch.ops.aten._scaled_dot_product_flash_attention_for_cpu
BACKWARD = torch.ops.aten._scaled_dot_product_flash_attention_for_cpu_backward


@dataclass(frozen=True, kw_only=True, slots=True, eq=False)
class Block:
    """A `BlockCall` as tensors: queries [B, Q], and keys [B, K] or None.

    `nodes` [n] are the valid queries, and `slots` their indices among B x Q, or None if all B x Q
    are valid.
    """

    queries: Tensor
    keys: Tensor | None
    nodes: Tensor
    slots: Tensor | None

    @classmethod
    def of(cls, call: BlockCall) -> Block:
        """Return the tensors of a call, on the CPU."""
        queries, counts = torch.from_numpy(call.queries), torch.from_numpy(call.valid)
        every = bool(counts.all())
        return cls(
            queries=queries,
            keys=None if call.keys is None else torch.from_numpy(call.keys),
            nodes=queries.flatten() if every else queries[counts],
            slots=None if every else counts.flatten().nonzero()[:, 0],
        )


@dataclass(frozen=True, kw_only=True, slots=True, eq=False)
class TreePlan:
    """Attention of a forest's nodes, in depth-first order, to their ancestors.

    `pairs` is the number of query-key pairs computed, including padding. `deepest` is the largest
    depth.
    """

    blocks: tuple[Block, ...]
    pairs: int
    deepest: int

    @classmethod
    def of(cls, end: IntArray, depth: IntArray) -> TreePlan:
        """Return the plan of a forest from the end of each node's subtree and its depth, [N]."""
        calls = plan_calls(end, depth)
        return cls(
            blocks=tuple(map(Block.of, calls)),
            pairs=sum(call.pairs for call in calls),
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
        copies = q.shape[1] // k.shape[1]
        if copies > 1:
            k, v = (t.repeat_interleave(copies, dim=1) for t in (k, v))
        return _TreeAttention.apply(q, k, v, self.blocks, scale)[None]


class _TreeAttention(torch.autograd.Function):
    """Attention of [N, H, D] queries, keys and values under the blocks of a plan."""

    @staticmethod
    def forward(
        ctx: Any, query: Tensor, key: Tensor, value: Tensor, blocks: Sequence[Block], scale: float
    ) -> Tensor:
        output = torch.empty_like(query, memory_format=torch.contiguous_format)
        total = query.new_empty(query.shape[:2], dtype=torch.float32)
        for block in blocks:
            q, k, v = _gather(block, query, key, value)
            found, log_sum = FORWARD(q, k, v, 0.0, block.keys is None, scale=scale)
            found = found.transpose(1, 2).flatten(0, 1)  # [B * Q, H, D]
            log_sum = log_sum.transpose(1, 2).flatten(0, 1)  # [B * Q, H]
            if block.slots is not None:
                found, log_sum = found[block.slots], log_sum[block.slots]
            if (
                block.keys is None
            ):  # every node is in one triangle, and triangles precede rectangles
                output[block.nodes], total[block.nodes] = found, log_sum
            else:
                before = total[block.nodes]
                both = torch.logaddexp(before, log_sum)
                joined = output[block.nodes] * (before - both).exp()[..., None]
                joined += found * (log_sum - both).exp()[..., None]
                output[block.nodes], total[block.nodes] = joined.to(output.dtype), both
        ctx.save_for_backward(query, key, value, output, total)
        ctx.blocks, ctx.scale = blocks, scale
        return output

    @staticmethod
    def backward(ctx: Any, *slopes: Any) -> tuple[Tensor | None, ...]:
        (gradient,) = slopes
        query, key, value, output, total = ctx.saved_tensors
        gradients = [torch.zeros_like(t, dtype=torch.float32) for t in (query, key, value)]
        for block in ctx.blocks:
            q, k, v = _gather(block, query, key, value)
            size = block.queries.shape
            wanted = gradient[block.queries.flatten()]
            if block.slots is not None:
                kept = torch.zeros_like(wanted)
                kept[block.slots] = wanted[block.slots]
                wanted = kept
            found = BACKWARD(
                wanted.unflatten(0, size).transpose(1, 2),
                q,
                k,
                v,
                output[block.queries.flatten()].unflatten(0, size).transpose(1, 2),
                total[block.queries.flatten()].unflatten(0, size).transpose(1, 2),
                0.0,
                block.keys is None,
                scale=ctx.scale,
            )
            keys = block.queries if block.keys is None else block.keys
            for whole, part, nodes in zip(
                gradients, found, (block.queries, keys, keys), strict=True
            ):
                rows = part.transpose(1, 2).flatten(0, 1).float()
                whole.index_add_(0, nodes.flatten(), rows)
        return (*(g.to(query.dtype) for g in gradients), None, None)


def _gather(block: Block, query: Tensor, key: Tensor, value: Tensor) -> list[Tensor]:
    """Return a block's queries, keys and values, each [B, H, Q or K, D]."""
    keys = block.queries if block.keys is None else block.keys
    return [
        whole[nodes.flatten()].unflatten(0, nodes.shape).transpose(1, 2)
        for whole, nodes in ((query, block.queries), (key, keys), (value, keys))
    ]
