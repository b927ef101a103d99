"""Exact attention over a forest on accelerators: PyTorch's FlexAttention under a block mask.

Owns `FlexPlan`. A node sees those before it in whose subtrees it lies, so the blocks of 128 nodes
by 128 that must be looked at follow from where subtrees end; the others cost nothing (Dong et al.
2024, arXiv:2412.05496). Compiled once, with sizes left open.

Shapes: N nodes, end to end in depth-first order, in blocks of 128.
"""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass, field
from functools import cache
from typing import Any

import numpy as np
import torch
from torch import Tensor, nn
from torch.nn.attention.flex_attention import BlockMask, flex_attention

from turnwise.types import BoolArray, IntArray

BLOCK = 128


@dataclass(frozen=True, kw_only=True, slots=True, eq=False)
class FlexPlan:
    """Attention of a forest's nodes to their ancestors, windows and soft-caps included.

    `end` and `depth` are [N]: where each node's subtree ends, and its depth. `some` and `whole`
    [blocks, blocks] say in which blocks some pair is to be seen, and in which all are.
    """

    end: IntArray
    depth: IntArray
    some: BoolArray
    whole: BoolArray
    masks: dict[tuple[torch.device, int | None], BlockMask] = field(default_factory=dict)

    @classmethod
    def of(cls, end: IntArray, depth: IntArray) -> FlexPlan:
        """Return the plan of a forest (see `blocks.plan_calls`).

        Example:
            >>> plan = FlexPlan.of(np.full(256, 256), np.arange(256))
            >>> plan.some.astype(int).tolist(), plan.whole.astype(int).tolist()
            ([[1, 0], [1, 1]], [[0, 0], [1, 0]])
        """
        count = -(-len(end) // BLOCK)
        padded = np.pad(end, (0, count * BLOCK - len(end)), mode="edge").reshape(count, BLOCK)
        row, column = np.indices((count, count))
        stop = np.minimum((row + 1) * BLOCK, len(end))
        some = (column <= row) & (row * BLOCK < padded.max(1)[column])
        whole = (column < row) & (padded.min(1)[column] >= stop)
        return cls(end=end, depth=depth, some=some, whole=whole)

    @property
    def pairs(self) -> int:
        """The query-key pairs that are computed."""
        return int(self.some.sum()) * BLOCK * BLOCK

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
        found = _kernel(query.device.type)(
            query,
            key,
            value,
            score_mod=None if softcap is None else _capped(softcap, query.device),
            block_mask=self._mask(query.device, window),
            scale=scale,
            enable_gqa=query.shape[1] != key.shape[1],
        )
        assert isinstance(found, Tensor)
        return found.transpose(1, 2)

    def _mask(self, device: torch.device, window: int | None) -> BlockMask:
        """Return the block mask of layers with this window; made once for all of them."""
        if window is not None and window > int(self.depth.max(initial=0)):
            window = None
        if (device, window) not in self.masks:
            self.masks[device, window] = self._make_mask(device, window)
        return self.masks[device, window]

    def _make_mask(self, device: torch.device, window: int | None) -> BlockMask:
        end, depth = (torch.from_numpy(array).to(device) for array in (self.end, self.depth))
        far = len(self.end) if window is None else window

        def sees(batch: Tensor, head: Tensor, i: Tensor, j: Tensor) -> Tensor:
            return (j <= i) & (i < end[j])

        def sees_near(batch: Tensor, head: Tensor, i: Tensor, j: Tensor) -> Tensor:
            return (j <= i) & (i < end[j]) & (depth[i] - depth[j] < far)

        whole = self.whole if window is None else np.zeros_like(self.whole)
        partial = _listed(self.some & ~whole, device)
        full = _listed(whole, device)
        return BlockMask.from_kv_blocks(
            *partial,
            *full,
            BLOCK_SIZE=BLOCK,
            mask_mod=sees if window is None else sees_near,
            seq_lengths=(len(self.end), len(self.end)),
        )


def _listed(wanted: BoolArray, device: torch.device) -> tuple[Tensor, Tensor]:
    """Return how many blocks of each row are wanted, and which, those first, [1, 1, ...]."""
    order = np.argsort(~wanted, axis=1, kind="stable").astype(np.int32)
    counts = wanted.sum(1).astype(np.int32)
    return (
        torch.from_numpy(counts)[None, None].to(device),
        torch.from_numpy(order)[None, None].to(device),
    )


@cache
def _capped(softcap: float, device: torch.device) -> Callable[..., Tensor]:
    cap = torch.tensor(softcap, device=device)  # of a second number, the compiler makes a symbol

    def capped(score: Tensor, batch: Tensor, head: Tensor, i: Tensor, j: Tensor) -> Tensor:
        return cap * torch.tanh(score / cap)

    return capped


@cache
def _kernel(device: str) -> Callable[..., Any]:
    """Return the compiled kernel; on CPUs, where it has no backward pass, what it is defined by."""
    return flex_attention if device == "cpu" else torch.compile(flex_attention, dynamic=True)
