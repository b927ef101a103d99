"""Attention over forests, block by block, against a mask of ancestors."""

from types import SimpleNamespace

import numpy as np
import pytest
import torch
from hypothesis import example, given, settings
from hypothesis import strategies as st
from torch import nn

from turnwise.forest import build
from turnwise.forest.masks import ancestor_mask
from turnwise.kernels import TreePlan, tree
from turnwise.kernels.blocks import MOST_PAIRS, block_size, plan_calls
from turnwise.types import TrainingSample


@st.composite
def forests(draw):
    """Rows that grow out of each other, some in many small steps, some not at all."""
    rng = np.random.default_rng(draw(st.integers(0, 100_000)))
    rows: list[list[int]] = []
    for _ in range(draw(st.integers(1, 14))):
        fresh = rng.integers(1, draw(st.sampled_from([3, 300])), draw(st.integers(2, 60))).tolist()
        base = rows[draw(st.integers(0, len(rows) - 1))] if rows and draw(st.booleans()) else []
        rows.append(base[: draw(st.integers(0, len(base)))] + fresh)
    samples = [
        TrainingSample.of(policy="main", turns=(), token_ids=row, turn_index=[-1] * len(row),
                  sampled_mask=[False, *[True] * (len(row) - 1)])
        for row in rows
    ]  # fmt: skip
    return build(samples)


def spine(turns: int, width: int, siblings: int, reply: int):
    """A tree of many turns: each run of `width` has short siblings, and the next run below it."""
    parents: list[int] = []

    def grow(under: int, count: int) -> int:
        for _ in range(count):
            parents.append(under)
            under = len(parents) - 1
        return under

    tip = grow(-1, width)
    for _ in range(turns):
        for _ in range(siblings):
            grow(tip, reply)
        tip = grow(tip, width)
    end, depth = np.arange(1, len(parents) + 1), np.zeros(len(parents), dtype=np.int64)
    for node, parent in enumerate(parents):
        depth[node] = depth[parent] + 1 if parent >= 0 else 0
    for node in reversed(range(len(parents))):
        if parents[node] >= 0:
            end[parents[node]] = max(end[parents[node]], end[node])
    return SimpleNamespace(end=end, depth=depth)


spines = st.builds(
    spine,
    st.integers(1, 14),
    st.sampled_from([3, 16, 24, 60]),
    st.integers(1, 7),
    st.sampled_from([1, 8, 20]),
)


@given(forests() | spines)
@settings(max_examples=60, deadline=None)
def test_blocks_cover_every_pair_once(forest):
    count, size = len(forest.end), block_size(forest.depth)
    seen = np.zeros((count, count + 1), dtype=int)
    blocks = []
    for call in plan_calls(forest.end, forest.depth):
        blocks += call.blocks.tolist()
        for block, keys, visible in zip(call.blocks, call.keys, call.visible, strict=True):
            for query, mask in enumerate(visible, start=block * size):
                assert mask.any(), "a softmax over nothing is not a number"
                if query < count:
                    seen[query] += np.bincount(keys[mask], minlength=count + 1)
    assert sorted(blocks) == list(range(-(-count // size)))
    expected = ancestor_mask(torch.from_numpy(forest.end)[None])[0, 0].int().numpy()
    assert (seen[:, :count] == expected).all() and not seen[:, count].any()


@pytest.mark.parametrize("copies", [1, 3])
@given(forests() | spines)
@example(spine(12, 60, 7, 20))
@settings(max_examples=25, deadline=None)
def test_values_and_gradients_are_those_under_a_mask(copies, forest):
    torch.manual_seed(0)
    count, heads, width = len(forest.end), 2, 8
    plan = TreePlan.of(forest.end, forest.depth)
    query = torch.randn(1, heads * copies, count, width, requires_grad=True)
    key, value = (torch.randn(1, heads, count, width, requires_grad=True) for _ in range(2))
    found = plan.attend(nn.Module(), query, key, value, scale=0.3, softcap=None, window=None)
    mask = ancestor_mask(torch.from_numpy(forest.end)[None])
    wide = [t.repeat_interleave(copies, 1) for t in (key, value)]
    scores = (query @ wide[0].transpose(-1, -2) * 0.3).masked_fill(~mask, float("-inf"))
    expected = (scores.softmax(-1) @ wide[1]).transpose(1, 2)
    assert torch.allclose(found, expected, atol=1e-5)
    slope = torch.randn_like(found)
    ours = torch.autograd.grad(found, (query, key, value), slope)
    theirs = torch.autograd.grad(expected, (query, key, value), slope)
    for a, b in zip(ours, theirs, strict=True):
        assert torch.allclose(a, b, atol=1e-4)


def test_a_group_costs_its_prompt_once():
    """16 replies of 65 to a prompt of 512: few calls, and few pairs that are masked."""
    rng = np.random.default_rng(0)
    prompt = rng.integers(0, 99, 512).tolist()
    rows = [[*prompt, 100 + i, *rng.integers(0, 99, 64).tolist()] for i in range(16)]
    forest = build(
        [
            TrainingSample.of(policy="main", turns=(), token_ids=row, turn_index=[-1] * len(row),
                      sampled_mask=[False] * 512 + [True] * 65)
            for row in rows
        ]
    )  # fmt: skip
    plan = TreePlan.of(forest.end, forest.depth)
    needed = int((forest.depth + 1).sum())
    assert needed <= plan.pairs < 1.15 * needed
    assert len(plan.calls) <= 8
    assert all(call.hidden.numel() <= max(MOST_PAIRS, call.hidden[0].numel())
               for call in plan.calls)  # fmt: skip


@pytest.mark.parametrize(("dtype", "tolerance"), [(torch.float64, 1e-12), (torch.bfloat16, 0.05)])
def test_other_types_of_numbers(dtype, tolerance):
    torch.manual_seed(0)
    forest = spine(4, 24, 3, 8)
    plan, mask = TreePlan.of(forest.end, forest.depth), torch.from_numpy(forest.end)[None]
    exact = [torch.randn(1, heads, len(forest.end), 8, dtype=torch.float64) for heads in (4, 2, 2)]
    ours = [t.to(dtype).requires_grad_() for t in exact]
    theirs = [t.to(dtype).double().requires_grad_() for t in exact]
    found = plan.attend(nn.Module(), *ours, scale=0.3, softcap=None, window=None)
    query, key, value = theirs[0], *(t.repeat_interleave(2, 1) for t in theirs[1:])
    scores = (query @ key.transpose(-1, -2) * 0.3).masked_fill(~ancestor_mask(mask), float("-inf"))
    expected = (scores.softmax(-1) @ value).transpose(1, 2)
    assert found.dtype == dtype and torch.allclose(found.double(), expected, atol=tolerance)
    slope = torch.randn_like(expected)
    got = torch.autograd.grad(found, ours, slope.to(dtype))
    for a, b in zip(got, torch.autograd.grad(expected, theirs, slope), strict=True):
        assert a.dtype == dtype and float((a - b).norm() / b.norm()) < max(tolerance, 1e-12)


def test_large_plans_keep_no_masks(monkeypatch):
    """Their masks are made in each layer, and the values are the same."""
    torch.manual_seed(0)
    forest = spine(3, 24, 3, 8)
    inputs = [torch.randn(1, 2, len(forest.end), 8) for _ in range(3)]
    found = []
    for limit in (1 << 24, 1):
        monkeypatch.setattr(tree, "KEPT_PAIRS", limit)
        plan = TreePlan.of(forest.end, forest.depth)
        found += [plan.attend(nn.Module(), *inputs, scale=1.0, softcap=None, window=None)
                  for _ in range(2)]  # fmt: skip
        assert {len(call.masks) for call in plan.calls} == {int(limit > 1)}
    assert all(torch.equal(found[0], each) for each in found)


def test_what_a_plan_cannot_do_is_refused():
    plan = TreePlan.of(np.array([3, 3, 3]), np.array([0, 1, 2]))
    inputs = [torch.zeros(1, 1, 3, 4)] * 3
    with pytest.raises(ValueError, match="soft-caps"):
        plan.attend(nn.Module(), *inputs, scale=1.0, softcap=30.0, window=None)
    with pytest.raises(ValueError, match="windows"):
        plan.attend(nn.Module(), *inputs, scale=1.0, softcap=None, window=2)
    assert plan.attend(nn.Module(), *inputs, scale=1.0, softcap=None, window=3).shape == (
        1,
        3,
        1,
        4,
    )
