"""Small random models of several families, and rows that share prefixes."""

import numpy as np
import pytest
import torch
import transformers as hf
from peft import LoraConfig, get_peft_model

from turnwise.types import EpisodeId, TrainingSample, TurnId

VOCAB = 41
SMALL = {
    "vocab_size": VOCAB,
    "hidden_size": 32,
    "intermediate_size": 48,
    "num_hidden_layers": 2,
    "num_attention_heads": 4,
    "num_key_value_heads": 2,
    "head_dim": 8,
    "max_position_embeddings": 128,
    "pad_token_id": 0,
    "bos_token_id": 1,
    "eos_token_id": 2,
}
WINDOW = {"sliding_window": 6}
GEMMA2 = SMALL | WINDOW | {"final_logit_softcapping": 3.0, "query_pre_attn_scalar": 8}
GEMMA3 = (
    SMALL
    | WINDOW
    | {
        "layer_types": ["sliding_attention", "full_attention"],
        "final_logit_softcapping": 4.0,
    }
)


def causal(config, attention, seed=0, fresh=False):
    torch.manual_seed(seed)
    model = hf.AutoModelForCausalLM.from_config(config, attn_implementation=attention)
    if fresh:
        return model.eval()
    # Larger weights than a fresh model's: a wrong mask must show.
    with torch.no_grad():
        for parameter in model.parameters():
            if parameter.ndim > 1:
                parameter.normal_(0, 0.3)
    return model.eval()


def lora(seed=0):
    model = get_peft_model(
        causal(hf.Qwen3Config(**SMALL), "sdpa", seed),
        LoraConfig(r=4, target_modules="all-linear", task_type="CAUSAL_LM"),
    )
    torch.manual_seed(seed + 1)
    with torch.no_grad():
        for name, parameter in model.named_parameters():
            if "lora_" in name:
                parameter.normal_(0, 0.2)
    return model.eval()


TREES = {
    "qwen3-sdpa": lambda: causal(hf.Qwen3Config(**SMALL), "sdpa"),
    "qwen3-eager": lambda: causal(hf.Qwen3Config(**SMALL), "eager"),
    "qwen3-window": lambda: causal(
        hf.Qwen3Config(**SMALL, **WINDOW, use_sliding_window=True, max_window_layers=1), "sdpa"
    ),
    "qwen3-lora": lora,
    "llama": lambda: causal(hf.LlamaConfig(**SMALL), "sdpa"),
    "gemma": lambda: causal(hf.GemmaConfig(**SMALL), "sdpa"),
    "gemma2-eager": lambda: causal(
        hf.Gemma2Config(**GEMMA2, attn_logit_softcapping=5.0), "eager"
    ),
    "gemma3-sdpa": lambda: causal(hf.Gemma3TextConfig(**GEMMA3), "sdpa"),
    "gemma3-eager": lambda: causal(hf.Gemma3TextConfig(**GEMMA3), "eager"),
    "mistral": lambda: causal(hf.MistralConfig(**SMALL, **WINDOW), "sdpa"),
    "gpt2": lambda: causal(
        hf.GPT2Config(
            vocab_size=VOCAB, n_embd=32, n_layer=2, n_head=4, n_positions=128,
            bos_token_id=1, eos_token_id=2,
        ),
        "eager",
    ),
    "granite": lambda: causal(hf.GraniteConfig(**SMALL, logits_scaling=2.0), "sdpa"),
}  # fmt: skip
HYBRIDS = {
    "lfm2": lambda: causal(
        hf.Lfm2Config(**SMALL, layer_types=["conv", "full_attention"], block_multiple_of=8), "sdpa"
    ),
    "falcon-h1": lambda: causal(
        hf.FalconH1Config(
            **SMALL, mamba_d_ssm=32, mamba_n_heads=4, mamba_d_head=8, mamba_d_state=8,
            mamba_chunk_size=8,
        ),
        "sdpa",
    ),
    "qwen3-next": lambda: causal(
        hf.Qwen3NextConfig(
            **SMALL, layer_types=["linear_attention", "full_attention"], num_experts=0,
            linear_num_key_heads=2, linear_num_value_heads=4, linear_key_head_dim=8,
            linear_value_head_dim=8,
        ),
        "sdpa",
    ),
    "mamba": lambda: causal(
        hf.MambaConfig(vocab_size=VOCAB, hidden_size=32, num_hidden_layers=2, state_size=4), "eager"
    ),
    "bloom": lambda: causal(
        hf.BloomConfig(vocab_size=VOCAB, hidden_size=32, n_layer=2, n_head=4), "eager"
    ),
}  # fmt: skip
FRESH = {
    "fresh-qwen3": lambda: causal(hf.Qwen3Config(**SMALL), "sdpa", fresh=True),
    "fresh-gemma3": lambda: causal(hf.Gemma3TextConfig(**GEMMA3), "sdpa", fresh=True),
    "fresh-mistral": lambda: causal(hf.MistralConfig(**SMALL, **WINDOW), "sdpa", fresh=True),
    "fresh-lfm2": lambda: causal(
        hf.Lfm2Config(**SMALL, layer_types=["conv", "full_attention"], block_multiple_of=8),
        "sdpa",
        fresh=True,
    ),
    "fresh-bloom": lambda: causal(
        hf.BloomConfig(vocab_size=VOCAB, hidden_size=32, n_layer=2, n_head=4), "eager", fresh=True
    ),
}  # fmt: skip


@pytest.fixture(scope="session")
def models():
    """Models by name, each made once."""
    made = {}

    def get(name):
        if name not in made:
            made[name] = (TREES | HYBRIDS | FRESH)[name]()
        return made[name]

    return get


@pytest.fixture(scope="session")
def make_row():
    """`row(token_ids, targets, ...)` as a fixture."""
    return row


@pytest.fixture(scope="session")
def make_siblings():
    """`siblings(...)` as a fixture."""
    return siblings


def row(token_ids, targets, *, seed=0, temperature=1.0, policy="main", version=0, sample=0):
    """A row with random advantages and weights at `targets`."""
    rng = np.random.default_rng(seed)
    sampled = np.zeros(len(token_ids), dtype=bool)
    sampled[list(targets)] = True
    turn = TurnId(
        episode=EpisodeId(iteration=0, visit=0, task="t", member=sample), role="player", turn=0
    )
    return TrainingSample.of(
        policy=policy,
        policy_version=version,
        turns=(turn,),
        token_ids=token_ids,
        turn_index=np.where(sampled, 0, -1),
        temperature=np.full(len(token_ids), temperature, dtype=np.float32),
        advantages=rng.normal(size=len(token_ids)) * sampled,
        logprobs=-rng.random(len(token_ids)) * sampled,
    )


def siblings(prompts=3, each=4, prompt=12, reply=7, vocab=VOCAB, seed=0):
    """Rows as GRPO makes them: `each` replies to every prompt; some replies agree for a while."""
    rng = np.random.default_rng(seed)
    rows = []
    for _ in range(prompts):
        start = rng.integers(4, vocab, prompt).tolist()
        said = rng.integers(4, vocab, reply)
        for _ in range(each):
            other = np.where(np.arange(reply) < rng.integers(0, reply + 1), said,
                             rng.integers(4, vocab, reply))  # fmt: skip
            ids = start + other.tolist()
            rows.append(row(ids, range(prompt, len(ids)), seed=len(rows), sample=len(rows)))
    return rows
