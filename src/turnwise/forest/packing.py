"""The division of rows into tries and of tries into micro-batches, under the budgets.

Provides `plan_cuts` and `plan_batches`, in numpy. The cost of a trie of n nodes, in tokens, is
n + n * n / break_even: the linear layers and the attention.
"""

from __future__ import annotations

import numpy as np

from turnwise.errors import TrainingError
from turnwise.forest.config import END_TO_END, ForestConfig, Layout
from turnwise.forest.trie import SortedRows
from turnwise.types import IntArray

CALL_COST = 256.0
"""The cost of another forward and backward call, in tokens."""


def plan_cuts(table: SortedRows, config: ForestConfig, layout: Layout) -> IntArray:
    """Return the sorted rows at which a new trie begins.

    Flat rows are tries of one row. For trees, neighbouring rows are merged in order of decreasing
    common prefix, if that is cheaper than computing the prefix again and within the budgets.

    Raises:
        TrainingError: if a single row exceeds the mask budget.
    """
    _check_rows(table, config, layout)
    count = len(table.rows)
    if layout == "flat":
        return np.arange(count)
    largest = _largest_trie(config, layout)
    sizes, shared = table.lengths.tolist(), table.shared.tolist()
    first, last = list(range(count)), list(range(count))  # of a segment, stored at its outer rows
    begins = np.ones(count, dtype=bool)
    for right in np.argsort(-table.shared, kind="stable").tolist():
        prefix = shared[right]
        if prefix <= 0:
            break
        left = first[right - 1]
        a, b = sizes[left], sizes[right]
        joined = a + b - prefix
        saved = float(prefix)
        if layout == "padded":
            saved += (a * a + b * b - joined * joined) / config.break_even
        if joined <= largest and saved > 0:
            begins[right] = False
            sizes[left] = joined
            end = last[right]
            first[end], last[left] = left, end
    return np.flatnonzero(begins)


def plan_batches(sizes: IntArray, config: ForestConfig, layout: Layout) -> list[IntArray]:
    """Return the tries of each micro-batch.

    Concatenated tries keep their order, and a micro-batch takes as many as the budget allows. Other
    tries are sorted by decreasing size, so that a micro-batch has tries of similar sizes. It ends
    when a budget is reached, or when its padding costs as much as another call.
    """
    if layout in END_TO_END:
        return _fill(sizes, config.tokens)
    order = np.argsort(-sizes, kind="stable").tolist()
    batches: list[list[int]] = []
    width, waste = 0, 0.0
    for trie in order:
        size = int(sizes[trie])
        padding = _cost(width, config, layout) - _cost(size, config, layout)
        if (
            not batches
            or waste + padding > CALL_COST
            or _full(len(batches[-1]) + 1, width, config, layout)
        ):
            batches.append([])
            width, waste, padding = size, 0.0, 0.0
        batches[-1].append(trie)
        waste += padding
    return [np.array(sorted(batch), dtype=np.int64) for batch in batches]


def _fill(sizes: IntArray, budget: int) -> list[IntArray]:
    """Return runs of neighbours whose sizes sum to at most `budget`."""
    batches: list[list[int]] = []
    taken = 0
    for trie, size in enumerate(sizes.tolist()):
        if not batches or taken + size > budget:
            batches.append([])
            taken = 0
        batches[-1].append(trie)
        taken += size
    return [np.array(batch, dtype=np.int64) for batch in batches]


def _cost(size: int, config: ForestConfig, layout: Layout) -> float:
    """Return the cost of a trie in tokens; attention of a flat row skips the upper triangle."""
    pairs = size * size if layout == "padded" else size * size / 2
    return size + pairs / config.break_even


def _full(count: int, width: int, config: ForestConfig, layout: Layout) -> bool:
    tokens = count * width
    return tokens > config.tokens or (layout == "padded" and tokens * width > config.mask_budget)


def _largest_trie(config: ForestConfig, layout: Layout) -> int:
    """Return the largest number of nodes of a trie that is alone in its micro-batch."""
    if layout == "padded":
        return min(config.tokens, int(np.floor(np.sqrt(config.mask_budget))))
    return config.tokens


def _check_rows(table: SortedRows, config: ForestConfig, layout: Layout) -> None:
    if layout != "padded":
        return
    longest = int(table.lengths.max(initial=0))
    limit = int(np.floor(np.sqrt(config.mask_budget)))
    if longest > limit:
        sample = int(table.rows[table.lengths.argmax()])
        raise TrainingError(
            f"sample {sample} has a row of {longest} tokens, but the mask of one micro-batch holds "
            f"at most {limit}: set forest.mask_budget >= {longest * longest}, or shorten the "
            "context"
        )
