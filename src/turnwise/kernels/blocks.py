"""The attention of a forest, divided into a few calls of dense kernels without masked pairs.

Provides `plan_calls`. A run is a maximal unbranched path of nodes. It attends to itself causally,
and each of its descendants attends to all of it, so triangles and rectangles cover exactly the
pairs of a node and its ancestors. Short runs would make many small rectangles; their nodes are
instead prepended to the runs below them. The module is pure numpy.

Shapes: N nodes, B blocks in one call, Q queries and K keys of a block.
"""

from __future__ import annotations

from collections import defaultdict
from dataclasses import dataclass

import numpy as np

from turnwise.types import BoolArray, IntArray

MIN_RUN = 16
"""Runs with fewer nodes, inherited ones included, are prepended to the runs below them."""
MAX_PADDING = 1.15
"""Blocks whose lengths differ by at most this factor share a call, padded to the longest."""


@dataclass(frozen=True, kw_only=True, slots=True, eq=False)
class BlockCall:
    """One kernel call: B blocks of nodes that attend causally to themselves, or to `keys`.

    `queries` is [B, Q]. `keys` is [B, K], or None for causal attention of the queries to
    themselves. `valid` [B, Q] marks the results to use; the other results are padding or belong to
    another block. No node is valid twice in a call.
    """

    queries: IntArray
    keys: IntArray | None
    valid: BoolArray

    @property
    def pairs(self) -> int:
        """The number of query-key pairs computed; a triangle counts half of its square."""
        blocks, queries = self.queries.shape
        if self.keys is None:
            return blocks * queries * (queries + 1) // 2
        return blocks * queries * self.keys.shape[1]


def plan_calls(end: IntArray, depth: IntArray) -> list[BlockCall]:
    """Return the calls that cover every pair of a node and an ancestor (or itself) once.

    Args:
        end: the end of each node's subtree, [N]; nodes are in depth-first order (`Forest.end`).
        depth: each node's depth, [N].

    Example:
        >>> calls = plan_calls(np.array([4, 4, 3, 4]), np.array([0, 1, 2, 2]))
        >>> [(call.queries.tolist(), call.valid.astype(int).tolist()) for call in calls]
        [([[0, 1, 2], [0, 1, 3]], [[0, 0, 1], [0, 0, 1]]), ([[0, 1]], [[1, 1]])]
    """
    triangles: list[tuple[IntArray, int]] = []  # nodes, and how many of them are inherited
    rectangles: list[tuple[IntArray, IntArray, int]] = []  # queries, keys, number of runs above
    nodes = np.arange(len(end))
    continues = np.zeros(len(end), dtype=bool)
    continues[1:] = (depth[1:] == depth[:-1] + 1) & (end[1:] == end[:-1])
    starts = np.flatnonzero(~continues).tolist()
    above: list[tuple[int, IntArray]] = []  # of each open run: end of its subtree, nodes to inherit
    for start, stop in zip(starts, [*starts[1:], len(end)], strict=True):
        while above and above[-1][0] <= start:
            above.pop()
        carried = above[-1][1] if above else nodes[:0]
        run, last = np.concatenate([carried, nodes[start:stop]]), int(end[start])
        triangles.append((run, len(carried)))
        if last == stop:
            continue
        if len(run) >= MIN_RUN:
            rectangles.append((nodes[stop:last], run, len(above)))
            run = nodes[:0]
        above.append((last, run))
    return [*_triangle_calls(triangles), *_rectangle_calls(rectangles)]


def _triangle_calls(blocks: list[tuple[IntArray, int]]) -> list[BlockCall]:
    calls: list[BlockCall] = []
    for some in _group_by_length([len(run) for run, _ in blocks]):
        queries, valid = _padded([blocks[i][0] for i in some])
        for line, i in zip(valid, some, strict=True):
            line[: blocks[i][1]] = False
        calls.append(BlockCall(queries=queries, keys=None, valid=valid))
    return calls


def _rectangle_calls(blocks: list[tuple[IntArray, IntArray, int]]) -> list[BlockCall]:
    """Return calls of equal key widths in which no node occurs twice.

    A node that occurred twice in a call would need two results. Runs of one level share no
    descendant, so each call takes its blocks from one level.
    """
    calls: list[BlockCall] = []
    kinds: defaultdict[tuple[int, int], list[tuple[IntArray, IntArray]]] = defaultdict(list)
    for queries, keys, level in blocks:
        kinds[len(keys), level].append((queries, keys))
    for kind in sorted(kinds):
        same = kinds[kind]
        for some in _group_by_length([len(queries) for queries, _ in same]):
            queries, valid = _padded([same[i][0] for i in some])
            keys = np.stack([same[i][1] for i in some])
            calls.append(BlockCall(queries=queries, keys=keys, valid=valid))
    return calls


def _group_by_length(sizes: list[int]) -> list[list[int]]:
    """Group the indices of lengths within `MAX_PADDING` of each other, the longest first."""
    groups: list[list[int]] = []
    largest = 0
    for i in sorted(range(len(sizes)), key=lambda i: (-sizes[i], i)):
        if not groups or largest > MAX_PADDING * sizes[i]:
            groups.append([])
            largest = sizes[i]
        groups[-1].append(i)
    return groups


def _padded(runs: list[IntArray]) -> tuple[IntArray, BoolArray]:
    """Return runs as one array, padded at the end with node 0, and a mask of the real entries.

    Attention in a triangle is causal, so no real node sees the padding.
    """
    lengths = np.array([len(run) for run in runs])
    filled = np.arange(int(lengths.max())) < lengths[:, None]
    nodes = np.zeros(filled.shape, dtype=np.int64)
    nodes[filled] = np.concatenate(runs)
    return nodes, filled
