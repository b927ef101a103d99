"""Tiny configs of the decoder families of transformers."""

import transformers as hf

from .zoo_mixed import MIXED
from .zoo_sizes import CONTEXT, LIN, MHA, MLA, MOE, ORIGINAL, SMALL, TYPES, VOCAB, W

ATTENTION = {
    "gpt2": lambda: hf.GPT2Config(
        vocab_size=VOCAB,
        n_embd=32,
        n_layer=2,
        n_head=4,
        n_positions=CONTEXT,
        bos_token_id=1,
        eos_token_id=294,
    ),
    "gpt_neo": lambda: hf.GPTNeoConfig(
        vocab_size=VOCAB,
        hidden_size=32,
        num_layers=2,
        num_heads=4,
        max_position_embeddings=CONTEXT,
        attention_types=[[["global", "local"], 1]],
        window_size=6,
        bos_token_id=1,
        eos_token_id=294,
    ),
    "gpt_neox": lambda: hf.GPTNeoXConfig(**MHA),
    "gptj": lambda: hf.GPTJConfig(
        vocab_size=VOCAB,
        n_embd=32,
        n_layer=2,
        n_head=4,
        n_positions=CONTEXT,
        rotary_dim=4,
        bos_token_id=1,
        eos_token_id=294,
    ),
    "codegen": lambda: hf.CodeGenConfig(
        vocab_size=VOCAB,
        n_embd=32,
        n_layer=2,
        n_head=4,
        n_positions=CONTEXT,
        rotary_dim=4,
        bos_token_id=1,
        eos_token_id=294,
    ),
    "gpt_bigcode": lambda: hf.GPTBigCodeConfig(
        vocab_size=VOCAB,
        n_embd=32,
        n_layer=2,
        n_head=4,
        n_positions=CONTEXT,
        bos_token_id=1,
        eos_token_id=294,
    ),
    "openai-gpt": lambda: hf.OpenAIGPTConfig(
        vocab_size=VOCAB, n_embd=32, n_layer=2, n_head=4, n_positions=CONTEXT
    ),
    "opt": lambda: hf.OPTConfig(
        vocab_size=VOCAB,
        hidden_size=32,
        ffn_dim=48,
        num_hidden_layers=2,
        num_attention_heads=4,
        max_position_embeddings=CONTEXT,
        word_embed_proj_dim=32,
        pad_token_id=292,
        bos_token_id=1,
        eos_token_id=294,
    ),
    "xglm": lambda: hf.XGLMConfig(
        vocab_size=VOCAB,
        d_model=32,
        ffn_dim=48,
        num_layers=2,
        attention_heads=4,
        max_position_embeddings=CONTEXT,
        pad_token_id=1,
        bos_token_id=1,
        eos_token_id=294,
    ),
    "biogpt": lambda: hf.BioGptConfig(**MHA),
    "dbrx": lambda: hf.DbrxConfig(
        vocab_size=VOCAB,
        d_model=32,
        n_heads=4,
        n_layers=2,
        max_seq_len=CONTEXT,
        resid_pdrop=0.1,
        attn_config={"kv_n_heads": 2, "rope_theta": 10000.0, "clip_qkv": 8.0},
        ffn_config={"ffn_hidden_size": 48, "moe_num_experts": 4, "moe_top_k": 2, "hidden_size": 32},
        pad_token_id=292,
        eos_token_id=294,
        bos_token_id=1,
    ),
    "falcon": lambda: hf.FalconConfig(
        vocab_size=VOCAB,
        hidden_size=32,
        num_hidden_layers=2,
        num_attention_heads=4,
        max_position_embeddings=CONTEXT,
        hidden_dropout=0.1,
        attention_dropout=0.1,
        bos_token_id=1,
        eos_token_id=294,
    ),
    "falcon-alibi": lambda: hf.FalconConfig(
        vocab_size=VOCAB,
        hidden_size=32,
        num_hidden_layers=2,
        num_attention_heads=4,
        alibi=True,
        bos_token_id=1,
        eos_token_id=294,
    ),
    "mpt": lambda: hf.MptConfig(
        vocab_size=VOCAB, d_model=32, n_heads=4, n_layers=2, max_seq_len=CONTEXT
    ),
    "bloom": lambda: hf.BloomConfig(
        vocab_size=VOCAB, hidden_size=32, n_layer=2, n_head=4, bos_token_id=1, eos_token_id=294
    ),
    "phi": lambda: hf.PhiConfig(**MHA, partial_rotary_factor=0.5),
    "phi3": lambda: hf.Phi3Config(**SMALL),
    "phi3-window": lambda: hf.Phi3Config(**SMALL, **W),
    "phi3-longrope": lambda: hf.Phi3Config(
        **SMALL,
        original_max_position_embeddings=ORIGINAL,
        rope_parameters={
            "rope_type": "longrope",
            "rope_theta": 10000.0,
            "short_factor": [1.0] * 4,
            "long_factor": [4.0, 3.0, 5.0, 8.0],
            "original_max_position_embeddings": ORIGINAL,
        },
    ),
    "llama-dynamic": lambda: hf.LlamaConfig(
        **SMALL | {"max_position_embeddings": ORIGINAL},
        rope_parameters={"rope_type": "dynamic", "rope_theta": 10000.0, "factor": 4.0},
    ),
    "llama-yarn": lambda: hf.LlamaConfig(
        **SMALL,
        rope_parameters={
            "rope_type": "yarn",
            "rope_theta": 10000.0,
            "factor": 4.0,
            "original_max_position_embeddings": ORIGINAL,
        },
    ),
    "llama-llama3": lambda: hf.LlamaConfig(
        **SMALL,
        rope_parameters={
            "rope_type": "llama3",
            "rope_theta": 10000.0,
            "factor": 4.0,
            "original_max_position_embeddings": ORIGINAL,
            "low_freq_factor": 1.0,
            "high_freq_factor": 4.0,
        },
    ),
    "phimoe": lambda: hf.PhimoeConfig(**SMALL, num_local_experts=4, num_experts_per_tok=2),
    "stablelm": lambda: hf.StableLmConfig(**SMALL, partial_rotary_factor=0.5),
    "glm": lambda: hf.GlmConfig(**SMALL, partial_rotary_factor=0.5),
    "glm4": lambda: hf.Glm4Config(**SMALL, partial_rotary_factor=0.5),
    "glm4_moe": lambda: hf.Glm4MoeConfig(
        **SMALL, **MOE, partial_rotary_factor=0.5, use_qk_norm=True
    ),
    "glm4_moe_lite": lambda: hf.Glm4MoeLiteConfig(**(MHA | MLA), **MOE),
    "gemma": lambda: hf.GemmaConfig(**SMALL),
    "gemma2": lambda: hf.Gemma2Config(
        **SMALL,
        **W,
        attn_logit_softcapping=5.0,
        final_logit_softcapping=3.0,
        query_pre_attn_scalar=8,
    ),
    "gemma3_text": lambda: hf.Gemma3TextConfig(
        **SMALL, **W, layer_types=TYPES, final_logit_softcapping=4.0
    ),
    "gemma3n_text": lambda: hf.Gemma3nTextConfig(
        **SMALL | {"intermediate_size": [48] * 4, "num_hidden_layers": 4},
        **W,
        layer_types=TYPES * 2,
        vocab_size_per_layer_input=VOCAB,
        hidden_size_per_layer_input=8,
        laurel_rank=4,
        altup_num_inputs=2,
        num_kv_shared_layers=2,
        activation_sparsity_pattern=[0.0] * 4,
    ),
    "gemma3n-sparse": lambda: hf.Gemma3nTextConfig(
        **SMALL | {"intermediate_size": [48] * 4, "num_hidden_layers": 4},
        **W,
        layer_types=TYPES * 2,
        vocab_size_per_layer_input=VOCAB,
        hidden_size_per_layer_input=8,
        laurel_rank=4,
        altup_num_inputs=2,
        num_kv_shared_layers=0,
        activation_sparsity_pattern=[0.95, 0.0, 0.0, 0.0],
    ),
    "gemma4_text": lambda: hf.Gemma4TextConfig(
        **SMALL | {"num_hidden_layers": 4},
        **W,
        layer_types=TYPES * 2,
        vocab_size_per_layer_input=VOCAB,
        hidden_size_per_layer_input=8,
        num_kv_shared_layers=0,
        global_head_dim=8,
    ),
    "vaultgemma": lambda: hf.VaultGemmaConfig(**SMALL, **W, layer_types=TYPES),
    "recurrent_gemma": lambda: hf.RecurrentGemmaConfig(
        **SMALL | {"num_hidden_layers": 3},
        lru_width=32,
        attention_window_size=6,
        logits_soft_cap=3.0,
        conv1d_width=4,
    ),
    "qwen2": lambda: hf.Qwen2Config(**SMALL),
    "qwen2_moe": lambda: hf.Qwen2MoeConfig(**SMALL, **MOE),
    "qwen3": lambda: hf.Qwen3Config(**SMALL),
    "qwen3_moe": lambda: hf.Qwen3MoeConfig(**SMALL, **MOE),
    "qwen3_next": lambda: hf.Qwen3NextConfig(
        **SMALL, **LIN, **MOE, layer_types=["linear_attention", "full_attention"]
    ),
    "qwen3_5_text": lambda: hf.Qwen3_5TextConfig(
        **SMALL, **LIN, layer_types=["linear_attention", "full_attention"]
    ),
    "llama": lambda: hf.LlamaConfig(**SMALL),
    "llama4_text": lambda: hf.Llama4TextConfig(
        **SMALL,
        intermediate_size_mlp=48,
        num_local_experts=2,
        num_experts_per_tok=1,
        interleave_moe_layer_step=2,
        attention_chunk_size=16,
        no_rope_layers=[1, 0],
        attn_temperature_tuning=True,
        floor_scale=8,
        attn_scale=0.5,
        use_qk_norm=True,
    ),
    "mistral": lambda: hf.MistralConfig(**SMALL, **W),
    "ministral": lambda: hf.MinistralConfig(**SMALL, **W, layer_types=TYPES),
    "ministral3": lambda: hf.Ministral3Config(**SMALL),
    "mixtral": lambda: hf.MixtralConfig(**SMALL, num_local_experts=4),
    "cohere": lambda: hf.CohereConfig(**SMALL, logit_scale=0.25),
    "cohere2": lambda: hf.Cohere2Config(**SMALL, **W, logit_scale=0.25, layer_types=TYPES),
    "olmo": lambda: hf.OlmoConfig(**SMALL),
    "olmo2": lambda: hf.Olmo2Config(**SMALL),
    "olmo3": lambda: hf.Olmo3Config(**SMALL, **W, layer_types=TYPES),
    "olmoe": lambda: hf.OlmoeConfig(**SMALL, num_experts=4, num_experts_per_tok=2),
    "starcoder2": lambda: hf.Starcoder2Config(**SMALL),
    "granite": lambda: hf.GraniteConfig(
        **SMALL, logits_scaling=2.0, embedding_multiplier=3.0, residual_multiplier=0.5
    ),
    "granitemoe": lambda: hf.GraniteMoeConfig(
        **SMALL, num_local_experts=4, num_experts_per_tok=2, logits_scaling=2.0
    ),
    "granitemoehybrid": lambda: hf.GraniteMoeHybridConfig(
        **SMALL,
        num_local_experts=4,
        num_experts_per_tok=2,
        logits_scaling=2.0,
        layer_types=["mamba", "attention"],
        mamba_n_heads=4,
        mamba_d_head=16,
        mamba_d_state=8,
        mamba_n_groups=1,
        mamba_chunk_size=8,
        mamba_expand=2,
        shared_intermediate_size=32,
    ),
    "deepseek_v2": lambda: hf.DeepseekV2Config(**(MHA | MLA), **MOE),
    "deepseek_v3": lambda: hf.DeepseekV3Config(**(MHA | MLA), **MOE),
    "minimax": lambda: hf.MiniMaxConfig(
        **SMALL,
        num_local_experts=4,
        num_experts_per_tok=2,
        layer_types=["linear_attention", "full_attention"],
        block_size=8,
    ),
    "minimax_m2": lambda: hf.MiniMaxM2Config(
        **SMALL, num_local_experts=4, num_experts_per_tok=2, rotary_dim=4
    ),
    "smollm3": lambda: hf.SmolLM3Config(**SMALL, no_rope_layers=[1, 0]),
    "ernie4_5": lambda: hf.Ernie4_5Config(**SMALL),
    "ernie4_5_moe": lambda: hf.Ernie4_5_MoeConfig(
        **SMALL,
        moe_num_experts=4,
        moe_k=2,
        moe_intermediate_size=16,
        moe_num_shared_experts=1,
        moe_layer_start_index=1,
    ),
    "hunyuan_v1_dense": lambda: hf.HunYuanDenseV1Config(**SMALL),
    "hunyuan_v1_moe": lambda: hf.HunYuanMoEV1Config(**SMALL, num_experts=4, moe_topk=2),
    "exaone4": lambda: hf.Exaone4Config(**SMALL, **W, sliding_window_pattern=2, layer_types=TYPES),
    "gpt_oss": lambda: hf.GptOssConfig(
        **SMALL,
        sliding_window=16,
        num_local_experts=4,
        num_experts_per_tok=2,
        rope_parameters={"rope_type": "default", "rope_theta": 10000.0},
    ),
}
FAMILIES = ATTENTION | MIXED
REFUSED = {
    "cpmant": "padded batch",
    "bert-encoder": "padded batch",
    "xlm": "padded batch",
    "prophetnet": "padded batch|whole sequences side by side",
}
"""Models that are not causal decoders, and a part of the error."""
CHEAP = (
    "gpt2", "opt", "falcon", "phi", "phi3-longrope", "llama-dynamic", "glm4_moe", "gemma2",
    "gemma3n_text", "recurrent_gemma", "llama4_text", "cohere", "granite", "mamba", "falcon_h1",
    "deepseek_v4", "xlm", "prophetnet",
)  # fmt: skip
"""Families of every kind, for the tests that run always."""
SWITCH = {"opt", "xglm", "biogpt", "dbrx", "falcon", "gpt2"}
"""Families whose decoder layers drop out by their own training flag, and GPT-2, whose do not."""
