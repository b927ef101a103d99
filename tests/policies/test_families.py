"""Every family either gives the numbers of `model(input_ids)` everywhere, or is refused."""

import asyncio
import copy

import numpy as np
import pytest
import torch
import transformers as hf

from turnwise.engines import EngineConfig, LocalEngine, Request, run
from turnwise.errors import TurnwiseError
from turnwise.evaluation.continuations import continuations
from turnwise.forest import ForestConfig
from turnwise.forest.choose import choose
from turnwise.policies import LoraSettings
from turnwise.types import EpisodeId, Sampling, TrainingSample, TurnId

from .conftest import loader
from .zoo import CHEAP, FAMILIES, REFUSED, SWITCH
from .zoo_sizes import CONTEXT, ORIGINAL, VOCAB

NAMES = [pytest.param(name, marks=() if name in CHEAP else pytest.mark.slow) for name in FAMILIES]


@pytest.fixture(scope="session")
def folder(folders):
    """`folder(name)`: a directory with a tiny model of the table, its weights large and random."""
    return folders(FAMILIES)


@pytest.fixture(scope="session")
def load(folder):
    """`load(name, **config)`: the policy."""
    return loader(folder)


def turn(visit, number=0):
    return TurnId(
        episode=EpisodeId(iteration=0, visit=visit, task="t", member=number), role="player", turn=0
    )


def rows(prompts=2, each=3, prompt=14, reply=20, seed=0):
    """Samples as GRPO makes them: replies to each prompt that agree for a while."""
    rng = np.random.default_rng(seed)
    made = []
    for _ in range(prompts):
        start, said = rng.integers(4, VOCAB - 10, prompt), rng.integers(4, VOCAB - 10, reply)
        for _ in range(each):
            other = rng.integers(4, VOCAB - 10, reply)
            kept = np.arange(reply) < rng.integers(0, reply + 1)
            ids = np.concatenate([start, np.where(kept, said, other)])
            at = np.where(np.arange(len(ids)) >= prompt, 0, -1)
            made.append(
                TrainingSample.of(
                    policy="main",
                    turns=(turn(len(made)),),
                    token_ids=ids.tolist(),
                    turn_index=at,
                )
            )
    return made


def plain(model, samples):
    """Log-probabilities of each row's targets by a forward pass of that row alone, [T]."""
    found = []
    for sample in samples:
        ids = torch.from_numpy(sample.token_ids)[None]
        logprobs = model(input_ids=ids, use_cache=False).logits[0].float().log_softmax(-1)
        at = torch.from_numpy(sample.targets)
        found.append(logprobs[at - 1].gather(1, ids[0, at, None])[:, 0])
    return torch.cat(found)


def scored(scorer, model, samples):
    """The same by a scorer, in the same order."""
    found = {}
    for batch in scorer.batches(samples):
        logprobs = scorer.score(model, batch).logprobs
        keys = zip(batch.row.tolist(), batch.position.tolist(), strict=True)
        found |= dict(zip(keys, logprobs, strict=True))
    return torch.stack([found[i, int(t)] for i, s in enumerate(samples) for t in s.targets])


def gradients(model, logprobs):
    model.zero_grad()
    (logprobs * torch.arange(len(logprobs)).sin()).sum().backward()
    return {n: p.grad.clone() for n, p in model.named_parameters() if p.grad is not None}


def sampled(policy, lengths, each=2, max_tokens=14):
    """(prompt, completion) of prompts of these lengths, all asked at once."""
    engine, rng = LocalEngine({"main": policy}, EngineConfig(), 0), np.random.default_rng(1)
    asked = [
        Request(
            id=turn(visit, number),
            stream="train",
            policy="main",
            prompt_ids=prompt,
            sampling=Sampling(temperature=0.7, max_tokens=max_tokens),
        )
        for visit, size in enumerate(lengths)
        for prompt in [tuple(rng.integers(3, VOCAB - 10, size).tolist())]
        for number in range(each)
    ]

    async def everything():
        return await asyncio.gather(*(engine.generate(one) for one in asked))

    return [
        (one.prompt_ids, got) for one, got in zip(asked, run(everything(), engine), strict=True)
    ]


def true_logprobs(model, prompt, reply, temperature):
    ids = torch.tensor([[*prompt, *reply]])
    with torch.no_grad():
        logits = model(input_ids=ids, use_cache=False).logits[0].float() / temperature
    at = torch.arange(len(prompt) - 1, ids.shape[1] - 1)
    return logits.log_softmax(-1)[at, ids[0, at + 1]].numpy()


@pytest.mark.parametrize("name", NAMES)
def test_a_family_gives_its_own_numbers_or_is_refused(load, name):
    policy = load(name)
    if name in REFUSED:
        with pytest.raises(TurnwiseError, match=REFUSED[name]):
            LocalEngine({"main": policy}, EngineConfig(), 0)
        with pytest.raises(TurnwiseError, match=REFUSED[name]):
            choose(policy.model, ForestConfig())
        return
    own = copy.deepcopy(policy.model)  # before anything is exchanged
    for prompt, got in sampled(policy, (5, 12, 31)):
        expected = true_logprobs(own, prompt, got.token_ids, 0.7)
        np.testing.assert_allclose(got.logprobs, expected, atol=5e-4)
    samples = rows()
    expected = plain(own, samples)
    slopes = gradients(own, expected)
    largest = max(float(slope.norm()) for slope in slopes.values())
    for layout in ("auto", "flat"):
        found = scored(choose(policy.model, ForestConfig(layout=layout)), policy.model, samples)
        torch.testing.assert_close(found, expected, atol=1e-4, rtol=0)
        for key, slope in gradients(policy.model, found).items():
            # Biases of keys have no gradient but rounding, as softmax does not see them.
            least = max(float(slopes[key].norm()), 1e-4 * largest)
            assert float((slope - slopes[key]).norm()) < 1e-3 * least, key


@pytest.mark.parametrize("name", NAMES)
def test_exact_continuations_are_those_of_a_plain_pass(load, name):
    if name in REFUSED:
        return
    policy = load(name)
    prefixes = [tuple(range(5, 5 + size)) for size in (3, 12, 7)]
    for prefix, (tokens, logprobs) in zip(
        prefixes, continuations(policy)(prefixes, [6, 6, 6]), strict=True
    ):
        ids = torch.tensor([[*prefix, *tokens]])
        with torch.no_grad():
            logits = policy.model(input_ids=ids, use_cache=False).logits[0].double()
        expected = logits.log_softmax(-1)[len(prefix) - 1 : -1].numpy()
        # Zamba2 computes a scan in chunks and its steps one by one, in float32 always: single
        # values differ by up to 4e-3, by machine. The mean shows that this is rounding.
        np.testing.assert_allclose(logprobs, expected, atol=2e-2 if name == "zamba2" else 1e-3)
        assert np.abs(logprobs - expected).mean() < 1e-3


@pytest.mark.parametrize("name", NAMES)
def test_adapters_can_be_put_on_a_family_and_all_of_them_act(load, name):
    if name in REFUSED:
        return
    policy = load(name, lora=LoraSettings(rank=2))
    ups = {n: p for n, p in policy.model.named_parameters() if "lora_B" in n}
    assert ups
    with torch.no_grad():
        for parameter in policy.trainable_parameters():
            parameter.normal_(0, 0.1)
    found = plain(policy.model, rows(each=1))
    gradients(policy.model, found)
    silent = [n for n, p in ups.items() if p.grad is None]
    assert len(silent) <= len(ups) // 2, silent  # experts that no token chose


@pytest.mark.parametrize(
    "name",
    [
        pytest.param(name, marks=() if name in SWITCH else pytest.mark.slow)
        for name in FAMILIES
        if name not in REFUSED
    ],
)
def test_checkpointing_switches_no_dropout_on_and_changes_no_gradient(load, name):
    try:
        policy = load(name, gradient_checkpointing=True)
    except TurnwiseError as error:
        assert "gradient_checkpointing = true, but" in str(error)
        return
    samples, found = rows(), []
    layers = [
        m
        for m in policy.model.modules()
        if isinstance(m, hf.modeling_layers.GradientCheckpointingLayer)
    ]
    for block in (False, True, True):
        calls = []
        inside = next(m for m in layers[-1].modules() if not list(m.children()))
        hook = inside.register_forward_pre_hook(lambda *_, calls=calls: calls.append(1))
        if block:
            with policy.dropout(False):
                assert not any(m.training for m in policy.model.modules())
                logprobs = plain(policy.model, samples)
                slopes = gradients(policy.model, logprobs)
        else:
            logprobs = plain(policy.model, samples)
            slopes = gradients(policy.model, logprobs)
        hook.remove()
        found.append((logprobs.detach(), slopes, len(calls)))
    (one, first, few), *others = found
    for other, second, many in others:
        assert torch.equal(other, one)
        assert first.keys() == second.keys()
        for key in first:
            torch.testing.assert_close(second[key], first[key])
        assert many == 2 * few, "a checkpointed layer runs again in the backward pass"


def test_dropout_in_eval_mode_is_refused_at_load(load, monkeypatch):
    from transformers.models.opt import modeling_opt

    real = torch.nn.functional.dropout
    monkeypatch.setattr(
        modeling_opt.nn.functional, "dropout", lambda x, p=0.5, training=True: real(x, 0.1, True)
    )
    with pytest.raises(TurnwiseError, match="in eval mode then differ by"):
        load("opt", gradient_checkpointing=True)
    policy = load("opt")
    with pytest.raises(TurnwiseError, match="without randomness in eval mode"):
        choose(policy.model, ForestConfig())


@pytest.mark.parametrize("name", ["phi3-longrope", "llama-dynamic"])
def test_positions_do_not_depend_on_what_else_is_in_the_batch(load, name):
    policy = load(name, context=90)
    assert policy.context == 90
    short, long = rows(1, 1, 6, 8), rows(1, 1, 20, 60, seed=1)
    assert len(short[0].token_ids) < ORIGINAL < len(long[0].token_ids)
    for layout in ("auto", "flat"):
        scorer = choose(policy.model, ForestConfig(layout=layout))
        with torch.no_grad():
            together = scored(scorer, policy.model, short + long)
            alone = [scored(scorer, policy.model, one) for one in (short, long)]
            forward = plain(policy.model, short + long)
        torch.testing.assert_close(together, torch.cat(alone), atol=1e-4, rtol=0)
        torch.testing.assert_close(together, forward, atol=1e-4, rtol=0)
    # Written beside longer ones, across the original length, and again by one whole pass.
    for prompt, got in sampled(policy, (4, 20, 60), max_tokens=16):
        expected = true_logprobs(policy.model, prompt, got.token_ids, 0.7)
        np.testing.assert_allclose(got.logprobs, expected, atol=5e-4)


def test_the_context_chooses_the_factors(load, folder):
    """Below the original length transformers' short factors, above it the long ones, always."""
    own = hf.AutoModelForCausalLM.from_pretrained(folder("phi3-longrope")).eval()
    short, long = rows(1, 1, 6, 8), rows(1, 1, 20, 60, seed=1)
    with torch.no_grad():
        narrow, wide = load("phi3-longrope", context=ORIGINAL), load("phi3-longrope")
        assert wide.context == CONTEXT
        torch.testing.assert_close(plain(narrow.model, short), plain(own, short))
        torch.testing.assert_close(plain(wide.model, long), plain(own, long))
        gap = (plain(wide.model, short) - plain(own, short)).abs().max()
    assert gap > 0.1, "the factors are others, and matter"
    assert wide.reference().model.model.rotary_emb.rope_type == "fixed"


def test_a_model_whose_positions_move_is_refused(folder):
    model = hf.AutoModelForCausalLM.from_pretrained(folder("phi3-longrope")).eval()
    with pytest.raises(TurnwiseError, match=r"longest sequence of a batch.*fix_rotary"):
        choose(model, ForestConfig())


def test_contexts_that_a_model_has(load):
    assert load("gpt2").context == CONTEXT
    assert load("llama-dynamic").context == ORIGINAL
    with pytest.raises(TurnwiseError, match=r"context = 129, but .* for 128 tokens: set context"):
        load("gpt2", context=129)


@pytest.mark.parametrize("name", ["llama4_text", "gpt_neo", "recurrent_gemma"])
def test_lengths_that_are_not_crossed_are_not_trusted(folder, name):
    """A mask of all that is before is right up to a chunk's end, and wrong after."""
    model = hf.AutoModelForCausalLM.from_pretrained(folder(name)).eval()
    for field in ("attention_chunk_size", "window_size", "attention_window_size"):
        if hasattr(model.config, field):
            setattr(model.config, field, 100)
    scorer = choose(model, ForestConfig(probe_tokens=64))
    assert scorer.layout == "flat"
    assert "was not crossed" in scorer.reason


@pytest.mark.parametrize("name", ["mamba", "falcon_h1"])
def test_a_target_beside_which_weights_are_read_is_refused(load, name):
    with pytest.raises(
        TurnwiseError, match=r"out_proj.* is part of a Mamba mixer.*among .*in_proj"
    ):
        load(name, lora=LoraSettings(targets=("in_proj", "out_proj")))
    targets = load(name, lora=LoraSettings(rank=2)).model.peft_config["default"].target_modules
    assert {target.rpartition(".")[2] for target in targets}.isdisjoint({"out_proj", "x_proj"})


def test_a_layer_that_is_never_called_or_returns_more_gets_no_adapter(load):
    with pytest.raises(TurnwiseError, match=r"x_proj.* is part of a Mamba mixer"):
        load("jamba", lora=LoraSettings(targets=("x_proj",)))
    with pytest.raises(TurnwiseError, match=r"router.* returns more than its product"):
        load("phimoe", lora=LoraSettings(targets=("router",)))
    with pytest.raises(TurnwiseError, match=r"o_a_proj.* returns its product in another shape"):
        load("deepseek_v4", lora=LoraSettings(targets=("o_a_proj",)))
    assert load("gpt2", lora=LoraSettings(targets=("c_attn",))).has_adapter


@pytest.mark.parametrize("name", ["falcon_h1", "granitemoehybrid"])
def test_small_recurrences_do_not_hide_that_siblings_see_each_other(name):
    """The adapters' part of the logits is below rounding at first, and wrong when it has grown."""
    torch.manual_seed(0)
    model = hf.AutoModelForCausalLM.from_config(FAMILIES[name]()).eval()
    with torch.no_grad():
        for key, parameter in model.named_parameters():
            if parameter.ndim > 1 and "A_log" not in key:
                parameter.normal_(0, 0.002)
    scorer = choose(model, ForestConfig())
    assert scorer.layout == "flat"
    assert "siblings change" in scorer.reason
