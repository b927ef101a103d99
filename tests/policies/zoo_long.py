"""Tiny configs in which layers compute something else after 70 tokens or so (see `zoo`)."""

import transformers as hf

from .zoo_sizes import MHA, MLA, MOE, SMALL, TYPES, VOCAB

FAR = 70
EXPERTS = {"num_local_experts": 4, "num_experts_per_tok": 2}


def rope(kind, **fields):
    return {"rope_type": kind, "rope_theta": 10000.0, **fields}


YARN = rope("yarn", factor=4.0, original_max_position_embeddings=24)
FACTORS = {
    "short_factor": [1.0] * 4,
    "long_factor": [4.0, 3.0, 5.0, 8.0],
    "original_max_position_embeddings": 24,
}
LLAMA4 = {
    "intermediate_size_mlp": 48,
    "num_local_experts": 2,
    "num_experts_per_tok": 1,
    "interleave_moe_layer_step": 2,
    "no_rope_layers": [1, 0],
    "attn_temperature_tuning": True,
    "floor_scale": FAR,
    "attn_scale": 0.9,
}

LONG = {
    "ministral3-scale": lambda: hf.Ministral3Config(
        **SMALL,
        rope_parameters=rope(
            "yarn", factor=4.0, original_max_position_embeddings=FAR, llama_4_scaling_beta=0.5
        ),
    ),
    "llama4-floor": lambda: hf.Llama4TextConfig(**SMALL, **LLAMA4, attention_chunk_size=8192),
    "llama4-chunk": lambda: hf.Llama4TextConfig(**SMALL, **LLAMA4, attention_chunk_size=80),
    "phimoe-longrope": lambda: hf.PhimoeConfig(
        **SMALL,
        **EXPERTS,
        original_max_position_embeddings=24,
        rope_parameters=rope("longrope", **FACTORS, short_mscale=1.2, long_mscale=1.7),
    ),
    "phi3-longrope-window": lambda: hf.Phi3Config(
        **SMALL,
        sliding_window=40,
        original_max_position_embeddings=24,
        rope_parameters=rope("longrope", **FACTORS),
    ),
    "gemma2": lambda: hf.Gemma2Config(**SMALL, sliding_window=FAR, query_pre_attn_scalar=8),
    "gemma3": lambda: hf.Gemma3TextConfig(
        **SMALL,
        sliding_window=FAR,
        layer_types=TYPES,
        rope_parameters={
            "sliding_attention": rope("default"),
            "full_attention": rope("linear", factor=8.0),
        },
    ),
    "cohere2": lambda: hf.Cohere2Config(
        **SMALL, sliding_window=80, logit_scale=0.25, layer_types=TYPES
    ),
    "gpt_oss": lambda: hf.GptOssConfig(
        **SMALL, **EXPERTS, sliding_window=FAR, rope_parameters=YARN
    ),
    "smollm3": lambda: hf.SmolLM3Config(
        **SMALL,
        no_rope_layers=[1, 0],
        use_sliding_window=True,
        sliding_window=80,
        layer_types=TYPES,
        rope_parameters=YARN,
    ),
    "exaone4": lambda: hf.Exaone4Config(
        **SMALL, sliding_window=FAR, sliding_window_pattern=2, layer_types=TYPES
    ),
    "gpt_neo": lambda: hf.GPTNeoConfig(
        vocab_size=VOCAB,
        hidden_size=32,
        num_layers=2,
        num_heads=4,
        max_position_embeddings=128,
        attention_types=[[["global", "local"], 1]],
        window_size=80,
        bos_token_id=1,
        eos_token_id=294,
    ),
    "recurrent_gemma": lambda: hf.RecurrentGemmaConfig(
        **SMALL | {"num_hidden_layers": 3}, lru_width=32, attention_window_size=80, conv1d_width=4
    ),
    "minimax": lambda: hf.MiniMaxConfig(
        **SMALL,
        **EXPERTS,
        layer_types=["linear_attention", "full_attention"],
        block_size=FAR,
    ),
    "inkling": lambda: hf.InklingTextConfig(
        **SMALL,
        **MOE,
        sliding_window_size=FAR,
        rel_extent=FAR,
        log_scaling_n_floor=FAR,
        log_scaling_alpha=0.9,
    ),
    "deepseek_v32": lambda: hf.DeepseekV32Config(**(MHA | MLA), **MOE, index_topk=FAR),
}
UNLIKE = {
    "doge": lambda: hf.DogeConfig(**SMALL, keep_window_size=FAR),
}
"""Beyond this length what a token sees depends on what is written after it: no causal decoder."""
TIED = {
    f"deepseek_v32-{heads}-heads": lambda heads=heads: hf.DeepseekV32Config(
        **(MHA | MLA), **MOE, index_topk=FAR, index_n_heads=heads
    )
    for heads in (2, 8)
}
"""Scores of keys are often exactly 0, and which of them are kept depends on a batch's width."""
QUICK = ("ministral3-scale", "llama4-floor", "phimoe-longrope", "gpt_neo")
"""Those of the tests that run always."""
