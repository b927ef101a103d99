"""Tiny models of several families, as policies, and a short way to ask them."""

import asyncio
from dataclasses import dataclass, field

import numpy as np
import pytest
import torch
import transformers as hf
from peft import LoraConfig, get_peft_model

from turnwise.engines import EngineConfig, LocalEngine, Request, run
from turnwise.policies.policy import fork
from turnwise.seeding import token_uniforms
from turnwise.types import EpisodeId, Sampling, TurnId

VOCAB, CONTEXT = 23, 96
SMALL = {
    "vocab_size": VOCAB,
    "hidden_size": 32,
    "intermediate_size": 48,
    "num_hidden_layers": 2,
    "num_attention_heads": 4,
    "num_key_value_heads": 2,
    "head_dim": 8,
    "max_position_embeddings": CONTEXT,
    "pad_token_id": 0,
    "bos_token_id": 1,
    "eos_token_id": 2,
}
WINDOW = {"sliding_window": 6}


def causal(config, attention="sdpa", seed=0):
    torch.manual_seed(seed)
    model = hf.AutoModelForCausalLM.from_config(config, attn_implementation=attention)
    # Larger weights than a fresh model's: a wrong mask must show.
    with torch.no_grad():
        for parameter in model.parameters():
            if parameter.ndim > 1:
                parameter.normal_(0, 0.2)
    return model.eval()


def lora():
    wanted = LoraConfig(r=4, target_modules="all-linear", task_type="CAUSAL_LM")
    model = get_peft_model(causal(hf.Qwen3Config(**SMALL)), wanted)
    torch.manual_seed(1)
    with torch.no_grad():
        for name, parameter in model.named_parameters():
            if "lora_" in name:
                parameter.normal_(0, 0.2)
    return model.eval()


CACHED = {
    "qwen3": lambda: causal(hf.Qwen3Config(**SMALL)),
    "qwen3-eager": lambda: causal(hf.Qwen3Config(**SMALL), "eager"),
    "qwen3-lora": lora,
    "llama": lambda: causal(hf.LlamaConfig(**SMALL)),
    "gemma2": lambda: causal(
        hf.Gemma2Config(
            **SMALL, **WINDOW, attn_logit_softcapping=5.0, final_logit_softcapping=3.0,
            query_pre_attn_scalar=8,
        ),
        "eager",
    ),
    "gemma3": lambda: causal(
        hf.Gemma3TextConfig(
            **SMALL, **WINDOW, layer_types=["sliding_attention", "full_attention"]
        )
    ),
    "mistral": lambda: causal(hf.MistralConfig(**SMALL, **WINDOW)),
    "gpt2": lambda: causal(
        hf.GPT2Config(
            vocab_size=VOCAB, n_embd=32, n_layer=2, n_head=4, n_positions=CONTEXT, bos_token_id=1,
            eos_token_id=2,
        )
    ),
}  # fmt: skip
RECOMPUTED = {
    "lfm2": lambda: causal(
        hf.Lfm2Config(**SMALL, layer_types=["conv", "full_attention"], block_multiple_of=8)
    ),
    "mamba": lambda: causal(
        hf.MambaConfig(vocab_size=VOCAB, hidden_size=32, num_hidden_layers=2, state_size=4), "eager"
    ),
}
SINKS = {
    "gpt-oss": lambda: causal(
        hf.GptOssConfig(
            **SMALL, sliding_window=16, num_local_experts=4, num_experts_per_tok=2,
            rope_parameters={"rope_type": "default", "rope_theta": 10_000.0},
        ),
        "eager",
    )
}  # fmt: skip


@dataclass
class Weights:
    """A policy as the engine sees it."""

    model: object
    name: str = "main"
    version: int = 0
    stop_ids: frozenset = field(default_factory=frozenset)
    context: int = CONTEXT


@pytest.fixture(scope="session")
def make_model():
    """`make_model(name)`: a fresh one."""
    return lambda name: (CACHED | RECOMPUTED | SINKS)[name]()


@pytest.fixture(scope="session")
def models(make_model):
    """`models(name)`: each made once."""
    made = {}

    def get(name):
        if name not in made:
            made[name] = make_model(name)
        return made[name]

    return get


@pytest.fixture
def weights():
    return Weights


@pytest.fixture
def make_engine(models):
    """`make_engine(model, stop_ids=..., seed=..., **options)`: an engine with one policy, main.

    `model` may be a name.
    """

    def make(model="qwen3", *, stop_ids=(), context=CONTEXT, seed=0, **options):
        model = models(model) if isinstance(model, str) else model
        policy = Weights(model, stop_ids=frozenset(stop_ids), context=context)
        engine = LocalEngine({"main": policy}, EngineConfig(**options), seed)
        engine.policy = policy
        return engine

    return make


def turn(visit=0, sample=0, *, iteration=0, number=0):
    return TurnId(
        episode=EpisodeId(iteration=iteration, visit=visit, task="t", member=sample),
        role="player",
        turn=number,
    )


def request(
    ids,
    *,
    id=None,
    stream="train",
    policy="main",
    temperature=1.0,
    max_tokens=8,
    goes_on=False,
    media=(),
    prompt=None,
):
    return Request(
        id=id or turn(),
        stream=stream,
        policy=policy,
        prompt_ids=tuple(ids),
        sampling=Sampling(temperature=temperature, max_tokens=max_tokens),
        goes_on=goes_on,
        media=media,
        prompt=prompt,
    )


def ask(engine, requests):
    """Send all requests at once; return their completions in the same order."""

    async def everything():
        return await asyncio.gather(*(engine.generate(one) for one in requests))

    return run(everything(), engine)


def true_logprobs(model, prompt, reply, temperature=1.0):
    """Log-probabilities of `reply` by one forward pass of the whole sequence."""
    ids = torch.tensor([[*prompt, *reply]])
    with torch.no_grad():
        logits = model(input_ids=ids, use_cache=False).logits[0].float() / temperature
    places = torch.arange(len(prompt) - 1, ids.shape[1] - 1)
    return logits.log_softmax(-1)[places, ids[0, places + 1]].numpy()


def edges(model, one, completion, temperature):
    """Distances of each token's uniform from the edges of the tokens' intervals."""
    ids = torch.tensor([[*one.prompt_ids, *completion.token_ids]])
    with torch.no_grad():
        logits = model(ids).logits[0].double() / temperature
    cdf = logits.softmax(-1).cumsum(-1).numpy()
    uniforms = token_uniforms(0, one.stream, one.id, len(completion.token_ids))
    begin = len(one.prompt_ids) - 1
    return [np.abs(cdf[begin + i] - u).min() for i, u in enumerate(uniforms)]


def adapted(model, seed):
    """Another adapter on the base of `model`, whose frozen tensors it shares."""
    torch.manual_seed(seed)
    other = fork(model)
    with torch.no_grad():
        for name, parameter in other.named_parameters():
            if "lora_" in name:
                parameter.normal_(0, 0.3)
    return other.eval()


@pytest.fixture
def tools():
    """The functions above, as one object."""

    class Tools:
        pass

    Tools.turn, Tools.request = staticmethod(turn), staticmethod(request)
    Tools.ask, Tools.true_logprobs = staticmethod(ask), staticmethod(true_logprobs)
    Tools.edges, Tools.adapted = staticmethod(edges), staticmethod(adapted)
    return Tools
