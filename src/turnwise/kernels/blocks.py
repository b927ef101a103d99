"""A forest's attention as a few calls of ordinary kernels, none of which computes what is masked.

Owns the plan: which nodes ask which. An unbranched run of nodes sees itself causally, and all that
descends from it sees all of it, so triangles and rectangles cover exactly the pairs of a node and
its ancestors. Runs of a few tokens would make many small rectangles; their nodes are carried down
into the next ones instead. Pure numpy; knows nothing of models or kernels.

Shapes: N nodes, B blocks in one call, Q queries and K keys of a block.
"""

from __future__ import annotations

from collections import defaultdict
from dataclasses import dataclass

import numpy as np

from turnwise.types import BoolArray, IntArray

SHORT = 16
"""Runs of fewer nodes, with what was carried to them, are carried down."""
WASTE = 1.15
"""Blocks within this factor in length share a call, padded to the longest."""


@dataclass(frozen=True, kw_only=True, slots=True, eq=False)
class Call:
    """One kernel call: B blocks of nodes that look at themselves causally, or at `keys`.

    `queries` is [B, Q] and `keys` [B, K], or None where every query sees the queries before it and
    itself. `counts` [B, Q] says which results count: the others are padding, or belong to another
    block. No node counts twice.
    """

    queries: IntArray
    keys: IntArray | None
    counts: BoolArray

    @property
    def pairs(self) -> int:
        """The query-key pairs that are computed; of a triangle, half of the square."""
        blocks, queries = self.queries.shape
        if self.keys is None:
            return blocks * queries * (queries + 1) // 2
        return blocks * queries * self.keys.shape[1]


def plan_calls(end: IntArray, depth: IntArray) -> list[Call]:
    """Return the calls that cover every (node, ancestor or itself) once.

    Args:
        end: where each node's subtree ends, [N]; nodes are in depth-first order (`Forest.end`).
        depth: each node's depth, [N].

    Example:
        >>> calls = plan_calls(np.array([4, 4, 3, 4]), np.array([0, 1, 2, 2]))
        >>> [(call.queries.tolist(), call.counts.astype(int).tolist()) for call in calls]
        [([[0, 1, 2], [0, 1, 3]], [[0, 0, 1], [0, 0, 1]]), ([[0, 1]], [[1, 1]])]
    """
    triangles: list[tuple[IntArray, int]] = []  # nodes, how many of them were carried
    rectangles: list[tuple[IntArray, IntArray, int]] = []  # queries, keys, how many runs above
    nodes = np.arange(len(end))
    goes_on = np.zeros(len(end), dtype=bool)
    goes_on[1:] = (depth[1:] == depth[:-1] + 1) & (end[1:] == end[:-1])
    starts = np.flatnonzero(~goes_on).tolist()
    above: list[tuple[int, IntArray]] = []  # of each open run: its subtree's end, what it carries
    for start, stop in zip(starts, [*starts[1:], len(end)], strict=True):
        while above and above[-1][0] <= start:
            above.pop()
        carried = above[-1][1] if above else nodes[:0]
        run, last = np.concatenate([carried, nodes[start:stop]]), int(end[start])
        triangles.append((run, len(carried)))
        if last == stop:
            continue
        if len(run) >= SHORT:
            rectangles.append((nodes[stop:last], run, len(above)))
            run = nodes[:0]
        above.append((last, run))
    return [*_triangle_calls(triangles), *_rectangle_calls(rectangles)]


def _triangle_calls(blocks: list[tuple[IntArray, int]]) -> list[Call]:
    calls: list[Call] = []
    for some in _alike([len(run) for run, _ in blocks]):
        queries, counts = _padded([blocks[i][0] for i in some])
        for line, i in zip(counts, some, strict=True):
            line[: blocks[i][1]] = False
        calls.append(Call(queries=queries, keys=None, counts=counts))
    return calls


def _rectangle_calls(blocks: list[tuple[IntArray, IntArray, int]]) -> list[Call]:
    """Return calls of equal key widths, with no node twice in one: its results would be one.

    A node descends from runs at different levels only, so runs of a level share no descendant.
    """
    calls: list[Call] = []
    kinds: defaultdict[tuple[int, int], list[tuple[IntArray, IntArray]]] = defaultdict(list)
    for queries, keys, level in blocks:
        kinds[len(keys), level].append((queries, keys))
    for kind in sorted(kinds):
        same = kinds[kind]
        for some in _alike([len(queries) for queries, _ in same]):
            queries, counts = _padded([same[i][0] for i in some])
            keys = np.stack([same[i][1] for i in some])
            calls.append(Call(queries=queries, keys=keys, counts=counts))
    return calls


def _alike(sizes: list[int]) -> list[list[int]]:
    """Group indices of sizes within `WASTE` of each other, the largest first."""
    groups: list[list[int]] = []
    largest = 0
    for i in sorted(range(len(sizes)), key=lambda i: (-sizes[i], i)):
        if not groups or largest > WASTE * sizes[i]:
            groups.append([])
            largest = sizes[i]
        groups[-1].append(i)
    return groups


def _padded(runs: list[IntArray]) -> tuple[IntArray, BoolArray]:
    """Return runs as one array, padded with node 0 at the end, and which entries are not padding.

    A node sees nothing after itself, so padding at the end of a triangle is never seen.
    """
    lengths = np.array([len(run) for run in runs])
    filled = np.arange(int(lengths.max())) < lengths[:, None]
    nodes = np.zeros(filled.shape, dtype=np.int64)
    nodes[filled] = np.concatenate(runs)
    return nodes, filled
