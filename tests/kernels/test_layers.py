"""Decoder layers in few operations against the models' own."""

import copy

import numpy as np
import pytest
import torch
from peft import LoraConfig, get_peft_model
from transformers import (
    Gemma2Config,
    Gemma2ForCausalLM,
    Glm4MoeConfig,
    Glm4MoeForCausalLM,
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

from turnwise.engines.base import PromptKey
from turnwise.engines.local.masks import MaskRule
from turnwise.engines.local.model_runner import CachedRows
from turnwise.kernels import layers, set_attention
from turnwise.kernels.probe import mask_forms

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
MOE = {"n_routed_experts": 4, "num_experts_per_tok": 2, "moe_intermediate_size": 16, "n_group": 1}
PARTIAL = {
    "glm4_moe": lambda factor: Glm4MoeForCausalLM(
        Glm4MoeConfig(
            **SIZES,
            **MOE,
            topk_group=1,
            first_k_dense_replace=1,
            use_qk_norm=True,
            rope_parameters={
                "rope_type": "default",
                "rope_theta": 1e4,
                "partial_rotary_factor": factor,
            },
        )
    ),
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


def used(model, copy_bytes=1 << 30):
    layers.use_fused_layers(model, copy_bytes)
    return [isinstance(layer, layers.FusedLayer) for layer in model.model.layers]


def written(model):
    """Return the logits of rows that write after prompts that some of them share."""
    form = mask_forms(model.config.to_dict())[0]
    window = getattr(model.config, "sliding_window", None)
    rows = CachedRows(model, MaskRule(form=form, window=window, dtype=torch.float32), 0)
    with torch.inference_mode():
        found = [rows.prefill([PromptKey((), (5, 6, 7, 8)), PromptKey((), (9, 10))])[1]]
        rows.rearrange(np.array([0, 0]), np.array([2, 3]), 4)
        for tokens in ([3, 4, 5, 6], [7, 7, 8, 9], [1, 2, 3, 4]):
            found.append(rows.decode(np.array(tokens)))
    return torch.cat(found)


@pytest.mark.parametrize("kind", LIKE_LLAMA)
def test_steps_give_the_models_own_numbers(kind):
    model = made(LIKE_LLAMA[kind])
    expected = written(model)
    assert all(used(model))
    kinds = [type(layer) for layer in model.model.layers]
    assert all(used(model))
    assert [type(layer) for layer in model.model.layers] == kinds, "once is enough"
    found = written(model)
    assert torch.allclose(found, expected, atol=1e-4)
    assert not torch.equal(found, expected), "sums in another order show that it was used"


@pytest.mark.parametrize("factor", [0.25, 0.5, 1.0])
def test_partial_rotary_positions_give_the_models_own_numbers(factor):
    model = made(lambda: PARTIAL["glm4_moe"](factor))
    expected = written(model)
    assert any(used(model))
    assert torch.allclose(written(model), expected, atol=1e-4)


def test_the_models_own_code_can_be_put_back():
    model = made(LIKE_LLAMA["qwen3"])
    kinds, expected = [type(layer) for layer in model.model.layers], written(model)
    assert not layers.undo_fused_layers(model)
    used(model)
    assert layers.undo_fused_layers(model)
    assert [type(layer) for layer in model.model.layers] == kinds
    assert torch.equal(written(model), expected)


@pytest.mark.parametrize("kind", OTHERS)
def test_other_layers_are_left_alone(kind):
    model = made(OTHERS[kind])
    kinds = [type(layer) for layer in model.model.layers]
    assert not any(used(model))
    assert [type(layer) for layer in model.model.layers] == kinds


def test_large_and_low_precision_layers_are_left_alone():
    assert not any(used(made(LIKE_LLAMA["qwen3"]).bfloat16()))
    size = sum(p.numel() * 4 for p in made(LIKE_LLAMA["qwen3"]).model.layers.parameters())
    assert not any(used(made(LIKE_LLAMA["qwen3"]), size - 1))
    assert all(used(made(LIKE_LLAMA["qwen3"]), size))


def test_copies_are_dropped_and_made_again():
    model = made(LIKE_LLAMA["qwen3"])
    used(model)
    assert all(layer._fused is None for layer in model.model.layers)
    before = written(model)
    assert all(layer._fused is not None for layer in model.model.layers)
    layers.drop_copies(model)
    assert all(layer._fused is None for layer in model.model.layers)
    assert torch.equal(written(model), before)


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


def adapted(model, **options):
    wanted = LoraConfig(r=2, target_modules=["v_proj", "up_proj"], **options)
    other = get_peft_model(model, wanted).eval()
    with torch.no_grad():
        for name, parameter in other.named_parameters():
            if "lora_" in name:
                parameter.normal_(0, 0.3)
    return other


def merged(model):
    """A plain model with what an adapted one amounts to."""
    fresh = made(LIKE_LLAMA["qwen3"])
    fresh.load_state_dict(copy.deepcopy(model).merge_and_unload().state_dict())
    return fresh


@pytest.mark.parametrize("before", [True, False])
def test_adapters_are_in_the_copies(before):
    model = made(LIKE_LLAMA["qwen3"])
    if before:
        used(model)
    peft = adapted(model)
    assert all(used(model))
    assert torch.allclose(written(peft), written(merged(peft)), atol=1e-4)
    assert all(layer._fused is not None for layer in model.model.layers)
    layer = model.model.layers[0].self_attn.v_proj
    with torch.no_grad():
        layer.lora_B["default"].weight.mul_(-2)
    assert torch.allclose(written(peft), written(merged(peft)), atol=1e-4)
    layer.set_scale("default", 3.0)
    assert torch.allclose(written(peft), written(merged(peft)), atol=1e-4)


def test_adapters_of_another_kind_are_not_passed_over():
    model = made(LIKE_LLAMA["qwen3"])
    used(model)
    peft = adapted(model, use_dora=True)
    assert torch.allclose(written(peft), written(merged(peft)), atol=1e-4)
    assert all(layer._fused is None for layer in model.model.layers)


def test_training_is_the_models_own_code():
    model = made(LIKE_LLAMA["qwen3"])
    tokens = torch.arange(10)[None]
    expected = model(tokens, labels=tokens).loss
    used(model)
    loss = model(tokens, labels=tokens).loss
    assert torch.equal(loss, expected)
    loss.backward()
    assert all(parameter.grad is not None for parameter in model.parameters())
