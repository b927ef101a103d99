"""An adapter that became part of the base, and the fresh one on top of it."""

import json
import shutil

import pytest
import torch
from peft import LoraConfig, PeftModel, get_peft_model
from transformers import AutoModelForCausalLM

from turnwise.errors import ModelError
from turnwise.policies import LoraSettings, PolicyConfig, load_policies, load_policy

from .conftest import TEXTS, TINY, logits_of, shake

LORA = LoraSettings(rank=2, alpha=4.0, dropout=0.05, targets=("q_proj", "v_proj"))


def load(source, lora=LORA, **options):
    return load_policy("main", PolicyConfig(model=str(source), lora=lora, **options))


@pytest.fixture
def stack(tiny_dir, tmp_path):
    """A policy on a merged adapter, both adapters saved; neither is neutral."""
    policy = load(tiny_dir)
    shake(policy)
    policy.save(tmp_path / "first")
    policy.merge_adapter(tmp_path / "first", seed=1)
    shake(policy, seed=1)
    policy.save(tmp_path / "second")
    return policy


def test_merging_changes_no_answer_and_begins_anew(tiny_dir, tmp_path):
    policy = load(tiny_dir)
    shake(policy)
    policy.save(tmp_path / "first")
    before, digest, tensors = (
        logits_of(policy.model),
        policy.digest(),
        policy.trainable_parameters(),
    )
    policy.merge_adapter(tmp_path / "first", seed=1)
    torch.testing.assert_close(logits_of(policy.model), before, rtol=0, atol=1e-5)
    with policy.model.disable_adapter():
        torch.testing.assert_close(logits_of(policy.model), before, rtol=0, atol=1e-5)
    assert policy.digest() != digest
    assert all(a is b for a, b in zip(tensors, policy.trainable_parameters(), strict=True))
    ups = [p for n, p in policy.model.named_parameters() if "lora_B" in n]
    assert not any(p.any() for p in ups)


def test_a_fresh_adapter_is_drawn_from_its_seed_as_peft_draws(tiny_dir, tmp_path):
    downs = []
    for seed in (1, 1, 2):
        policy = load(tiny_dir)
        policy.save(tmp_path / "first")
        policy.merge_adapter(tmp_path / "first", seed)
        downs.append(torch.cat([p.flatten() for p in policy.trainable_parameters() if p.any()]))
    assert torch.equal(downs[0], downs[1]) and not torch.equal(downs[0], downs[2])
    theirs = torch.cat([p.flatten() for p in load(tiny_dir).trainable_parameters() if p.any()])
    assert theirs.shape == downs[0].shape
    bound = TINY.hidden**-0.5
    for drawn in (theirs, downs[0]):
        assert 0.9 * bound < drawn.abs().max() <= bound
        assert float(drawn.detach().std()) == pytest.approx(bound / 3**0.5, rel=0.15)


@pytest.mark.parametrize("dtype", ["float32", "bfloat16"])
def test_merged_weights_are_pefts_to_the_bit_and_keep_their_type(tiny_dir, tmp_path, dtype):
    policy = load(tiny_dir, dtype=dtype)
    shake(policy)
    policy.save(tmp_path / "first")
    policy.merge_adapter(tmp_path / "first", seed=1)
    base = AutoModelForCausalLM.from_pretrained(tiny_dir, dtype=dtype)
    theirs = PeftModel.from_pretrained(base, str(tmp_path / "first")).merge_and_unload()
    with policy.model.disable_adapter():
        assert torch.equal(logits_of(policy.model), logits_of(theirs))
    assert {p.dtype for p in policy.base.parameters() if not p.requires_grad} == {
        getattr(torch, dtype)
    }


def test_policies_on_the_same_base_do_not_notice(tiny_dir, tmp_path):
    config = PolicyConfig(model=str(tiny_dir), lora=LORA)
    policies = load_policies({"a": config, "b": config})
    shake(policies["a"])
    policies["a"].save(tmp_path / "first")
    before, reference = policies["b"].digest(), policies["a"].reference()
    start = reference.digest()
    policies["a"].merge_adapter(tmp_path / "first", seed=1)
    assert policies["b"].digest() == before
    assert reference.digest() == start
    embeddings = [policy.base.get_input_embeddings().weight for policy in policies.values()]
    assert embeddings[0] is embeddings[1]


def test_a_stack_loads_from_its_last_directory(stack, tmp_path):
    again = load(tmp_path / "second", lora=None)
    assert again.digest() == stack.digest()
    assert [entry.path for entry in again.merged] == [(tmp_path / "first").resolve()]
    again.save(tmp_path / "deeper" / "copy")
    assert load(tmp_path / "deeper" / "copy", lora=None).digest() == stack.digest()


def test_a_stack_loads_into_a_policy_that_has_not_merged(stack, tiny_dir, tmp_path):
    policy = load(tiny_dir)
    policy.load_weights(tmp_path / "second")
    assert policy.digest() == stack.digest()
    policy.load_weights(tmp_path / "second")
    assert policy.digest() == stack.digest()
    assert policy.reference().digest() == stack.reference().digest()
    with pytest.raises(ModelError, match="was not trained on the adapters merged into .*first"):
        policy.load_weights(tmp_path / "first")


def test_a_stack_grows_and_its_folder_may_move(stack, tmp_path):
    stack.merge_adapter(tmp_path / "second", seed=2)
    shake(stack, seed=2)
    stack.save(tmp_path / "third")
    (tmp_path / "elsewhere").mkdir()
    for name in ("first", "second", "third"):
        shutil.move(tmp_path / name, tmp_path / "elsewhere" / name)
    assert load(tmp_path / "elsewhere" / "third", lora=None).digest() == stack.digest()


def test_a_stack_without_its_first_adapter_is_refused(stack, tiny_dir, tmp_path):
    moved = shutil.copytree(tmp_path / "second", tmp_path / "alone" / "second")
    for attempt in (lambda: load(moved, lora=None), lambda: load(tiny_dir).load_weights(moved)):
        with pytest.raises(ModelError, match=r"with the adapter .*first merged in, which is not"):
            attempt()
    policy = load(tiny_dir)
    shake(policy, seed=7)
    policy.save(tmp_path / "first")
    with pytest.raises(ModelError, match="another adapter merged in than the one that is now in"):
        load(tmp_path / "second", lora=None)


@pytest.mark.parametrize("text", ["{", "[1]", '[{"adapter": "../first"}]'])
def test_a_damaged_note_says_what_it_should_be(stack, tmp_path, text):
    (tmp_path / "second" / "merge_first.json").write_text(text)
    with pytest.raises(ModelError, match=r"merge_first\.json cannot be read .*expected a list"):
        load(tmp_path / "second", lora=None)


def test_a_refused_stack_leaves_the_policy_as_it_was(stack, tiny_dir, tmp_path):
    policy = load(tiny_dir, LoraSettings(rank=3, targets=LORA.targets))
    before = policy.digest()
    with pytest.raises(ModelError, match="does not fit"):
        policy.load_weights(tmp_path / "second")
    assert policy.digest() == before and policy.merged == ()


def test_tied_output_weights_are_not_merged(tiny_dir, tmp_path):
    lora = LoraSettings(rank=2, targets=("q_proj", "lm_head"), merge_warmup=True)
    with pytest.raises(ModelError, match="lm_head as its embedding too, which merging would"):
        load(tiny_dir, lora)
    untied = PolicyConfig(
        model="nano", nano=TINY.model_copy(update={"tied_embeddings": False}), lora=lora
    )
    assert load_policy("main", untied, transcripts=TEXTS, directory=tmp_path).has_adapter


def test_an_adapter_of_another_kind_is_not_merged(tiny_dir, tmp_path):
    model = AutoModelForCausalLM.from_pretrained(tiny_dir)
    config = LoraConfig(r=16, lora_alpha=32, use_dora=True, target_modules=["q_proj"])
    get_peft_model(model, config).save_pretrained(tmp_path / "dora")
    lora = LoraSettings(targets=("q_proj",), merge_warmup=True)
    with pytest.raises(ModelError, match="is more than two factors"):
        load(tmp_path / "dora", lora)


def test_an_adapter_whose_base_is_gone(tiny_dir, tmp_path):
    base = shutil.copytree(tiny_dir, tmp_path / "base")
    load(base).save(tmp_path / "saved")
    shutil.rmtree(base)
    with pytest.raises(ModelError, match=r"names the base .*base, which is not there: put the"):
        load(tmp_path / "saved", lora=None)
    file = tmp_path / "saved" / "adapter_config.json"
    config = json.loads(file.read_text()) | {"base_model_name_or_path": None}
    file.write_text(json.dumps(config))
    with pytest.raises(ModelError, match="does not name its base: set base_model_name_or_path"):
        load(tmp_path / "saved", lora=None)
