"""Tries of token rows: one node for every distinct prefix, in depth-first order.

Provides `Forest`, the arrays of many tries, in numpy. Two rows share a node if policy, version,
media and all tokens up to it are equal; the position is the depth. Tokens from a row's last target
on predict nothing and are left out.

Shapes: R rows with a target, V nodes, L longest row, S samples.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass

import numpy as np

from turnwise.errors import TrainingError
from turnwise.types import BoolArray, IntArray, MediaKey, TrainingSample


@dataclass(frozen=True, kw_only=True, slots=True, eq=False)
class Columns:
    """The tokens of all samples, concatenated, with a mask of the targets.

    `token_ids` and `is_target` are [tokens]. `offsets` [S + 1] are the first tokens of the samples,
    and `used` [S] the number of tokens of each sample that a target depends on.
    """

    token_ids: IntArray
    is_target: BoolArray
    offsets: IntArray
    used: IntArray


@dataclass(frozen=True, kw_only=True, slots=True, eq=False)
class SortedRows:
    """Rows in lexicographic order, so that rows that share a prefix are neighbours.

    `rows` [R] are indices into the samples, `lengths` [R] their used tokens, `tokens` [R, L] the
    token ids (-1 beyond a row's end). `shared` [R] counts the tokens that a row shares with the one
    before it; -1 where they differ in policy, version or media, and for the first row.
    """

    rows: IntArray
    lengths: IntArray
    tokens: IntArray
    shared: IntArray


@dataclass(frozen=True, kw_only=True, slots=True, eq=False)
class Forest:
    """Concatenated tries. Parents precede children, and every subtree is one contiguous range.

    `token_ids`, `parent` (-1 for a root), `depth` (the position id) and `end` are [V]. The subtree
    of node j is [j, end[j]), so j is i or an ancestor of i iff j <= i < end[j]. Trie k has nodes
    [starts[k], starts[k + 1]). Row r is sample `rows[r]` in trie `tries[r]`; its token t is node
    `paths[path_offsets[r] + t]`.

    Example:
        >>> from turnwise.types import EpisodeId, TurnId
        >>> episode = EpisodeId(iteration=0, visit=0, task="t", member=0)
        >>> a = TurnId(episode=episode, role="player", turn=0)
        >>> left, right = (
        ...     TrainingSample.of(policy="main", turns=(a,), token_ids=[5, 6, word, 2],
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
        """Return the nodes of row `row` from the root."""
        return self.paths[self.path_offsets[row] : self.path_offsets[row + 1]]


def build(samples: Sequence[TrainingSample]) -> Forest:
    """Merge the rows of each (policy, version, media) that share a first token into one trie.

    Raises:
        TrainingError: if a sample's first token is a target.
    """
    table = sort_rows(samples, columns_of(samples))
    return grow(table, np.flatnonzero(table.shared <= 0))


def columns_of(samples: Sequence[TrainingSample]) -> Columns:
    """Concatenate the samples' tokens and find their targets (`TrainingSample.targets`)."""
    lengths = np.fromiter((len(s.token_ids) for s in samples), np.int64, len(samples))
    offsets = np.concatenate([[0], np.cumsum(lengths)])
    is_target = joined(samples, "sampled_mask", bool)
    is_target = is_target | (joined(samples, "ce_weight", np.float32) != 0)
    is_target |= joined(samples, "ref_kl_weight", np.float32) != 0
    where = np.flatnonzero(is_target)
    owner = np.repeat(np.arange(len(samples)), lengths)[where]
    position = where - offsets[owner]
    if (position == 0).any():
        first = int(owner[position == 0][0])
        raise TrainingError(
            f"the first token of sample {first} is a target, but no token precedes it: start the "
            "row with a prompt or a BOS token, or set the weights of position 0 to 0"
        )
    used = np.zeros(len(samples), dtype=np.int64)
    used[owner] = position  # positions ascend within a sample, so the last target's remains
    token_ids = joined(samples, "token_ids", np.int64)
    return Columns(token_ids=token_ids, is_target=is_target, offsets=offsets, used=used)


def joined(samples: Sequence[TrainingSample], stream: str, dtype: type) -> np.ndarray:
    """Return one stream of all samples, concatenated, [tokens]."""
    parts = [np.empty(0, dtype=dtype), *(getattr(sample, stream) for sample in samples)]
    return np.concatenate(parts)


def sort_rows(samples: Sequence[TrainingSample], columns: Columns) -> SortedRows:
    """Sort the rows that have a target by (policy, version, media) and tokens."""
    rows = np.flatnonzero(columns.used)
    lengths = columns.used[rows]
    width = int(lengths.max(initial=0))
    filled = np.arange(width) < lengths[:, None]
    tokens = np.full((len(rows), width), -1, dtype=np.int64)
    tokens[filled] = columns.token_ids[(columns.offsets[rows, None] + np.arange(width))[filled]]
    numbers: dict[tuple[str, int, MediaKey], int] = {}
    owners = (samples[row] for row in rows.tolist())
    who = [
        numbers.setdefault((one.policy, one.policy_version, one.media), len(numbers))
        for one in owners
    ]
    # Big-endian bytes compare like numbers, so one sort of whole rows replaces one per position.
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

    Rows of different tries share no nodes. A cut repeats the computation of their common prefix and
    changes no number.
    """
    count, width = table.tokens.shape
    shared = np.maximum(table.shared, 0)
    shared[first_rows] = 0
    base = np.concatenate([[0], np.cumsum(table.lengths - shared)])  # the first new node of a row
    position = np.arange(width)
    filled = position < table.lengths[:, None]
    fresh = filled & (position >= shared[:, None])
    # The node of a shared token is the last one made in its column; node ids grow from row to row.
    ids = np.where(fresh, base[:-1, None] + position - shared[:, None], -1)
    nodes = np.maximum.accumulate(ids, axis=0) if count else ids
    # A subtree ends at the first new node of the first later row that diverges from it.
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
