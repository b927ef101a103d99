"""Exact attention over a forest: only pairs of a node and its ancestors are ever computed.

Owns `TreePlan`. Which blocks cover a forest, `blocks` says.

A node's attention is over its own run and over runs above it, each one kernel call. The parts are
joined by their log-sums (as in FlashAttention, Dao et al. 2022, arXiv:2205.14135, section 3.1), and
the backward pass gives each part's kernel the joined output and log-sum, which makes its gradients
those of the whole.

Shapes: N nodes, H query heads, D width of a head; B blocks of Q queries and K keys.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from typing import Any

import torch
from torch import Tensor, nn

from turnwise.kernels.blocks import Call, plan_calls
from turnwise.types import IntArray

FORWARD = torch.ops.aten._scaled_dot_product_flash_attention_for_cpu
BACKWARD = torch.ops.aten._scaled_dot_product_flash_attention_for_cpu_backward


@dataclass(frozen=True, kw_only=True, slots=True, eq=False)
class Block:
    """A `Call` as tensors: queries [B, Q], keys [B, K] or None, and what counts of the queries.

    `nodes` are the queries that count, [n], and `places` where they are among B x Q; each None
    where it is all of them in their order.
    """

    queries: Tensor
    keys: Tensor | None
    nodes: Tensor
    places: Tensor | None

    @classmethod
    def of(cls, call: Call) -> Block:
        """Return a call's tensors, on the CPU."""
        queries, counts = torch.from_numpy(call.queries), torch.from_numpy(call.counts)
        every = bool(counts.all())
        return cls(
            queries=queries,
            keys=None if call.keys is None else torch.from_numpy(call.keys),
            nodes=queries.flatten() if every else queries[counts],
            places=None if every else counts.flatten().nonzero()[:, 0],
        )


@dataclass(frozen=True, kw_only=True, slots=True, eq=False)
class TreePlan:
    """Attention of a forest's nodes, end to end in depth-first order, to their ancestors.

    `pairs` are the query-key pairs that are computed, padding included; `deepest` is the largest
    depth.
    """

    blocks: tuple[Block, ...]
    pairs: int
    deepest: int

    @classmethod
    def of(cls, end: IntArray, depth: IntArray) -> TreePlan:
        """Return the plan of a forest: where each node's subtree ends, and its depth, each [N]."""
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
        """Attend in one layer (see `attention.Plan`); the batch is one."""
        if softcap is not None or (window is not None and window <= self.deepest):
            raise ValueError("attention over a forest has neither soft-caps nor windows")
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
            q, k, v = _taken(block, query, key, value)
            found, log_sum = FORWARD(q, k, v, 0.0, block.keys is None, scale=scale)
            found = found.transpose(1, 2).flatten(0, 1)  # [B * Q, H, D]
            log_sum = log_sum.transpose(1, 2).flatten(0, 1)  # [B * Q, H]
            if block.places is not None:
                found, log_sum = found[block.places], log_sum[block.places]
            if block.keys is None:  # every node is in one triangle, and triangles come first
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
            q, k, v = _taken(block, query, key, value)
            size = block.queries.shape
            wanted = gradient[block.queries.flatten()]
            if block.places is not None:
                kept = torch.zeros_like(wanted)
                kept[block.places] = wanted[block.places]
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


def _taken(block: Block, query: Tensor, key: Tensor, value: Tensor) -> list[Tensor]:
    """Return a block's queries, keys and values, each [B, H, Q or K, D]."""
    keys = block.queries if block.keys is None else block.keys
    return [
        whole[nodes.flatten()].unflatten(0, nodes.shape).transpose(1, 2)
        for whole, nodes in ((query, block.queries), (key, keys), (value, keys))
    ]
