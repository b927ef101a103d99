"""Rows of unequal lengths beyond what layers look back: in one batch, a plain pass' numbers."""

import copy

import numpy as np
import pytest
import torch
import transformers as hf

from turnwise.engines import EngineConfig, LocalEngine
from turnwise.errors import TurnwiseError
from turnwise.evaluation.continuations import continuations
from turnwise.forest import ForestConfig
from turnwise.forest.choose import choose
from turnwise.kernels import PlanMask, fix_rotary, reachable_lengths, use

from .conftest import loader
from .test_families import plain, rows, sampled, scored, true_logprobs
from .zoo import FAMILIES
from .zoo_long import FAR, LONG, QUICK, TIED, UNLIKE

NAMES = [pytest.param(name, marks=() if name in QUICK else pytest.mark.slow) for name in LONG]
PROMPTS = (5, 60, 100)


@pytest.fixture(scope="session")
def folder(folders):
    """`folder(name)`: a directory with a tiny model of the table, its weights large and random."""
    return folders(LONG | UNLIKE | TIED | {"qwen3": FAMILIES["qwen3"]})


@pytest.fixture(scope="session")
def load(folder):
    """`load(name, **config)`: the policy."""
    return loader(folder)


@pytest.mark.parametrize("name", NAMES)
def test_unequal_rows_have_their_own_positions(load, name):
    policy = load(name)
    own = copy.deepcopy(policy.model)
    samples = rows(2, 3, 40, 78) + rows(1, 2, 4, 6, seed=5)
    with torch.no_grad():
        expected = plain(own, samples)
        for layout in ("auto", "flat"):
            scorer = choose(policy.model, ForestConfig(layout=layout))
            found = scored(scorer, policy.model, samples)
            torch.testing.assert_close(found, expected, atol=3e-4, rtol=0)
    for prompt, got in sampled(policy, PROMPTS, max_tokens=18):
        expected = true_logprobs(own, prompt, got.token_ids, 0.7)
        np.testing.assert_allclose(got.logprobs, expected, atol=1e-3)


@pytest.mark.parametrize("name", NAMES)
def test_exact_continuations_of_unequal_prefixes(load, name):
    policy = load(name)
    prefixes = [tuple(range(5, 5 + size)) for size in PROMPTS]
    found = continuations(policy)(prefixes, [16] * 3)
    for prefix, (tokens, logprobs) in zip(prefixes, found, strict=True):
        ids = torch.tensor([[*prefix, *tokens]])
        with torch.no_grad():
            logits = policy.model(input_ids=ids, use_cache=False).logits[0].double()
        expected = logits.log_softmax(-1)[len(prefix) - 1 : -1].numpy()
        np.testing.assert_allclose(logprobs, expected, atol=1e-3)


@pytest.mark.parametrize("name", UNLIKE)
def test_what_is_no_causal_decoder_beyond_a_length_is_refused(load, name):
    policy = load(name)
    with pytest.raises(TurnwiseError, match="padded batch"):
        LocalEngine({"main": policy}, EngineConfig(), 0)
    with pytest.raises(TurnwiseError, match="padded batch"):
        choose(policy.model, ForestConfig())
    with pytest.raises(TurnwiseError, match="padded batch"):
        continuations(policy)([(5, 6, 7)], [2])
    policy = load(name, context=FAR)
    assert LocalEngine({"main": policy}, EngineConfig(), 0).reason("main")


@pytest.mark.parametrize("heads", [2, 8])
def test_sparse_attention_that_chooses_among_equal_scores_is_refused(load, heads):
    with pytest.raises(TurnwiseError, match=r"index_topk = 70\) scores several keys exactly 0"):
        load(f"deepseek_v32-{heads}-heads")
    assert load(f"deepseek_v32-{heads}-heads", context=FAR)  # keeps all keys


def test_attention_that_is_handed_an_index_stays_the_models_own(load):
    policy = load("deepseek_v32")
    ids = torch.randint(4, 290, (1, 110), generator=torch.Generator().manual_seed(0))
    with torch.no_grad():
        own = policy.model(input_ids=ids, use_cache=False).logits
        use(policy.base)
        found = policy.model(input_ids=ids, use_cache=False).logits
    assert policy.base.config._attn_implementation == "sdpa"
    torch.testing.assert_close(found, own, atol=1e-4, rtol=0)


def test_a_scale_by_position_keeps_the_cache(load):
    for context in (None, FAR):  # below `FAR` the scale is 1
        policy = load("ministral3-scale", context=context)
        engine = LocalEngine({"main": policy}, EngineConfig(), 0)
        assert engine.reason("main").startswith("cache: ")


def clamped(forward):
    """Return a model's forward pass that, given a plan, takes later positions for `FAR`."""

    def forward_near(*args, attention_mask=None, position_ids=None, **kwargs):
        masks = attention_mask.values() if isinstance(attention_mask, dict) else [attention_mask]
        if any(isinstance(mask, PlanMask) for mask in masks):
            position_ids = position_ids.clamp(max=FAR)
        return forward(*args, attention_mask=attention_mask, position_ids=position_ids, **kwargs)

    return forward_near


def test_the_probe_sees_what_layers_do_at_far_positions_alone(load, monkeypatch):
    """A cache that is right for near positions is found wrong by rows at far ones."""
    policy = load("ministral3-scale")
    monkeypatch.setattr(policy.base.model, "forward", clamped(policy.base.model.forward))
    config = EngineConfig(probe_tokens=64)  # ends before the scale begins
    engine = LocalEngine({"main": policy}, config, 0)
    assert "at the context's last positions" in engine.reason("main")
    assert engine.reason("main").startswith("no cache: ")


@pytest.mark.parametrize("tokens", [0, 120])
def test_measurements_are_as_long_as_the_sequences_to_expect(load, monkeypatch, tokens):
    """A tree that is right for short rows is found wrong where rows will be longer."""
    policy = load("qwen3")
    monkeypatch.setattr(policy.base.model, "forward", clamped(policy.base.model.forward))
    scorer = choose(policy.model, ForestConfig(), 0, tokens)
    assert scorer.reason.startswith("tree: packed") is not bool(tokens)


def test_a_scale_by_the_longest_position_is_that_of_the_context(load, folder):
    """PhiMoE's numbers of a sequence as long as the context are those of any sequence in it."""
    own = hf.AutoModelForCausalLM.from_pretrained(folder("phimoe-longrope")).eval()
    short, long = rows(1, 1, 6, 8), rows(1, 1, 20, 60, seed=1)
    narrow, wide = load("phimoe-longrope", context=24), load("phimoe-longrope")
    with torch.no_grad():
        torch.testing.assert_close(plain(narrow.model, short), plain(own, short))
        torch.testing.assert_close(plain(wide.model, long), plain(own, long))
        assert (plain(wide.model, short) - plain(own, short)).abs().max() > 0.1
        assert choose(narrow.model, ForestConfig()).reason  # by the policy's context
        twin = wide.reference()
        torch.testing.assert_close(plain(twin.model, short), plain(wide.model, short))
    own = copy.deepcopy(narrow.model)
    for prompt, got in sampled(narrow, (3, 9, 14), max_tokens=9):
        expected = true_logprobs(own, prompt, got.token_ids, 0.7)
        np.testing.assert_allclose(got.logprobs, expected, atol=5e-4)


def test_positions_that_cannot_be_fixed_are_refused_with_another_cure(folder):
    model = hf.AutoModelForCausalLM.from_pretrained(folder("phimoe-longrope")).eval()
    with pytest.raises(TurnwiseError, match=r"longest sequence of a batch.*fix_rotary"):
        choose(model, ForestConfig())
    calls = []

    def restless(x, position_ids):
        calls.append(1)
        angles = position_ids[..., None].float() * len(calls)
        return angles.cos(), angles.sin()

    model.model.rotary_emb.forward = restless
    with pytest.raises(TurnwiseError, match="cannot be fixed: set the policy's context to"):
        fix_rotary(model, 128)


def test_lengths_are_found_by_their_names():
    fields = {
        "sliding_window": 512,
        "sliding_window_pattern": 6,
        "max_window_layers": 28,
        "num_experts_per_tok": 2,
        "moe_topk": 12,
        "index_topk_blocks": 16,
        "index_block_size": 128,
        "use_sliding_window": True,
        "compress_rates": {"sparse": 4},
        "attn_config": {"window_size": -1, "local_attention": 64},
        "vision_config": {"window_size": 112},
        "floor_scale": 8192,
    }
    assert reachable_lengths(fields, 4096) == {
        "sliding_window": 512,
        "index_topk_blocks": 16,
        "index_block_size": 128,
        "compress_rates.sparse": 4,
        "attn_config.local_attention": 64,
        "index_topk_blocks x index_block_size": 2048,
        "index_topk_blocks x compress_rates.sparse": 64,
    }
