import json
import shutil

import huggingface_hub.constants
import pytest
import torch
from pydantic import ValidationError
from safetensors.torch import load_file, save_file
from transformers import Gemma2Config, Gemma2ForCausalLM

from turnwise.errors import ModelError
from turnwise.policies import LoraSettings, NanoConfig, PolicyConfig, load_policies, load_policy
from turnwise.policies.resolve import resolve_attention, resolve_device, resolve_dtype
from turnwise.types import Message, Prompt

from .conftest import TEXTS, TINY, logits_of


@pytest.fixture
def broken(tiny_dir, tmp_path):
    """Return a copy of the tiny model that a test may break."""
    return shutil.copytree(tiny_dir, tmp_path / "broken")


def refused(match, **config):
    with pytest.raises(ModelError, match=match):
        load_policy("main", PolicyConfig(**config))


def test_nano_models_are_made_on_the_spot(tmp_path):
    config = PolicyConfig(model="nano", nano=TINY)
    policy = load_policy("main", config, transcripts=TEXTS)
    assert policy.model.config.hidden_size == 16
    kept = load_policy("main", config, transcripts=TEXTS, directory=tmp_path)
    assert kept.digest() == policy.digest()
    assert (tmp_path / "main" / "model.safetensors").is_file()
    assert load_policy("main", config, transcripts=TEXTS, seed=1).digest() != policy.digest()


def test_adapters_on_one_nano_base(tmp_path):
    config = PolicyConfig(model="nano", nano=TINY, lora=LoraSettings(rank=2))
    with pytest.raises(ModelError, match=r"made on the spot that is not kept: give `directory`"):
        load_policy("a", config, transcripts=TEXTS)
    policies = load_policies({"a": config, "b": config}, transcripts=TEXTS, directory=tmp_path)
    assert [path.name for path in tmp_path.iterdir()] == ["a"]
    policies["b"].save(tmp_path / "saved-b")
    again = load_policy("b", PolicyConfig(model=str(tmp_path / "saved-b")))
    assert again.digest() == policies["b"].digest()


def test_a_nano_tokenizer_needs_texts():
    refused("needs texts for its tokenizer: give `transcripts` or `words`", model="nano")


def test_paths_that_are_no_model(tmp_path, broken):
    refused("is not a directory: expected a Hugging Face model", model=str(tmp_path / "absent"))
    refused("is not a directory", model="./absent")
    (tmp_path / "empty").mkdir()
    refused(r"has no config\.json", model=str(tmp_path / "empty"))
    (broken / "model.safetensors").unlink()
    refused("holds no weights, but safetensors are expected", model=str(broken))
    (broken / "pytorch_model.bin").write_bytes(b"x")
    refused(r"holds only pickled \.bin weights", model=str(broken))


def test_a_hub_name_that_cannot_be_reached(monkeypatch):
    monkeypatch.setattr(huggingface_hub.constants, "HF_HUB_OFFLINE", True)
    refused(
        r"cannot load the model of 'no/such': it is not in the cache.*HF_HUB_OFFLINE",
        model="no/such",
    )


def test_damaged_weights(broken):
    path = broken / "model.safetensors"
    tensors = load_file(path)
    del tensors["model.norm.weight"]
    save_file(tensors, path, metadata={"format": "pt"})
    refused(r"lacks 1 weights, first model\.norm\.weight", model=str(broken))
    path.write_bytes(b"not safetensors")
    refused("cannot load the model", model=str(broken))


def test_missing_tokenizer_and_template(broken):
    (broken / "chat_template.jinja").unlink()
    bare = load_policy("main", PolicyConfig(model=str(broken), device="cpu"))
    assert bare.renderer.prompt_ids(Prompt(text="you"))  # raw text needs no template
    with pytest.raises(ModelError, match="has no chat template"):
        bare.renderer.prompt_ids(Prompt(messages=(Message(role="user", content="you"),)))
    (broken / "tokenizer.json").unlink()
    refused("has no tokenizer: expected one of tokenizer.json", model=str(broken))


def test_a_tokenizer_that_is_too_large(broken):
    path = broken / "config.json"
    weights = load_file(broken / "model.safetensors")
    embedding = weights["model.embed_tokens.weight"]
    weights["model.embed_tokens.weight"] = embedding[:-1].clone()
    save_file(weights, broken / "model.safetensors", metadata={"format": "pt"})
    sizes = json.loads(path.read_text())
    path.write_text(json.dumps(sizes | {"vocab_size": len(embedding) - 1}))
    refused(rf"has {len(embedding)} tokens but the model {len(embedding) - 1}", model=str(broken))


def test_adapter_targets_that_do_not_exist(tiny_dir):
    lora = LoraSettings(targets=("q_proj", "qkv"))
    refused(r"no linear layer named qkv; choose among .*q_proj", model=str(tiny_dir), lora=lora)
    one = PolicyConfig(model=str(tiny_dir), lora=LoraSettings(rank=1, targets=("q_proj",)))
    assert len(load_policy("main", one).trainable_parameters()) == 2 * TINY.layers


def test_adapter_settings_that_contradict_the_saved_ones(tiny_dir, tmp_path):
    lora = LoraSettings(rank=2, alpha=4)
    load_policy("main", PolicyConfig(model=str(tiny_dir), lora=lora)).save(tmp_path / "saved")
    same = PolicyConfig(model=str(tmp_path / "saved"), lora=lora)
    assert load_policy("main", same).trainable_parameters()
    refused(
        "asks for rank 3, alpha 4.0 and dropout 0.0, but the adapter .* has rank 2, alpha 4.0 and",
        model=str(tmp_path / "saved"),
        lora=LoraSettings(rank=3, alpha=4),
    )
    refused(
        r"and targets \['q_proj'\], but the adapter",
        model=str(tmp_path / "saved"),
        lora=LoraSettings(rank=2, alpha=4, targets=("q_proj",)),
    )


def test_a_template_option_that_is_not_read(tiny_dir):
    options = {"enable_thinking": False}
    refused("'enable_thinking' is not read", model=str(tiny_dir), template_options=options)


def test_end_ids_of_the_generation_config_stop(broken):
    path = broken / "generation_config.json"
    path.write_text(json.dumps(json.loads(path.read_text()) | {"eos_token_id": [7, 9]}))
    policy = load_policy("main", PolicyConfig(model=str(broken)))
    assert policy.stop_ids == {7, 9, policy.tokenizer.eos_token_id}


def test_soft_capped_models_get_eager_attention(tiny_dir, tmp_path):
    sizes = Gemma2Config(
        vocab_size=400,
        hidden_size=16,
        num_hidden_layers=1,
        num_attention_heads=2,
        num_key_value_heads=1,
        head_dim=8,
        intermediate_size=16,
    )
    folder = tmp_path / "gemma"
    Gemma2ForCausalLM(sizes).save_pretrained(folder)
    for name in ("tokenizer.json", "tokenizer_config.json", "chat_template.jinja"):
        shutil.copy(tiny_dir / name, folder)
    policy = load_policy("main", PolicyConfig(model=str(folder)))
    assert policy.model.config._attn_implementation == "eager"
    refused("which soft-caps its attention logits", model=str(folder), attention="sdpa")


def test_attention_as_asked(tiny_dir):
    for asked, chosen in (("auto", "sdpa"), ("eager", "eager")):
        policy = load_policy("main", PolicyConfig(model=str(tiny_dir), attention=asked))
        assert policy.model.config._attn_implementation == chosen
    assert resolve_attention("auto", {}, has_sdpa=False, model="m") == "eager"
    with pytest.raises(ModelError, match="has no SDPA attention"):
        resolve_attention("sdpa", {}, has_sdpa=False, model="m")


def test_precision_as_asked(tiny_dir):
    half = load_policy("main", PolicyConfig(model=str(tiny_dir), dtype="bfloat16"))
    assert {p.dtype for p in half.trainable_parameters()} == {torch.bfloat16}
    assert torch.isfinite(logits_of(half.model)).all()
    assert half.digest() != load_policy("main", PolicyConfig(model=str(tiny_dir))).digest()


@pytest.mark.parametrize(
    ("device", "has_bf16", "parameters", "trainable", "expected"),
    [
        ("cpu", True, 10**9, True, torch.float32),
        ("mps", False, 10**9, True, torch.float32),
        ("cuda", True, 10**6, True, torch.float32),
        ("cuda", True, 10**9, True, torch.bfloat16),
        ("cuda", False, 10**9, True, torch.float32),
        ("cuda", False, 10**9, False, torch.float16),
    ],
)
def test_automatic_precision(device, has_bf16, parameters, trainable, expected):
    chosen = resolve_dtype(
        "auto", device, has_bf16=has_bf16, parameters=parameters, trainable=trainable
    )
    assert chosen == expected


def test_devices(monkeypatch):
    monkeypatch.setattr(torch.cuda, "is_available", lambda: False)
    assert resolve_device("auto").type == "cpu"
    with pytest.raises(ModelError, match="device = 'cuda' is not available here"):
        resolve_device("cuda")
    monkeypatch.setattr(torch.cuda, "is_available", lambda: True)
    assert resolve_device("auto").type == "cuda"


def test_combinations_that_cannot_work_fail_at_parse_time():
    with pytest.raises(ValidationError, match="`nano` gives sizes of a model made on the spot"):
        PolicyConfig(model="Qwen/Qwen3-0.6B", nano=NanoConfig())
    with pytest.raises(ValidationError, match="'float16' underflows"):
        PolicyConfig(dtype="float16")
    assert PolicyConfig(dtype="float16", trainable=False).dtype == "float16"
    with pytest.raises(ValidationError, match="does nothing for trainable = false"):
        PolicyConfig(gradient_checkpointing=True, trainable=False)
    with pytest.raises(ValidationError, match="modell"):
        PolicyConfig(modell="nano")
