"""Padded micro-batches of token tries, with the index of each target in its row.

Provides `MicroBatch` and `micro_batches`. An *occurrence* is one target position of one sample;
losses sum over occurrences. An *edge* is a distinct (parent node, target token, temperature), which
is computed once and gathered. A *head* is a distinct (parent node, temperature), one row of logits.

Shapes: B tries padded to N nodes; T occurrences, E edges, H heads.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass

import numpy as np
import torch
from torch import Tensor

from turnwise.errors import TrainingError
from turnwise.forest.config import END_TO_END, ForestConfig, Layout
from turnwise.forest.packing import plan_batches, plan_cuts
from turnwise.forest.trie import Columns, Forest, columns_of, grow, joined, sort_rows
from turnwise.kernels import FlexPlan, TreePlan
from turnwise.types import BoolArray, FloatArray, IntArray, TrainingSample


@dataclass(frozen=True, kw_only=True, slots=True, eq=False)
class MicroBatch:
    """Tries (flat rows are tries of one row), concatenated or padded to one width.

    For concatenated tries B is 1 and N is the sum of their nodes. `token_ids`, `positions` and
    `end` are [B, N]. Node i attends to node j iff j <= i < end[j]; padding attends to itself only.
    `sizes` are the nodes of each trie before padding, and `plan` is the attention plan of
    concatenated tries. `head_node` [H] indexes the flattened [B * N] nodes, and `head_temperature`
    [H] divides their logits. `edge_head` and `edge_token` are [E], sorted by head; `edge` [T] is
    the edge of each occurrence. Occurrences are ordered by `rows` (ascending sample indices) and by
    target position. `row` [T] and `position` [T] are the sample index and the position of each
    occurrence. `turn` [T] is the turn that drew it, as an index into the distinct turns of all
    samples in order of appearance (-1 for no turn). All tensors are on the CPU.
    """

    layout: Layout
    token_ids: Tensor
    positions: Tensor
    end: Tensor
    sizes: Tensor
    head_node: Tensor
    head_temperature: Tensor
    edge_head: Tensor
    edge_token: Tensor
    edge: Tensor
    rows: tuple[int, ...]
    row: Tensor
    position: Tensor
    turn: Tensor
    flat_tokens: int
    plan: TreePlan | FlexPlan | None

    @property
    def occurrences(self) -> int:
        """The number of log-probabilities that a scorer returns (T)."""
        return self.edge.shape[0]

    @property
    def padded_tokens(self) -> int:
        """B x N, the number of tokens that the decoder computes."""
        return self.token_ids.numel()

    @property
    def pairs(self) -> int:
        """The number of query-key pairs in one layer's attention."""
        return self.plan.pairs if self.plan else self.padded_tokens * self.token_ids.shape[1]


def micro_batches(
    samples: Sequence[TrainingSample], config: ForestConfig, layout: Layout = "packed"
) -> list[MicroBatch]:
    """Pack the samples that have a target into micro-batches under the config's budgets.

    Every target of every sample is an occurrence of exactly one micro-batch. Samples without
    targets are omitted. The division of rows changes no log-probability and no gradient.

    Raises:
        TrainingError: if the mask of one row exceeds its budget, a first token is a target, a
            target's temperature is not positive, or the samples are of several policies.

    Example:
        >>> from turnwise.types import EpisodeId, TurnId
        >>> episode = EpisodeId(iteration=0, visit=0, task="t", member=0)
        >>> turn = TurnId(episode=episode, role="player", turn=0)
        >>> rows = [TrainingSample.of(policy="main", turns=(turn,), token_ids=[5, 6, word, 2],
        ...                   turn_index=[-1, -1, 0, 0]) for word in (7, 8)]
        >>> batch, = micro_batches(rows, ForestConfig())
        >>> batch.token_ids.tolist(), batch.edge_token.tolist(), batch.row.tolist()
        ([[5, 6, 7, 8]], [7, 8, 2, 2], [0, 0, 1, 1])
    """
    policies = sorted({sample.policy for sample in samples})
    if len(policies) > 1:
        raise TrainingError(
            f"one call packs the rows of one policy, got those of {', '.join(policies)}: "
            "call it for each policy separately"
        )
    columns = columns_of(samples)
    table = sort_rows(samples, columns)
    forest = grow(table, plan_cuts(table, config, layout))
    targets = _targets(samples, columns, forest)
    plan = plan_batches(np.diff(forest.starts), config, layout)
    batch_of_trie = np.zeros(len(forest.starts), dtype=np.int64)
    for index, tries in enumerate(plan):
        batch_of_trie[tries] = index
    home = batch_of_trie[targets.trie]
    order = np.argsort(home, kind="stable")
    bounds = np.searchsorted(home[order], np.arange(len(plan) + 1))
    return [
        _assemble(forest, tries, targets.take(order[bounds[i] : bounds[i + 1]]), columns, layout)
        for i, tries in enumerate(plan)
    ]


def forest_metrics(batches: Sequence[MicroBatch]) -> dict[str, float]:
    """Return the cost of a forward pass over `batches`, as flat `forest/...` numbers.

    `tokens_flat` is the number of tokens of all rows, `tokens_distinct` the number of nodes,
    `tokens_padded` the number of computed tokens, `attention_pairs` the number of query-key pairs
    in one layer, and `sharing` the ratio of flat to distinct tokens.
    """
    flat = sum(batch.flat_tokens for batch in batches)
    distinct = sum(int(batch.sizes.sum()) for batch in batches)
    return {
        "forest/micro_batches": float(len(batches)),
        "forest/tokens_flat": float(flat),
        "forest/tokens_distinct": float(distinct),
        "forest/tokens_padded": float(sum(batch.padded_tokens for batch in batches)),
        "forest/attention_pairs": float(sum(batch.pairs for batch in batches)),
        "forest/sharing": flat / max(distinct, 1),
    }


@dataclass(frozen=True, kw_only=True, slots=True, eq=False)
class _Targets:
    """All occurrences: row, position, trie, parent node, token, temperature, turn."""

    row: IntArray
    position: IntArray
    trie: IntArray
    parent: IntArray
    token: IntArray
    temperature: FloatArray
    turn: IntArray

    def take(self, where: IntArray) -> _Targets:
        """Return the occurrences at the indices `where`."""
        return _Targets(
            row=self.row[where],
            position=self.position[where],
            trie=self.trie[where],
            parent=self.parent[where],
            token=self.token[where],
            temperature=self.temperature[where],
            turn=self.turn[where],
        )


def _targets(samples: Sequence[TrainingSample], columns: Columns, forest: Forest) -> _Targets:
    where = np.flatnonzero(columns.is_target)
    sample = np.searchsorted(columns.offsets, where, side="right") - 1
    position = where - columns.offsets[sample]
    row_of_sample = np.full(len(samples), -1, dtype=np.int64)
    row_of_sample[forest.rows] = np.arange(len(forest.rows))
    row = row_of_sample[sample]
    temperature = joined(samples, "temperature", np.float32)[where].astype(np.float32)
    if not (temperature > 0).all():
        bad = int(np.argmin(temperature > 0))
        raise TrainingError(
            f"sample {sample[bad]} has temperature {temperature[bad]} at target {position[bad]}, "
            "but log-probabilities are of softmax(logits / temperature): set it above 0"
        )
    return _Targets(
        row=sample,
        position=position,
        trie=forest.tries[row],
        parent=forest.paths[forest.path_offsets[row] + position - 1],
        token=columns.token_ids[where],
        temperature=temperature,
        turn=_turn_ids(samples, columns)[where],
    )


def _turn_ids(samples: Sequence[TrainingSample], columns: Columns) -> IntArray:
    """Return each token's turn as an index into the distinct turns of all samples, [tokens]."""
    numbers: dict[object, int] = {}
    table = [numbers.setdefault(turn, len(numbers)) for s in samples for turn in s.turns]
    counts = np.fromiter((len(s.turns) for s in samples), np.int64, len(samples))
    begins = np.concatenate([[0], np.cumsum(counts)])[:-1]
    index = joined(samples, "turn_index", np.int64)
    begin = np.repeat(begins, np.diff(columns.offsets))
    # Index -1, of tokens without a turn, selects the extra entry at the end.
    ids = np.array([*table, -1], dtype=np.int64)
    return ids[np.where(index >= 0, begin + index, -1)]


def _assemble(
    forest: Forest, tries: IntArray, targets: _Targets, columns: Columns, layout: Layout
) -> MicroBatch:
    """Concatenate or pad `tries` and number the distinct heads and edges of their targets."""
    starts, sizes = forest.starts[tries], np.diff(forest.starts)[tries]
    if layout in END_TO_END:
        filled: BoolArray = np.ones((1, int(sizes.sum())), dtype=bool)
        places = np.cumsum(sizes) - sizes  # the first flat index of each trie
        lines = places
    else:
        filled = np.arange(int(sizes.max())) < sizes[:, None]
        places = np.arange(len(sizes)) * filled.shape[1]
        lines = np.zeros(len(sizes), dtype=np.int64)  # the first column of each trie
    nodes = np.repeat(starts - np.cumsum(sizes) + sizes, sizes) + np.arange(sizes.sum())
    token_ids, positions = np.zeros(filled.shape, np.int64), np.zeros(filled.shape, np.int64)
    end = np.broadcast_to(np.arange(1, filled.shape[1] + 1), filled.shape).copy()
    token_ids[filled], positions[filled] = forest.token_ids[nodes], forest.depth[nodes]
    end[filled] = forest.end[nodes] + np.repeat(lines - starts, sizes)
    slot = np.searchsorted(tries, targets.trie)
    parent = places[slot] + targets.parent - starts[slot]
    temperatures, temperature = np.unique(targets.temperature, return_inverse=True)
    heads, head = np.unique(parent * len(temperatures) + temperature, return_inverse=True)
    vocab = int(targets.token.max()) + 1
    edges, edge = np.unique(head * vocab + targets.token, return_inverse=True)
    rows = np.unique(targets.row)
    return MicroBatch(
        layout=layout,
        token_ids=torch.from_numpy(token_ids),
        positions=torch.from_numpy(positions),
        end=torch.from_numpy(end),
        sizes=torch.from_numpy(sizes),
        head_node=torch.from_numpy(heads // len(temperatures)),
        head_temperature=torch.from_numpy(temperatures[heads % len(temperatures)]),
        edge_head=torch.from_numpy(edges // vocab),
        edge_token=torch.from_numpy(edges % vocab),
        edge=torch.from_numpy(edge),
        rows=tuple(rows.tolist()),
        row=torch.from_numpy(targets.row),
        position=torch.from_numpy(targets.position),
        turn=torch.from_numpy(targets.turn),
        flat_tokens=int(columns.used[rows].sum()),
        plan=plan_of(layout, end, positions),
    )


def plan_of(layout: Layout, end: IntArray, positions: IntArray) -> TreePlan | FlexPlan | None:
    """Return the attention plan of a layout, or None; `end` and `positions` are [B, N]."""
    if layout == "packed":
        return TreePlan.of(end[0], positions[0])
    return FlexPlan.of(end[0], positions[0]) if layout == "blocked" else None
