"""Which blocks a forest's attention looks at, against every pair."""

import numpy as np
import pytest
import torch
from hypothesis import given, settings
from hypothesis import strategies as st

from turnwise.kernels import FlexPlan
from turnwise.kernels.flex import BLOCK


@st.composite
def forests(draw):
    """Subtree ends and depths of runs that hang on earlier runs, in depth-first order."""
    lengths = draw(st.lists(st.integers(1, 150), min_size=1, max_size=7))
    end, depth = [], []
    open_runs = []  # (first node, last node) of the runs that the next one may hang on
    for length in lengths:
        keep = draw(st.integers(0, len(open_runs)))
        for first, last in open_runs[keep:]:
            end[first : last + 1] = [len(end)] * (last + 1 - first)
        del open_runs[keep:]
        start, base = len(end), depth[open_runs[-1][1]] + 1 if open_runs else 0
        end += [0] * length
        depth += range(base, base + length)
        open_runs.append((start, start + length - 1))
    for first, last in open_runs:
        end[first : last + 1] = [len(end)] * (last + 1 - first)
    return np.array(end), np.array(depth)


@given(forests())
@settings(max_examples=60, deadline=None)
def test_blocks_hold_exactly_the_pairs(forest):
    end, depth = forest
    plan, nodes = FlexPlan.of(end, depth), np.arange(len(end))
    sees = (nodes[None] <= nodes[:, None]) & (nodes[:, None] < end[None])
    for row in range(len(plan.visible)):
        for column in range(len(plan.visible)):
            part = sees[row * BLOCK : (row + 1) * BLOCK, column * BLOCK : (column + 1) * BLOCK]
            assert plan.visible[row, column] == part.any()
            assert plan.full[row, column] == part.all() or row == column or not part.size


@pytest.mark.parametrize("window", [None, 1, 60, 200, 1000])
@pytest.mark.parametrize("softcap", [None, 2.0, 7.0])
@given(forest=forests())
@settings(max_examples=8, deadline=None)
def test_attention_is_that_of_all_pairs(window, softcap, forest):
    end, depth = forest
    torch.manual_seed(0)
    query = torch.randn(1, 4, len(end), 8)
    key, value = torch.randn(2, 1, 2, len(end), 8)
    nodes = np.arange(len(end))
    sees = (nodes[None] <= nodes[:, None]) & (nodes[:, None] < end[None])
    if window is not None:
        sees &= depth[:, None] - depth[None] < window
    scores = torch.einsum("bhid,bhjd->bhij", query, key.repeat_interleave(2, 1)) * 0.5
    if softcap is not None:
        scores = softcap * torch.tanh(scores / softcap)
    scores = scores.masked_fill(~torch.from_numpy(sees), -torch.inf)
    expected = scores.softmax(-1) @ value.repeat_interleave(2, 1)
    asked = {"scale": 0.5, "softcap": softcap, "window": window}
    found = FlexPlan.of(end, depth).attend(torch.nn.Module(), query, key, value, **asked)
    assert torch.allclose(found, expected.transpose(1, 2), atol=1e-5)
