import json

import pytest
import torch
from peft import PeftModel
from transformers import AutoModelForCausalLM, AutoTokenizer

from turnwise.errors import ModelError
from turnwise.kernels.cache_name import CACHE
from turnwise.policies import (
    LoraSettings,
    OptimizerConfig,
    PolicyConfig,
    load_policies,
    load_policy,
    make_optimizer,
)
from turnwise.types import Message, Prompt

from .conftest import backward, logits_of, shake

LORA = LoraSettings(rank=2, alpha=4.0, dropout=0.5)
KINDS = pytest.mark.parametrize("lora", [None, LORA], ids=["full", "lora"])


def load(tiny_dir, lora=None, name="main", **options):
    return load_policy(name, PolicyConfig(model=str(tiny_dir), lora=lora, **options))


def test_a_policy_knows_its_limits_and_speaks(tiny_dir):
    policy = load(tiny_dir)
    assert (policy.context, policy.device.type, policy.version) == (64, "cpu", 0)
    assert policy.stop_ids == {policy.tokenizer.eos_token_id}
    ids = policy.renderer.prompt_ids(Prompt(messages=(Message(role="user", content="you r1c2"),)))
    assert policy.tokenizer.decode(ids).endswith("<|im_start|>assistant\n")
    assert not policy.model.training
    assert repr(policy) == "Policy('main', version=0, full, cpu)"


def test_what_is_trained(tiny_dir):
    full, adapter = load(tiny_dir), load(tiny_dir, LORA)
    frozen = load(tiny_dir, trainable=False)
    assert sum(p.numel() for p in full.trainable_parameters()) == full.parameters
    assert adapter.parameters > full.parameters == frozen.parameters
    trained = {n for n, p in adapter.model.named_parameters() if p.requires_grad}
    assert trained and all("lora_" in name for name in trained)
    assert not any("lm_head" in name for name in trained)
    assert len(trained) == 2 * 2 * 7  # two factors, two layers, seven linear maps
    assert frozen.trainable_parameters() == []


def test_full_weights_saved_load_with_transformers(tiny_dir, tmp_path):
    policy = load(tiny_dir)
    shake(policy)
    policy.save(tmp_path / "saved")
    again = AutoModelForCausalLM.from_pretrained(tmp_path / "saved").eval()
    assert torch.equal(logits_of(again), logits_of(policy.model))
    tokenizer = AutoTokenizer.from_pretrained(tmp_path / "saved")
    assert tokenizer.chat_template == policy.tokenizer.chat_template
    assert list((tmp_path / "saved").glob("*.safetensors"))
    assert [path.name for path in tmp_path.iterdir()] == ["saved"]


def test_an_adapter_saved_loads_with_peft_and_states_its_dropout(tiny_dir, tmp_path):
    policy = load(tiny_dir, LORA)
    shake(policy)
    policy.save(tmp_path / "saved")
    base = AutoModelForCausalLM.from_pretrained(tiny_dir)
    again = PeftModel.from_pretrained(base, tmp_path / "saved").eval()
    assert torch.equal(logits_of(again), logits_of(policy.model))
    settings = json.loads((tmp_path / "saved" / "adapter_config.json").read_text())
    assert settings["lora_dropout"] == 0.5
    assert settings["base_model_name_or_path"] == str(tiny_dir)
    assert (settings["r"], settings["lora_alpha"]) == (2, 4.0)
    assert AutoTokenizer.from_pretrained(tmp_path / "saved").chat_template


@KINDS
def test_a_saved_policy_is_itself_a_source(tiny_dir, tmp_path, lora):
    policy = load(tiny_dir, lora)
    shake(policy)
    policy.save(tmp_path / "saved")
    again = load(tmp_path / "saved")
    assert again.digest() == policy.digest()
    assert len(again.trainable_parameters()) == len(policy.trainable_parameters())
    assert load(tmp_path / "saved", trainable=False).trainable_parameters() == []


@KINDS
def test_load_weights_restores_bits_in_place(tiny_dir, tmp_path, lora):
    policy = load(tiny_dir, lora)
    shake(policy)
    policy.save(tmp_path / "saved")
    before, tensors = policy.digest(), policy.trainable_parameters()
    shake(policy, seed=1)
    assert policy.digest() != before
    policy.load_weights(tmp_path / "saved")
    assert policy.digest() == before
    assert all(a is b for a, b in zip(tensors, policy.trainable_parameters(), strict=True))


def test_saving_replaces_what_was_there(tiny_dir, tmp_path):
    policy = load(tiny_dir)
    policy.save(tmp_path / "saved")
    shake(policy)
    policy.save(tmp_path / "saved")
    assert load(tmp_path / "saved").digest() == policy.digest()
    assert [path.name for path in tmp_path.iterdir()] == ["saved"]


def test_the_digest_sees_every_tensor_and_the_adapter(tiny_dir):
    policy = load(tiny_dir)
    seen = {policy.digest()}
    for parameter in policy.trainable_parameters():
        with torch.no_grad():
            parameter.view(-1)[0] += 1.0
        seen.add(policy.digest())
    assert len(seen) == len(policy.trainable_parameters()) + 1
    adapted = load(tiny_dir, LORA)
    on = adapted.digest()
    assert on == load(tiny_dir, LORA).digest()
    with adapted.model.disable_adapter():
        assert adapted.digest() != on
    assert adapted.digest() == on


def test_the_digest_sees_changed_frozen_weights(tiny_dir):
    policy = load(tiny_dir, LORA)
    before = policy.digest()
    with torch.no_grad():
        policy.model.get_base_model().model.norm.weight.add_(1.0)
    assert policy.digest() != before


def test_adapter_dropout_acts_in_supervised_training_only(tiny_dir):
    policy = load(tiny_dir, LORA)
    shake(policy)
    plain = logits_of(policy.model)
    with policy.dropout(False):
        assert torch.equal(logits_of(policy.model), plain)
        assert torch.equal(logits_of(policy.model), plain)
        backward(policy)
    assert all(p.grad is not None for p in policy.trainable_parameters())
    with policy.dropout(True):
        assert not torch.equal(logits_of(policy.model), logits_of(policy.model))
    assert torch.equal(logits_of(policy.model), plain)


def test_dropout_ends_with_its_block_even_after_an_error(tiny_dir):
    policy = load(tiny_dir, LORA)
    with pytest.raises(RuntimeError, match="stop"), policy.dropout(True):
        raise RuntimeError("stop")
    assert not any(module.training for module in policy.model.modules())


@KINDS
def test_gradient_checkpointing_acts_in_eval_mode_and_changes_nothing(tiny_dir, lora):
    grads = []
    for checkpointing in (False, True):
        policy = load(tiny_dir, lora, gradient_checkpointing=checkpointing)
        shake(policy)
        calls = []
        layer = policy.base.model.layers[0]
        layer.mlp.register_forward_pre_hook(lambda *_, calls=calls: calls.append(1))
        with policy.dropout(False):
            backward(policy)
        # A checkpointed layer runs a second time in the backward pass.
        assert len(calls) == (2 if checkpointing else 1)
        grads.append([p.grad.clone() for p in policy.trainable_parameters()])
        cached = policy.model(input_ids=torch.tensor([[5, 6]]), use_cache=True)[CACHE]
        assert cached.get_seq_length() == 2
    for plain, checked in zip(*grads, strict=True):
        torch.testing.assert_close(plain, checked)


def step(policy):
    optimizer = make_optimizer(policy, OptimizerConfig(lr=0.01), total_steps=1)
    backward(policy)
    optimizer.step()


@KINDS
def test_a_reference_stays_while_training_moves(tiny_dir, lora):
    policy = load(tiny_dir, lora)
    shake(policy)  # as warm-up does: the reference is not the bare base
    reference = policy.reference()
    start = logits_of(policy.model)
    assert torch.equal(logits_of(reference.model), start)
    assert reference.trainable_parameters() == []
    digest = reference.digest()
    step(policy)
    assert not torch.equal(logits_of(policy.model), start)
    assert torch.equal(logits_of(reference.model), start)
    assert reference.digest() == digest
    assert policy.trainable_parameters()


def test_an_adapters_reference_shares_the_base(tiny_dir):
    policy = load(tiny_dir, LORA)
    reference = policy.reference()
    assert embedding(reference) is embedding(policy)


def embedding(policy):
    return policy.base.get_input_embeddings().weight


@KINDS
def test_a_step_on_one_policy_leaves_the_others_alone(tiny_dir, lora):
    config = PolicyConfig(model=str(tiny_dir), lora=lora)
    frozen = PolicyConfig(model=str(tiny_dir), trainable=False)
    policies = load_policies({"a": config, "b": config, "c": frozen})
    before = {name: policy.digest() for name, policy in policies.items()}
    step(policies["a"])
    after = {name: policy.digest() for name, policy in policies.items()}
    assert [name for name in after if before[name] != after[name]] == ["a"]
    assert (embedding(policies["a"]) is embedding(policies["b"])) == (lora is not None)


def test_adapters_on_one_base_begin_different_but_neutral(tiny_dir):
    config = PolicyConfig(model=str(tiny_dir), lora=LORA)
    policies = load_policies({"a": config, "b": config})
    assert policies["a"].digest() != policies["b"].digest()
    assert torch.equal(logits_of(policies["a"].model), logits_of(policies["b"].model))
    assert load_policy("a", config).digest() == policies["a"].digest()


def test_weights_of_another_shape_or_kind_are_refused(tiny_dir, tmp_path):
    load(tiny_dir, LoraSettings(rank=3)).save(tmp_path / "rank3")
    adapter, full = load(tiny_dir, LORA), load(tiny_dir)
    before = adapter.digest()
    with pytest.raises(ModelError, match=r"28 tensors differ, first .*\[3, 32\]"):
        adapter.load_weights(tmp_path / "rank3")
    assert adapter.digest() == before
    with pytest.raises(ModelError, match="holds an adapter, but policy 'main' expects full"):
        full.load_weights(tmp_path / "rank3")
    with pytest.raises(ModelError, match=r"holds full weights, but .* expects an adapter"):
        adapter.load_weights(tiny_dir)
    with pytest.raises(ModelError, match=r"holds nothing, but .* expects full weights"):
        full.load_weights(tmp_path / "absent")
