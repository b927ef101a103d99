"""Rows of tokens become tries: one node for every distinct prefix, in depth-first order.

Owns `Forest`, the arrays of many tries. Pure numpy; knows nothing of torch, models or budgets. Two
rows share a node if policy, version and all tokens up to it are equal; the position is the depth.
Only what a target depends on is kept: tokens from a row's last target on predict nothing.

Shapes: R rows with a target, V nodes, L longest row, S samples.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass

import numpy as np

from turnwise.errors import TrainingError
from turnwise.types import BoolArray, IntArray, Sample


@dataclass(frozen=True, kw_only=True, slots=True, eq=False)
class Columns:
    """All samples' tokens end to end, and which of them are targets.

    `token_ids`, `wanted` and `temperature` are [tokens]; `offsets` [S + 1] says where each sample
    starts; `used` [S] is how many tokens of each sample some target depends on.
    """

    token_ids: IntArray
    wanted: BoolArray
    offsets: IntArray
    used: IntArray


@dataclass(frozen=True, kw_only=True, slots=True, eq=False)
class SortedRows:
    """Rows in lexicographic order, so that rows that share a prefix are neighbours.

    `rows` [R] are indices into the samples, `lengths` [R] their used tokens, `tokens` [R, L] the
    token ids (-1 beyond a row's end). `shared` [R] counts the tokens that a row shares with the one
    before it; -1 where they differ in policy or version, and for the first row.
    """

    rows: IntArray
    lengths: IntArray
    tokens: IntArray
    shared: IntArray


@dataclass(frozen=True, kw_only=True, slots=True, eq=False)
class Forest:
    """Tries, end to end. Parents come before children and every subtree is one contiguous range.

    `token_ids`, `parent` (-1 for a root), `depth` (the position id) and `end` are [V]; the subtree
    of node j is [j, end[j]), so j is an ancestor of i, or i itself, iff j <= i < end[j]. Trie k
    holds nodes [starts[k], starts[k + 1]). Row r is sample `rows[r]` in trie `tries[r]`; its token
    t sits at node `paths[path_offsets[r] + t]`.

    Example:
        >>> from turnwise.types import TurnId
        >>> a = TurnId(iteration=0, visit=0, task="t", sample=0, role="player", turn=0)
        >>> left, right = (
        ...     Sample.of(policy="main", turns=(a,), token_ids=[5, 6, word, 2],
        ...               turn_index=[-1, -1, 0, 0]) for word in (7, 8))
        >>> forest = build([left, right])
        >>> forest.token_ids.tolist(), forest.parent.tolist(), forest.end.tolist()
        ([5, 6, 7, 8], [-1, 0, 1, 1], [4, 4, 3, 4])
        >>> [forest.path(row).tolist() for row in range(2)]
        [[0, 1, 2], [0, 1, 3]]
    """

    token_ids: IntArray
    parent: IntArray
    depth: IntArray
    end: IntArray
    starts: IntArray
    rows: IntArray
    tries: IntArray
    paths: IntArray
    path_offsets: IntArray

    def path(self, row: int) -> IntArray:
        """Return the nodes of row `row`, root first."""
        return self.paths[self.path_offsets[row] : self.path_offsets[row + 1]]


def build(samples: Sequence[Sample]) -> Forest:
    """Merge the rows of each (policy, version) that share a first token into one trie.

    Raises:
        TrainingError: if a sample's first token is a target.
    """
    table = sort_rows(samples, columns_of(samples))
    return grow(table, np.flatnonzero(table.shared <= 0))


def columns_of(samples: Sequence[Sample]) -> Columns:
    """Put the samples' tokens end to end and find their targets (`Sample.targets`)."""
    lengths = np.fromiter((len(s.token_ids) for s in samples), np.int64, len(samples))
    offsets = np.concatenate([[0], np.cumsum(lengths)])
    wanted = joined(samples, "sampled_mask", bool)
    wanted = wanted | (joined(samples, "ce_weight", np.float32) != 0)
    wanted |= joined(samples, "ref_kl_weight", np.float32) != 0
    where = np.flatnonzero(wanted)
    owner = np.repeat(np.arange(len(samples)), lengths)[where]
    position = where - offsets[owner]
    if (position == 0).any():
        first = int(owner[position == 0][0])
        raise TrainingError(
            f"sample {first} has its first token as a target, but nothing predicts it: "
            "start the row with a prompt or a BOS token, or set the weights of position 0 to 0"
        )
    used = np.zeros(len(samples), dtype=np.int64)
    used[owner] = position  # ascending within a sample, so the last target's position stays
    token_ids = joined(samples, "token_ids", np.int64)
    return Columns(token_ids=token_ids, wanted=wanted, offsets=offsets, used=used)


def joined(samples: Sequence[Sample], stream: str, dtype: type) -> np.ndarray:
    """Return one stream of all samples end to end, [tokens]."""
    parts = [np.empty(0, dtype=dtype), *(getattr(sample, stream) for sample in samples)]
    return np.concatenate(parts)


def sort_rows(samples: Sequence[Sample], columns: Columns) -> SortedRows:
    """Sort the rows that have a target by (policy, version) and tokens."""
    rows = np.flatnonzero(columns.used)
    lengths = columns.used[rows]
    width = int(lengths.max(initial=0))
    filled = np.arange(width) < lengths[:, None]
    tokens = np.full((len(rows), width), -1, dtype=np.int64)
    tokens[filled] = columns.token_ids[(columns.offsets[rows, None] + np.arange(width))[filled]]
    numbers: dict[tuple[str, int], int] = {}
    who = [
        numbers.setdefault((samples[r].policy, samples[r].policy_version), len(numbers))
        for r in rows.tolist()
    ]
    # Big-endian bytes order like numbers, so one sort of whole rows replaces one per position.
    keyed = np.column_stack([np.array(who, dtype=np.int64), tokens + 1]).astype(">u4")
    keys = keyed.view(np.dtype((np.void, keyed.shape[1] * 4)))[:, 0]
    order = np.argsort(keys, kind="stable")
    rows, lengths, tokens, keyed = rows[order], lengths[order], tokens[order], keyed[order]
    differs = keyed[1:] != keyed[:-1]
    common = np.where(differs.any(1), differs.argmax(1), lengths[1:] + 1) - 1
    shared = np.concatenate([[-1], common])[: len(rows)].astype(np.int64)
    return SortedRows(rows=rows, lengths=lengths, tokens=tokens, shared=shared)


def grow(table: SortedRows, first_rows: IntArray) -> Forest:
    """Merge neighbouring rows into tries; a trie begins at each of the rows `first_rows`.

    Rows of different tries share nothing, so a cut computes their common prefix again and changes
    no number.
    """
    count, width = table.tokens.shape
    shared = np.maximum(table.shared, 0)
    shared[first_rows] = 0
    base = np.concatenate([[0], np.cumsum(table.lengths - shared)])  # a row's first new node
    position = np.arange(width)
    filled = position < table.lengths[:, None]
    fresh = filled & (position >= shared[:, None])
    # A shared token's node is the last one made in its column, and node ids grow from row to row.
    ids = np.where(fresh, base[:-1, None] + position - shared[:, None], -1)
    nodes = np.maximum.accumulate(ids, axis=0) if count else ids
    # A subtree ends where the first later row begins that has parted from it.
    parted = np.where(position >= shared[:, None], base[:-1, None], base[-1])
    ends = np.full((count + 1, width), base[-1], dtype=np.int64)
    ends[:count] = np.minimum.accumulate(parted[::-1], axis=0)[::-1] if count else parted
    above = np.concatenate([np.full((count, 1), -1, dtype=np.int64), nodes[:, :-1]], axis=1)
    begins = np.zeros(count, dtype=np.int64)
    begins[first_rows] = 1
    return Forest(
        token_ids=table.tokens[fresh],
        parent=above[:, :width][fresh],
        depth=np.broadcast_to(position, fresh.shape)[fresh],
        end=ends[1:][fresh],
        starts=np.append(base[first_rows], base[-1]),
        rows=table.rows,
        tries=np.cumsum(begins) - 1,
        paths=nodes[filled],
        path_offsets=np.concatenate([[0], np.cumsum(table.lengths)]),
    )
