"""Attention of rows that share prompts, against one row at a time."""

import numpy as np
import pytest
import torch
from torch import nn

from turnwise.kernels import DecodePlan

SHARED, COPIES, WIDTH, SCALE = 2, 3, 8, 0.3


def layer():
    module = nn.Module()
    module.layer_idx = 0
    return module


def one(query, key, value, softcap, window):
    """Attention of one query [H, D] to [K, T, D] of which it is the last."""
    if window is not None:
        key, value = key[:, -window:], value[:, -window:]
    key, value = (t.repeat_interleave(COPIES, 0) for t in (key, value))
    scores = torch.einsum("hd,htd->ht", query, key) * SCALE
    if softcap is not None:
        scores = torch.tanh(scores / softcap) * softcap
    return torch.einsum("ht,htd->hd", scores.softmax(-1), value)


CASES = {
    "in order": ([0, 0, 1, 1], [5, 5], [2, 2, 2, 2], None),
    "ragged": ([1, 0, 1, 2, 1], [5, 9, 3], [0, 4, 2, 1, 3], None),
    "a prompt without rows": ([2, 0, 2], [4, 7, 6], [1, 1, 1], None),
    "alone": ([0, 1, 2], [3, 3, 8], [0, 5, 2], None),
    "drafts": ([0, 0, 1, 1], [5, 5], [2, 2, 2, 2], [3, 3, 3, 3]),
    "ragged drafts": ([1, 0, 1, 2, 1], [5, 9, 3], [0, 4, 2, 1, 3], [1, 7, 2, 1, 4]),
    "one large group": ([0, 1, 2, 3, 3], [5, 9, 3, 6], [0, 4, 2, 3, 3], [1, 1, 1, 3, 3]),
    "a large group amid small ones": (
        [3, 0, 1, 3, 2, 4],
        [5, 9, 3, 6, 2, 8],
        [0, 4, 2, 3, 3, 1],
        [5, 1, 2, 6, 1, 2],
    ),
    "prompts without tokens": ([0, 1, 1], [0, 0], [0, 3, 1], [4, 1, 2]),
}


@pytest.mark.parametrize("softcap", [None, 1.5])
@pytest.mark.parametrize("window", [None, 4, 7, 100])
@pytest.mark.parametrize("case", CASES)
def test_rows_see_their_prompt_and_their_own(case, window, softcap):
    prompt_of, lengths, written, sizes = (
        None if part is None else np.array(part) for part in CASES[case]
    )
    torch.manual_seed(0)
    rows, groups = len(prompt_of), len(lengths)
    each = np.ones(rows, dtype=int) if sizes is None else sizes
    kept = [torch.randn(groups, SHARED, int(lengths.max()), WIDTH) for _ in range(2)]
    own = [torch.randn(rows, SHARED, int((written + each).max()), WIDTH) for _ in range(2)]
    query = torch.randn(int(each.sum()), SHARED * COPIES, 1, WIDTH)
    plan = DecodePlan.of(
        lambda number, like: tuple(kept),
        prompt_of,
        lengths,
        written,
        torch.device("cpu"),
        sizes=sizes,
    )
    found = plan.attend(layer(), query, *own, scale=SCALE, softcap=softcap, window=window)
    assert found.shape == (len(query), 1, SHARED * COPIES, WIDTH)
    token = 0
    for row, prompt in enumerate(prompt_of):
        for wrote in range(written[row], written[row] + each[row]):
            assert plan.positions[token] == lengths[prompt] + wrote
            key, value = (
                torch.cat([p[prompt, :, : lengths[prompt]], o[row, :, : wrote + 1]], 1)
                for p, o in zip(kept, own, strict=True)
            )
            expected = one(query[token, :, 0], key, value, softcap, window)
            assert torch.allclose(found[token, 0], expected, atol=1e-5), (case, token)
            token += 1
    assert token == len(query)
