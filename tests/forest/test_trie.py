"""Tries against sets of prefixes, budgets against what they promise."""

import dataclasses

import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from turnwise.errors import TrainingError
from turnwise.forest import ForestConfig, build, forest_metrics, micro_batches
from turnwise.kernels.blocks import SMALL
from turnwise.types import TrainingSample

TOKENS = st.lists(st.integers(0, 2), min_size=2, max_size=8)
ROWS = st.lists(st.tuples(TOKENS, st.sampled_from(["a", "b"]), st.integers(0, 1)), max_size=12)


def with_targets(row, token_ids, policy="a", version=0, *, seed=0):
    chosen = np.flatnonzero(np.random.default_rng(seed).random(len(token_ids)) < 0.5)
    targets = [t for t in chosen.tolist() if t > 0] or [len(token_ids) - 1]
    return row(token_ids, targets, policy=policy, version=version, seed=seed)


@given(ROWS)
@settings(max_examples=60, deadline=None)
def test_a_node_is_a_distinct_prefix(make_row, drawn):
    samples = [with_targets(make_row, *fields, seed=i) for i, fields in enumerate(drawn)]
    forest = build(samples)
    prefixes: set = set()
    for row, index in enumerate(forest.rows.tolist()):
        sample = samples[index]
        used = sample.token_ids[: sample.targets[-1]].tolist()
        path = forest.path(row)
        assert forest.token_ids[path].tolist() == used
        assert forest.depth[path].tolist() == list(range(len(used)))
        assert forest.parent[path].tolist() == [-1, *path[:-1].tolist()]
        who = (sample.policy, sample.policy_version)
        prefixes |= {(who, tuple(used[: n + 1])) for n in range(len(used))}
    assert len(forest.token_ids) == len(prefixes)
    assert sorted(forest.rows.tolist()) == list(range(len(samples)))
    roots = {(who, prefix[0]) for who, prefix in prefixes}
    assert len(forest.starts) - 1 == len(roots)


@given(ROWS)
@settings(max_examples=60, deadline=None)
def test_subtree_ends_are_the_ancestor_relation(make_row, drawn):
    forest = build([with_targets(make_row, *fields, seed=i) for i, fields in enumerate(drawn)])
    count = len(forest.token_ids)
    for i in range(count):
        ancestors, node = set(), i
        while node >= 0:
            ancestors.add(node)
            node = int(forest.parent[node])
        assert ancestors == {j for j in range(i + 1) if i < forest.end[j]}


@given(
    ROWS,
    st.integers(10, 60),
    st.integers(100, 900),
    st.integers(1, 600),
    st.sampled_from(["packed", "padded", "flat"]),
)
@settings(max_examples=80, deadline=None)
def test_batches_keep_budgets_and_every_occurrence(make_row, drawn, tokens, area, even, layout):
    samples = [
        with_targets(make_row, ids, version=version, seed=i)
        for i, (ids, _, version) in enumerate(drawn)
    ]
    config = ForestConfig(token_budget=tokens, mask_budget=area, break_even=even)
    batches = micro_batches(samples, config, layout)
    seen = []
    for batch in batches:
        assert batch.padded_tokens <= tokens
        assert layout != "padded" or batch.pairs <= area
        assert layout != "flat" or len(batch.rows) == len(batch.sizes)
        assert layout != "packed" or batch.padded_tokens == int(batch.sizes.sum())
        flat_ids = batch.token_ids.flatten()
        for at in range(batch.occurrences):
            sample, position = int(batch.row[at]), int(batch.position[at])
            edge = batch.edge[at]
            node = int(batch.head_node[batch.edge_head[edge]])
            assert int(batch.edge_token[edge]) == samples[sample].token_ids[position]
            assert int(flat_ids[node]) == samples[sample].token_ids[position - 1]
            assert int(batch.positions.flatten()[node]) == position - 1
            seen.append((sample, position))
        assert list(batch.rows) == sorted({s for s, _ in seen[len(seen) - batch.occurrences :]})
        where = list(zip(batch.row.tolist(), batch.position.tolist(), strict=True))
        assert where == sorted(where)
    expected = [(i, int(t)) for i, sample in enumerate(samples) for t in sample.targets]
    assert sorted(seen) == expected


def test_each_policy_and_version_has_its_own_nodes(make_row):
    rows = [
        make_row([5, 6, 7], [2], policy=p, version=v) for p, v in [("a", 0), ("a", 1), ("b", 0)]
    ]
    assert len(build(rows).token_ids) == 6
    assert len(build([rows[0], rows[0]]).token_ids) == 2


def test_tokens_after_the_last_target_are_not_computed(make_row):
    rows = [make_row([5, 6, 7, 8, 9], [2]), make_row([5, 6, 3, 4], [])]
    assert build(rows).token_ids.tolist() == [5, 6]
    (batch,) = micro_batches(rows, ForestConfig())
    assert batch.rows == (0,)


def test_temperature_separates_heads_but_not_nodes(make_row):
    rows = [make_row([5, 6, 7], [2], temperature=t) for t in (1.0, 0.5, 1.0)]
    (batch,) = micro_batches(rows, ForestConfig())
    assert batch.token_ids.shape == (1, 2)
    assert sorted(batch.head_temperature.tolist()) == [0.5, 1.0]
    assert batch.edge.tolist() == [1, 0, 1]


def test_turn_ids_are_shared_by_the_rows_of_a_turn(make_row):
    first, second = make_row([5, 6, 7], [1, 2], sample=0), make_row([9, 6, 7], [2], sample=1)
    again = dataclasses.replace(first, token_ids=np.array([8, 8, 8]))
    taught = TrainingSample.of(policy="main", turns=(), token_ids=[3, 4], turn_index=[-1, -1],
                       ce_weight=[0, 1])  # fmt: skip
    found = {}
    samples = [first, second, again, taught]
    for batch in micro_batches(samples, ForestConfig()):
        for sample, turn in zip(batch.row.tolist(), batch.turn, strict=True):
            found.setdefault(sample, set()).add(int(turn))
    assert found == {0: {0}, 1: {1}, 2: {0}, 3: {-1}}


def test_metrics_count_the_sharing(make_siblings):
    samples = make_siblings(prompts=2, each=3, prompt=10, reply=1)
    batches = micro_batches(samples, ForestConfig())
    metrics = forest_metrics(batches)
    assert metrics["forest/tokens_flat"] == 60
    assert metrics["forest/tokens_distinct"] == 20
    assert metrics["forest/sharing"] == 3
    # two prompts of 10 in one block; their replies, which predict nothing, are left out
    assert metrics["forest/attention_pairs"] == SMALL * 20
    padded = forest_metrics(micro_batches(samples, ForestConfig(), "padded"))
    assert padded["forest/attention_pairs"] == 200


def test_a_cut_is_made_where_the_mask_would_cost_more_than_the_prefix(make_row):
    rng = np.random.default_rng(0)
    tails = rng.integers(10, 1000, (6, 40)).tolist()
    short = [make_row([5, *tail], [40]) for tail in tails]
    long = [make_row([*range(2000, 2300), *tail], [339]) for tail in tails]
    few = ForestConfig(break_even=64)
    assert sum(len(b.token_ids) for b in micro_batches(short, few, "padded")) == 6
    assert sum(len(b.token_ids) for b in micro_batches(long, few, "padded")) < 6
    many = ForestConfig(break_even=100_000)
    assert sum(len(b.token_ids) for b in micro_batches(long, many, "padded")) == 1
    assert [len(b.sizes) for b in micro_batches(short, few)] == [1]


def test_errors_name_the_sample_and_the_cure(make_row):
    long = [make_row([5, 6], [1]), make_row([5] * 10, [9])]
    for layout in ("packed", "flat"):  # a row beyond the budget is a micro-batch of its own
        sizes = [b.padded_tokens for b in micro_batches(long, ForestConfig(token_budget=8), layout)]
        assert max(sizes) == 9
    with pytest.raises(TrainingError, match="mask_budget >= 81"):
        micro_batches([make_row([5] * 10, [9])], ForestConfig(mask_budget=80), "padded")
    with pytest.raises(TrainingError, match="the first token of sample 0 is a target"):
        build([make_row([5, 6], [0, 1])])
    with pytest.raises(TrainingError, match="got those of a, b"):
        rows = [make_row([5, 6], [1], policy=name) for name in "ab"]
        micro_batches(rows, ForestConfig())
    with pytest.raises(TrainingError, match="temperature"):
        micro_batches([make_row([5, 6], [1], temperature=0.0)], ForestConfig())


def test_no_targets_no_batches(make_row):
    assert micro_batches([], ForestConfig()) == []
    assert micro_batches([make_row([5, 6], [])], ForestConfig(), "flat") == []
    assert forest_metrics([])["forest/sharing"] == 0


def test_rows_with_other_media_share_no_node(make_row):
    same = [make_row([1, 2, 3], [2]) for _ in range(4)]
    media = [(), ("a",), ("a",), ("a", "b")]
    shown = [dataclasses.replace(row, media=key) for row, key in zip(same, media, strict=True)]
    assert len(build(same).token_ids) == 2
    forest = build(shown)
    assert len(forest.token_ids) == 3 * 2
    assert len(forest.starts) - 1 == 3
