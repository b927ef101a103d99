"""Exact attention over a forest on accelerators: FlexAttention of PyTorch with a block mask.

Provides `FlexPlan`. A node attends to the nodes whose subtrees contain it. The ends of the subtrees
therefore determine which blocks of 128 x 128 nodes have any pair; the other blocks are skipped
(Dong et al. 2024, arXiv:2412.05496). The kernel is compiled once, with dynamic sizes.

Shapes: N nodes of all tries in depth-first order, in blocks of 128.
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
    """Attention of a forest's nodes to their ancestors, with windows and soft-caps.

    `end` and `depth` [N] are the end of each node's subtree and its depth. `visible` and `full`
    [blocks, blocks] mark the blocks with at least one pair, and the blocks with all pairs.
    """

    end: IntArray
    depth: IntArray
    visible: BoolArray
    full: BoolArray
    masks: dict[tuple[torch.device, int | None], BlockMask] = field(default_factory=dict)

    @classmethod
    def of(cls, end: IntArray, depth: IntArray) -> FlexPlan:
        """Return the plan of a forest (see `blocks.plan_calls`).

        Example:
            >>> plan = FlexPlan.of(np.full(256, 256), np.arange(256))
            >>> plan.visible.astype(int).tolist(), plan.full.astype(int).tolist()
            ([[1, 0], [1, 1]], [[0, 0], [1, 0]])
        """
        count = -(-len(end) // BLOCK)
        padded = np.pad(end, (0, count * BLOCK - len(end)), mode="edge").reshape(count, BLOCK)
        row, column = np.indices((count, count))
        stop = np.minimum((row + 1) * BLOCK, len(end))
        visible = (column <= row) & (row * BLOCK < padded.max(1)[column])
        full = (column < row) & (padded.min(1)[column] >= stop)
        return cls(end=end, depth=depth, visible=visible, full=full)

    @property
    def pairs(self) -> int:
        """The number of query-key pairs computed."""
        return int(self.visible.sum()) * BLOCK * BLOCK

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
        output = _kernel(query.device.type)(
            query,
            key,
            value,
            score_mod=None if softcap is None else _softcap_score(softcap, query.device),
            block_mask=self._mask(query.device, window),
            scale=scale,
            enable_gqa=query.shape[1] != key.shape[1],
        )
        assert isinstance(output, Tensor)
        return output.transpose(1, 2)

    def _mask(self, device: torch.device, window: int | None) -> BlockMask:
        """Return the block mask of layers with this window; it is cached."""
        if window is not None and window > int(self.depth.max(initial=0)):
            window = None
        if (device, window) not in self.masks:
            self.masks[device, window] = self._make_mask(device, window)
        return self.masks[device, window]

    def _make_mask(self, device: torch.device, window: int | None) -> BlockMask:
        end, depth = (torch.from_numpy(array).to(device) for array in (self.end, self.depth))
        far = len(self.end) if window is None else window

        def is_ancestor(batch: Tensor, head: Tensor, i: Tensor, j: Tensor) -> Tensor:
            return (j <= i) & (i < end[j])

        def is_near_ancestor(batch: Tensor, head: Tensor, i: Tensor, j: Tensor) -> Tensor:
            return (j <= i) & (i < end[j]) & (depth[i] - depth[j] < far)

        full = self.full if window is None else np.zeros_like(self.full)
        return BlockMask.from_kv_blocks(
            *_block_lists(self.visible & ~full, device),
            *_block_lists(full, device),
            BLOCK_SIZE=BLOCK,
            mask_mod=is_ancestor if window is None else is_near_ancestor,
            seq_lengths=(len(self.end), len(self.end)),
        )


def _block_lists(selected: BoolArray, device: torch.device) -> tuple[Tensor, Tensor]:
    """Return the number of selected blocks of each row, and block indices, selected ones first."""
    order = np.argsort(~selected, axis=1, kind="stable").astype(np.int32)
    counts = selected.sum(1).astype(np.int32)
    return (
        torch.from_numpy(counts)[None, None].to(device),
        torch.from_numpy(order)[None, None].to(device),
    )


@cache
def _softcap_score(softcap: float, device: torch.device) -> Callable[..., Tensor]:
    cap = torch.tensor(softcap, device=device)  # the compiler would make a Python float symbolic

    def capped(score: Tensor, batch: Tensor, head: Tensor, i: Tensor, j: Tensor) -> Tensor:
        return cap * torch.tanh(score / cap)

    return capped


@cache
def _kernel(device: str) -> Callable[..., Any]:
    """Return the compiled kernel; on CPUs, where it has no backward pass, the eager reference."""
    return flex_attention if device == "cpu" else torch.compile(flex_attention, dynamic=True)
