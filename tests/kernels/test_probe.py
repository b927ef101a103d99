"""The common part of measurements at load: length of rows, tolerances, the model's own numbers."""

from __future__ import annotations

import numpy as np
import pytest
import torch
from transformers import MistralConfig, MistralForCausalLM

from turnwise.kernels.probe import (
    LOW_MEAN,
    LOW_TAIL,
    TOLERANCE,
    affordable_tokens,
    is_close,
    is_low_precision,
    mask_forms,
    own_logits,
    random_tokens,
    reach_of,
    size_of,
)

SIZES = {
    "vocab_size": 40,
    "hidden_size": 32,
    "intermediate_size": 48,
    "num_hidden_layers": 2,
    "num_attention_heads": 4,
    "num_key_value_heads": 2,
}


def test_rows_of_large_models_are_as_long_as_seconds_allow(monkeypatch):
    model = MistralForCausalLM(MistralConfig(**SIZES))
    assert affordable_tokens(model, 4096) == 4096
    monkeypatch.setattr(model, "num_parameters", lambda: 600_000_000)
    assert affordable_tokens(model, 4096) == 333
    assert affordable_tokens(model, 100) == 100


@pytest.mark.parametrize(
    ("lengths", "reached", "crossed", "told"),
    [
        ({}, 10, True, {"by layer type": True, "windowed": True, "full": True}),
        ({"sliding_window": 9}, 10, True, {"windowed": True, "full": True}),
        ({"sliding_window": 10}, 10, False, {"windowed": True, "full": False}),
        ({"sliding_window": 10, "chunk": 3}, 10, False, {"windowed": True, "full": False}),
        ({"chunk": 10}, 10, False, {"by layer type": False, "windowed": False, "full": False}),
    ],
)
def test_a_form_is_measured_where_rows_reach_what_it_does_not_name(lengths, reached, crossed, told):
    reach = reach_of(lengths, reached, option="forest.probe_tokens")
    assert reach.crossed == crossed
    assert {form: reach.measures(form) for form in told} == told
    assert bool(reach.note) != crossed and ("chunk" in reach.note) == (lengths.get("chunk") == 10)


def test_forms_of_masks_are_tried_the_likeliest_first():
    assert mask_forms({}) == ("full",)
    assert mask_forms({"layer_types": ["a"], "sliding_window": 4}) == (
        "by layer type", "windowed", "full"
    )  # fmt: skip


def test_what_is_close_depends_on_the_precision():
    assert is_close(torch.tensor([0.0, 0.9 * TOLERANCE]), low_precision=False)
    assert not is_close(torch.tensor([0.0, 1.1 * TOLERANCE]), low_precision=False)
    assert is_close(torch.full((200,), 0.9 * LOW_MEAN), low_precision=True)
    assert not is_close(torch.full((200,), 1.1 * LOW_MEAN), low_precision=True)
    tail = torch.zeros(200)
    tail[:3] = 1.1 * LOW_TAIL  # the mean is small, more than 1 in 100 is large
    assert not is_close(tail, low_precision=True)
    tail[1:3] = 0.0
    assert is_close(tail, low_precision=True)
    for low in (False, True):
        assert not is_close(torch.tensor([0.0, torch.inf]), low_precision=low)
    assert size_of(torch.tensor([1.0, 3.0]), low_precision=False) == 3.0
    assert size_of(torch.tensor([1.0, 3.0]), low_precision=True) == 2.0


def test_the_model_s_own_numbers_are_of_one_row_without_a_cache():
    torch.manual_seed(0)
    model = MistralForCausalLM(MistralConfig(**SIZES)).eval()
    tokens = torch.from_numpy(random_tokens(np.random.default_rng(0), 40, 12))
    assert int(tokens.min()) >= 4
    with torch.no_grad():
        expected = model(input_ids=tokens[None]).logits[0]
        assert torch.equal(own_logits(model, tokens), expected)
        moved = own_logits(model, tokens, shift=1000)
    torch.testing.assert_close(moved, expected, atol=1e-4, rtol=0)  # rotary angles are relative
    assert not torch.equal(moved, expected)
    assert not is_low_precision(model) and is_low_precision(model.bfloat16())
