"""The attention of a forest, divided into blocks of neighbouring nodes for a few kernel calls.

Provides `plan_calls`. Nodes are in depth-first order, so an ancestor of a node in a block is in the
block itself or an ancestor of the block's first node. Each block therefore attends to these
ancestors and to itself under a mask. Blocks of similar numbers of keys share a kernel call. The
module is pure numpy.

Shapes: N nodes, B blocks in one call, Q queries and K keys of a block.
"""

from __future__ import annotations

from dataclasses import dataclass

import numpy as np

from turnwise.types import BoolArray, IntArray

SMALL, LARGE = 32, 64
"""Nodes of a block where nodes have fewer ancestors than `MANY` in the mean, and where more.

A larger block copies the keys above it less often, and masks more of its own keys."""
MANY = 128
CALL_COST = 6_000
"""The cost of another call, in query-key pairs."""
MOST_PAIRS = 1 << 20
"""Pairs of a call beyond which it is divided, to bound the memory of its masks and copies."""


@dataclass(frozen=True, kw_only=True, slots=True, eq=False)
class BlockCall:
    """One kernel call over B blocks: block b has the nodes [b * Q, (b + 1) * Q), below N.

    `blocks` [B] are the numbers of the blocks. `keys` [B, K] are the nodes that they attend to,
    padded with N. `visible` [B, Q, K] marks the keys that a node attends to; queries beyond the
    last node see all keys.
    """

    blocks: IntArray
    keys: IntArray
    visible: BoolArray


def block_size(depth: IntArray) -> int:
    """Return the nodes of a block (Q) for a forest whose nodes have these depths, [N]."""
    return SMALL if depth.sum() < MANY * len(depth) else LARGE


def plan_calls(end: IntArray, depth: IntArray) -> list[BlockCall]:
    """Return the calls that cover every pair of a node and an ancestor (or itself) once.

    Args:
        end: the end of each node's subtree, [N]; nodes are in depth-first order (`Forest.end`).
        depth: each node's depth, [N].

    Example:
        >>> (call,) = plan_calls(np.array([4, 4, 3, 4]), np.array([0, 1, 2, 2]))
        >>> call.keys.tolist(), call.visible[0, :4].astype(int).tolist()
        ([[0, 1, 2, 3]], [[1, 0, 0, 0], [1, 1, 0, 0], [1, 1, 1, 0], [1, 1, 0, 1]])
    """
    size, count = block_size(depth), len(end)
    nodes = np.arange(count)
    keys: list[IntArray] = []
    above = nodes[:0]
    for first in range(0, count, size):
        above = np.concatenate([above[end[above] > first], nodes[first : first + size]])
        keys.append(above)
    return [
        _call(np.array(some), [keys[i] for i in some], end, size)
        for some in _groups([len(each) for each in keys], size)
    ]


def _groups(widths: list[int], size: int) -> list[list[int]]:
    """Group blocks by their numbers of keys, the largest first.

    A group ends when its padding costs as much as another call.
    """
    groups: list[list[int]] = []
    widest = waste = 0
    for i in sorted(range(len(widths)), key=lambda i: (-widths[i], i)):
        padding = (widest - widths[i]) * size
        full = bool(groups) and (len(groups[-1]) + 1) * widest * size > MOST_PAIRS
        if not groups or full or waste + padding > CALL_COST:
            groups.append([])
            widest, waste, padding = widths[i], 0, 0
        groups[-1].append(i)
        waste += padding
    return groups


def _call(blocks: IntArray, keys: list[IntArray], end: IntArray, size: int) -> BlockCall:
    """Return the call over some blocks; the first one has the most keys."""
    count = len(end)
    filled = np.arange(len(keys[0])) < np.array([len(each) for each in keys])[:, None]
    padded = np.full(filled.shape, count)
    padded[filled] = np.concatenate(keys)
    queries = (blocks[:, None] * size + np.arange(size))[..., None]
    ends = np.append(end, 0)[padded][:, None]
    visible = (padded[:, None] <= queries) & (queries < ends) | (queries >= count)
    return BlockCall(blocks=blocks, keys=padded, visible=visible)
