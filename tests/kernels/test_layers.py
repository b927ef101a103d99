"""Decoder layers in few operations against the models' own."""

import copy

import numpy as np
import pytest
import torch
from peft import LoraConfig, get_peft_model
from transformers import (
    Gemma2Config,
    Gemma2ForCausalLM,
    LlamaConfig,
    LlamaForCausalLM,
    MistralConfig,
    MistralForCausalLM,
    Olmo2Config,
    Olmo2ForCausalLM,
    Qwen2Config,
    Qwen2ForCausalLM,
    Qwen3Config,
    Qwen3ForCausalLM,
)

from turnwise.engines.masks import MaskRule, mask_forms
from turnwise.engines.rows import CachedRows
from turnwise.kernels import layers, set_attention

SIZES = {
    "vocab_size": 40,
    "hidden_size": 32,
    "intermediate_size": 48,
    "num_hidden_layers": 2,
    "num_attention_heads": 4,
    "num_key_value_heads": 2,
    "head_dim": 8,
    "pad_token_id": 0,
}
LIKE_LLAMA = {
    "llama": lambda: LlamaForCausalLM(LlamaConfig(**SIZES)),
    "llama with biases": lambda: LlamaForCausalLM(LlamaConfig(**SIZES, attention_bias=True)),
    "mistral": lambda: MistralForCausalLM(MistralConfig(**SIZES, sliding_window=None)),
    "a window": lambda: MistralForCausalLM(MistralConfig(**SIZES, sliding_window=3)),
    "qwen2": lambda: Qwen2ForCausalLM(Qwen2Config(**SIZES)),
    "qwen3": lambda: Qwen3ForCausalLM(Qwen3Config(**SIZES)),
}
OTHERS = {
    "gemma2": lambda: Gemma2ForCausalLM(Gemma2Config(**SIZES)),
    "olmo2": lambda: Olmo2ForCausalLM(Olmo2Config(**SIZES)),
    "gelu": lambda: LlamaForCausalLM(LlamaConfig(**SIZES, hidden_act="gelu")),
}


def made(kind):
    torch.manual_seed(0)
    model = kind().eval()
    for parameter in model.parameters():
        torch.nn.init.normal_(parameter, std=0.3)
    set_attention(model)
    return model


def used(model):
    return [layers.use(layer) for layer in model.model.layers]


def written(model):
    """Return the logits of rows that write after prompts that some of them share."""
    form = mask_forms(model.config.to_dict())[0]
    window = getattr(model.config, "sliding_window", None)
    rows = CachedRows(model, MaskRule(form=form, window=window, dtype=torch.float32), 0)
    with torch.inference_mode():
        found = [rows.prefill([(5, 6, 7, 8), (9, 10)])[1]]
        rows.rearrange(np.array([0, 0]), np.array([2, 3]), 4)
        for tokens in ([3, 4, 5, 6], [7, 7, 8, 9], [1, 2, 3, 4]):
            found.append(rows.decode(np.array(tokens)))
    return torch.cat(found)


@pytest.mark.parametrize("kind", LIKE_LLAMA)
def test_steps_give_the_models_own_numbers(kind):
    model = made(LIKE_LLAMA[kind])
    expected = written(model)
    assert all(used(model))
    assert not any(used(model)), "a second time changes nothing"
    found = written(model)
    assert torch.allclose(found, expected, atol=1e-4)
    assert not torch.equal(found, expected), "sums in another order show that it was used"


@pytest.mark.parametrize("kind", OTHERS)
def test_other_layers_are_left_alone(kind):
    model = made(OTHERS[kind])
    kinds = [type(layer) for layer in model.model.layers]
    assert not any(used(model))
    assert [type(layer) for layer in model.model.layers] == kinds


def test_large_and_low_precision_layers_are_left_alone(monkeypatch):
    assert not any(used(made(LIKE_LLAMA["qwen3"]).bfloat16()))
    monkeypatch.setattr(layers, "LARGEST", 1000)
    assert not any(used(made(LIKE_LLAMA["qwen3"])))


@pytest.mark.parametrize("name", ["self_attn.k_proj", "self_attn.q_norm", "mlp.up_proj"])
def test_new_weights_are_seen(name):
    model = made(LIKE_LLAMA["qwen3"])
    used(model)
    before = written(model)
    with torch.no_grad():
        model.model.layers[1].get_submodule(name).weight.mul_(-1.5)
    fresh = made(LIKE_LLAMA["qwen3"])
    fresh.load_state_dict(model.state_dict())
    assert torch.allclose(written(model), written(fresh), atol=1e-4)
    assert not torch.allclose(written(model), before, atol=1e-2)


def test_copies_keep_weights_of_their_own():
    model = made(LIKE_LLAMA["qwen3"])
    used(model)
    expected = written(model)
    other = copy.deepcopy(model)
    with torch.no_grad():
        other.model.layers[0].mlp.gate_proj.weight.zero_()
    assert torch.equal(written(model), expected)
    assert not torch.allclose(written(other), expected, atol=1e-2)


def test_adapters_are_not_passed_over():
    model = made(LIKE_LLAMA["qwen3"])
    used(model)
    adapted = get_peft_model(
        model, LoraConfig(r=2, target_modules=["v_proj", "up_proj"], init_lora_weights=False)
    ).eval()
    found = written(adapted)
    merged = adapted.merge_and_unload()
    fresh = made(LIKE_LLAMA["qwen3"])
    fresh.load_state_dict(merged.state_dict())
    assert torch.allclose(found, written(fresh), atol=1e-4)


def test_training_is_the_models_own_code():
    model = made(LIKE_LLAMA["qwen3"])
    tokens = torch.arange(10)[None]
    expected = model(tokens, labels=tokens).loss
    used(model)
    loss = model(tokens, labels=tokens).loss
    assert torch.equal(loss, expected)
    loss.backward()
    assert all(parameter.grad is not None for parameter in model.parameters())
