"""Which layout is chosen, and what the reason says."""

import copy
import dataclasses

import pytest
import torch
import transformers as hf
from peft import PromptTuningConfig, get_peft_model

from turnwise.errors import ModelError
from turnwise.forest import ForestConfig, TreeScorer
from turnwise.forest.choose import _probe_samples, bytes_per_token, choose, head_apart_agrees
from turnwise.forest.config import MOST_TOKENS
from turnwise.forest.head import Parts

SIZES = {
    "vocab_size": 41,
    "hidden_size": 32,
    "intermediate_size": 48,
    "num_hidden_layers": 2,
    "num_attention_heads": 4,
    "num_key_value_heads": 2,
    "head_dim": 8,
    "max_position_embeddings": 128,
    "pad_token_id": 0,
}

TREES = (
    "qwen3-sdpa", "qwen3-eager", "qwen3-window", "qwen3-lora", "llama", "gemma", "gemma2-eager",
    "gemma3-sdpa", "gemma3-eager", "mistral", "gpt2", "granite",
    "fresh-qwen3", "fresh-gemma3", "fresh-mistral",
)  # fmt: skip
FLAT = ("lfm2", "falcon-h1", "qwen3-next", "mamba", "bloom", "fresh-lfm2", "fresh-bloom")


@pytest.mark.parametrize("name", TREES)
def test_attention_models_are_scored_as_trees(models, name):
    scorer = choose(models(name), ForestConfig())
    assert scorer.layout in ("packed", "padded"), scorer.reason
    assert scorer.reason.startswith("tree: ")
    assert "max difference" in scorer.reason
    assert scorer.config == ForestConfig(token_budget=MOST_TOKENS)  # small models fill any budget


@pytest.mark.parametrize("scale", [15, 30])
def test_large_logits_are_off_by_more_and_scored_as_trees(scale):
    torch.manual_seed(0)
    wide = SIZES | {"vocab_size": 120, "hidden_size": 96, "num_hidden_layers": 3, "head_dim": 24}
    model = hf.LlamaForCausalLM(hf.LlamaConfig(**wide | {"max_position_embeddings": 512})).eval()
    with torch.no_grad():
        for matrix in (each for each in model.parameters() if each.dim() == 2):
            matrix *= scale
    assert choose(model, ForestConfig(), tokens=200).layout == "packed"


@pytest.mark.parametrize("name", FLAT)
def test_models_that_no_mask_serves_are_scored_flat(models, name):
    scorer = choose(models(name), ForestConfig())
    assert scorer.layout == "flat", scorer.reason
    assert "full mask" in scorer.reason


@pytest.mark.parametrize(
    ("name", "form"),
    [
        ("gemma2-eager", "by layer type"),
        ("qwen3-window", "by layer type"),
        ("mistral", "windowed"),
        ("llama", "full"),
        ("gpt2", "full"),
    ],
)
def test_the_form_of_the_mask_is_found(models, name, form):
    scorer = choose(models(name), ForestConfig())
    assert isinstance(scorer, TreeScorer)
    assert scorer.form == form


@pytest.mark.parametrize("name", ["gemma2-eager", "gemma3-sdpa", "mistral"])
def test_one_full_mask_loses_the_window_silently(models, make_row, name):
    model, row = models(name), make_row(list(range(4, 30)), range(1, 26))
    scorer = choose(model, ForestConfig())
    (batch,) = scorer.batches([row])
    with torch.no_grad():
        right = scorer.score(model, batch).logprobs
        blind = dataclasses.replace(scorer, form="full").score(model, batch).logprobs
    assert (right - blind)[:5].abs().max() < 1e-4
    assert (right - blind).abs().max() > 0.1


def test_a_layout_that_is_asked_for(models):
    flat = choose(models("llama"), ForestConfig(layout="flat"))
    assert flat.layout == "flat"
    assert flat.reason.startswith("flat: asked for (rows by LM head at targets")
    with pytest.raises(ModelError, match=r"forest.layout = 'tree', but .* set forest.layout"):
        choose(models("lfm2"), ForestConfig(layout="tree"))


def test_a_window_too_long_to_cross_is_said(models):
    model = copy.deepcopy(models("mistral"))
    model.config.sliding_window = 100
    assert "not crossed" in choose(model, ForestConfig(probe_tokens=64)).reason
    assert "not crossed" not in choose(model, ForestConfig()).reason


def test_a_model_that_ignores_its_input_proves_nothing(models):
    model = copy.deepcopy(models("llama"))
    torch.nn.init.zeros_(model.lm_head.weight)
    scorer = choose(model, ForestConfig())
    assert scorer.layout == "flat"
    assert "inconclusive" in scorer.reason


def test_a_scale_that_only_the_forward_knows_is_kept(models):
    model = copy.deepcopy(models("lfm2"))
    forward = model.forward

    def doubled(*args, **kwargs):
        out = forward(*args, **kwargs)
        out.logits = out.logits * 2
        return out

    model.forward = doubled
    scorer = choose(model, ForestConfig())
    assert "LM head at targets: max difference" in scorer.reason


CAPPED = {
    "recurrent_gemma": lambda: hf.RecurrentGemmaConfig(
        **SIZES | {"num_hidden_layers": 3}, lru_width=32, attention_window_size=64
    ),
    "gemma2": lambda: hf.Gemma2Config(**SIZES, final_logit_softcapping=30.0),
    "cohere": lambda: hf.CohereConfig(**SIZES),
    "granite": lambda: hf.GraniteConfig(**SIZES, logits_scaling=8.0),
    "falcon_h1": lambda: hf.FalconH1Config(
        **SIZES, mamba_d_ssm=32, mamba_n_heads=4, mamba_d_head=8, mamba_d_state=8,
        mamba_chunk_size=8, lm_head_multiplier=0.25,
    ),
}  # fmt: skip


@pytest.mark.parametrize("name", CAPPED)
def test_what_comes_after_the_head_is_kept_and_would_be_missed(name, monkeypatch):
    """In a fresh model, whose logits are too small for a soft cap to act on."""
    torch.manual_seed(0)
    model = hf.AutoModelForCausalLM.from_config(CAPPED[name]()).eval()
    sample = _probe_samples(SIZES["vocab_size"], 48, 0)[0]
    with torch.no_grad():
        assert head_apart_agrees(model, sample, low_precision=False)
        assert "own logits" not in choose(model, ForestConfig(layout="flat")).reason
        monkeypatch.setattr(Parts, "logits", lambda self, hidden: self.lm_head(hidden))
        assert not head_apart_agrees(model, sample, low_precision=False)
        assert "own logits" in choose(model, ForestConfig()).reason


def test_trained_heads_are_capped_as_the_forward_caps(make_siblings):
    """The cap of RecurrentGemma acts on large logits, at the values and at the gradients."""
    torch.manual_seed(0)
    model = hf.AutoModelForCausalLM.from_config(CAPPED["recurrent_gemma"]()).eval()
    scorer = choose(model, ForestConfig())
    with torch.no_grad():
        model.lm_head.weight.mul_(200.0)
    samples = make_siblings(prompts=1, each=2)
    for batch in scorer.batches(samples):
        found = scorer.score(model, batch)
        for place, logprob in enumerate(found.logprobs.tolist()):
            sample, at = samples[int(batch.row[place])], int(batch.position[place])
            ids = torch.from_numpy(sample.token_ids)[None]
            logits = model(input_ids=ids).logits[0, at - 1].detach()
            assert logits.abs().max() > 25
            assert abs(float(logits.log_softmax(-1)[ids[0, at]]) - logprob) < 1e-3


def test_bfloat16_is_measured_by_its_own_tolerance(models):
    model = copy.deepcopy(models("fresh-qwen3")).to(torch.bfloat16)
    scorer = choose(model, ForestConfig())
    assert "mean difference" in scorer.reason


def test_prompt_tuning_is_refused(models):
    config = PromptTuningConfig(task_type="CAUSAL_LM", num_virtual_tokens=3)
    model = get_peft_model(copy.deepcopy(models("llama")), config)
    with pytest.raises(ModelError, match="virtual tokens"):
        choose(model, ForestConfig())


@pytest.mark.parametrize("training", [True, False])
def test_the_mode_and_the_gradients_are_left_alone(models, training):
    model = copy.deepcopy(models("gpt2")).train(training)
    assert choose(model, ForestConfig()).layout == "packed"
    assert model.training is training
    assert all(parameter.grad is None for parameter in model.parameters())


def test_the_budget_is_what_the_memory_holds(models):
    model = models("llama")
    each = bytes_per_token(model)
    small = choose(model, ForestConfig(activation_megabytes=1)).config.tokens
    assert small == (1 << 20) // each
    assert choose(model, ForestConfig(token_budget=77)).config.tokens == 77


def test_the_estimate_of_memory_is_that_of_what_autograd_keeps(models, make_siblings):
    """Between half and twice what the hooks of saved tensors count."""
    model = models("qwen3-sdpa")
    scorer = choose(model, ForestConfig())
    (batch,) = scorer.batches(make_siblings(prompts=8, each=8, prompt=30, reply=30))
    kept: dict[int, int] = {}

    def keep(tensor):
        if isinstance(tensor, torch.Tensor) and not isinstance(tensor, torch.nn.Parameter):
            storage = tensor.untyped_storage()
            kept[storage.data_ptr()] = storage.nbytes()
        return tensor

    with torch.autograd.graph.saved_tensors_hooks(keep, lambda tensor: tensor):
        scores = scorer.score(model, batch, entropy="none")
    assert scores.logprobs.requires_grad
    logits = len(batch.head_node) * model.config.vocab_size * 4
    estimate = batch.padded_tokens * bytes_per_token(model)
    assert 0.5 < (sum(kept.values()) - logits) / estimate < 2
