"""Every family's log-probabilities, sampled in a crowd, equal those of one plain forward pass."""

import copy

import numpy as np
import pytest
import torch

from turnwise.engines import EngineConfig, LocalEngine
from turnwise.engines.local.masks import MaskRule
from turnwise.engines.local.model_runner import CachedRows
from turnwise.engines.local.probe import _difference, _make_probe
from turnwise.errors import EngineError
from turnwise.kernels import use
from turnwise.kernels.wrapped import base_of

CACHED = ["qwen3", "qwen3-eager", "qwen3-lora", "llama", "gemma2", "gemma3", "mistral", "gpt2"]
RECOMPUTED = ["lfm2", "mamba"]
FORMS = {"qwen3": "by layer type", "gemma3": "by layer type", "mistral": "windowed", "gpt2": "full"}


def groups(tools, lengths=(3, 60)):
    rng = np.random.default_rng(1)
    start = tuple(rng.integers(3, 23, 30).tolist())
    prompts = [tuple(rng.integers(3, 23, size).tolist()) for size in rng.integers(*lengths, 6)]
    prompts += [(*start, 4, 5), (*start, 6), (*start[:24], 7)]
    return [
        tools.request(prompt, id=tools.turn(visit, sample), temperature=0.7, max_tokens=14)
        for visit, prompt in enumerate(prompts)
        for sample in range(3)
    ]


@pytest.mark.parametrize("name", [*CACHED, *RECOMPUTED, "gpt-oss"])
def test_what_is_exchanged_gives_the_models_own_numbers(make_model, name):
    model = make_model(name)
    ids = torch.randint(3, 23, (2, 60), generator=torch.Generator().manual_seed(0))
    with torch.no_grad():
        own = model(input_ids=ids, use_cache=False).logits
        use(base_of(model))
        torch.testing.assert_close(
            model(input_ids=ids, use_cache=False).logits, own, atol=1e-4, rtol=0
        )


def test_eager_code_that_does_more_is_left_alone(make_engine, models, tools):
    """gpt-oss' sinks are an argument that no attention function of ours knows."""
    engine = make_engine("gpt-oss")
    asked = groups(tools)
    for one, completion in zip(asked, tools.ask(engine, asked), strict=True):
        true = tools.true_logprobs(models("gpt-oss"), one.prompt_ids, completion.token_ids, 0.7)
        np.testing.assert_allclose(completion.logprobs, true, atol=1e-4)
    assert models("gpt-oss").config._attn_implementation == "eager"


@pytest.mark.parametrize("name", CACHED + RECOMPUTED)
def test_logprobs_are_those_of_a_plain_forward_pass(make_engine, models, tools, name):
    engine = make_engine(name, stop_ids={2}, max_rows=9)
    assert engine.reason("main").startswith("cache: " if name in CACHED else "no cache: ")
    assert FORMS.get(name, "") in engine.reason("main")
    asked = groups(tools)
    completions = tools.ask(engine, asked) + tools.ask(engine, asked[::-1])
    for one, completion in zip(asked + asked[::-1], completions, strict=True):
        true = tools.true_logprobs(models(name), one.prompt_ids, completion.token_ids, 0.7)
        np.testing.assert_allclose(completion.logprobs, true, atol=1e-4)


@pytest.mark.parametrize("name", CACHED + RECOMPUTED)
def test_a_history_that_goes_on_is_not_computed_again(make_engine, models, tools, name):
    engine = make_engine(name, prefix_megabytes=64)
    rng = np.random.default_rng(0)
    prompts = [tuple(rng.integers(3, 23, 30).tolist()) for _ in range(3)]
    histories = {(v, s): prompts[v] for v in range(3) for s in range(2)}
    engine.metrics()
    for number in range(3):
        asked = [
            tools.request(ids, id=tools.turn(*who, number=number), goes_on=True)
            for who, ids in histories.items()
        ]
        for one, completion, who in zip(asked, tools.ask(engine, asked), histories, strict=True):
            true = tools.true_logprobs(models(name), one.prompt_ids, completion.token_ids)
            np.testing.assert_allclose(completion.logprobs, true, atol=1e-4)
            heard = rng.integers(3, 23, 5).tolist()
            histories[who] = (*one.prompt_ids, *completion.token_ids, *heard)
    metrics = engine.metrics()
    if name in CACHED:  # prompts; then each turn its last reply's last token and what was heard
        assert metrics["engine/prefill_tokens"] == 3 * 30 + 2 * 6 * (1 + 5)
        wrong = metrics["engine/drafted_tokens"] - metrics["engine/accepted_tokens"]
        assert metrics["engine/decode_tokens"] - wrong <= 3 * 6 * 7


def test_long_prompts_are_computed_in_pieces(make_engine, models, tools, monkeypatch):
    monkeypatch.setattr("turnwise.engines.local.model_runner.PIECE", 16)
    monkeypatch.setattr("turnwise.engines.local.model_runner.AREA", 3000)
    engine = make_engine("gemma3")
    asked = groups(tools, (10, 80))
    completions = tools.ask(engine, asked)
    assert engine.metrics()["engine/forward_calls"] > 20
    for one, completion in zip(asked, completions, strict=True):
        true = tools.true_logprobs(models("gemma3"), one.prompt_ids, completion.token_ids, 0.7)
        np.testing.assert_allclose(completion.logprobs, true, atol=1e-4)


def test_a_cache_that_is_insisted_on_and_wrong_is_refused(make_engine):
    with pytest.raises(EngineError, match=r"engine\.cache = 'slots'.*refused"):
        make_engine("mamba", cache="slots")


def test_a_cache_can_be_declined(make_engine):
    assert make_engine(cache="none").reason("main").startswith("no cache: asked for")


def test_half_precision_is_served_within_its_tolerance(weights, models, tools):
    model = copy.deepcopy(models("qwen3")).bfloat16()
    engine = LocalEngine({"main": weights(model)}, EngineConfig(), 0)
    assert engine.reason("main").startswith("cache: ")
    asked = groups(tools)
    differences = []
    for one, completion in zip(asked, tools.ask(engine, asked), strict=True):
        true = tools.true_logprobs(model, one.prompt_ids, completion.token_ids, 0.7)
        differences += np.abs(np.array(completion.logprobs) - true).tolist()
    assert np.mean(differences) < 2e-2


def test_a_wrong_mask_would_be_noticed(models):
    model = models("mistral")
    use(base_of(model))
    with torch.inference_mode():
        probe = _make_probe(model, 96, EngineConfig(), 0)
        for form, right in (("windowed", True), ("full", False)):
            rule = MaskRule(form=form, window=6, dtype=torch.float32)
            difference = _difference(CachedRows(model, rule, 0), probe)
            assert bool(difference.max() < 1e-4) is right
