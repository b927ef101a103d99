"""Tiny configs of families with recurrences, and of rarer decoders (see `zoo`)."""

import transformers as hf

from .zoo_sizes import CONTEXT, LIN, MHA, MLA, MOE, SMALL, VOCAB

MIXED = {
    "mamba": lambda: hf.MambaConfig(
        vocab_size=VOCAB, hidden_size=32, num_hidden_layers=2, state_size=4
    ),
    "mamba2": lambda: hf.Mamba2Config(
        vocab_size=VOCAB,
        hidden_size=32,
        num_hidden_layers=2,
        state_size=8,
        num_heads=8,
        head_dim=8,
        expand=2,
        n_groups=1,
        chunk_size=8,
        pad_token_id=292,
        bos_token_id=1,
        eos_token_id=294,
    ),
    "falcon_mamba": lambda: hf.FalconMambaConfig(
        vocab_size=VOCAB,
        hidden_size=32,
        num_hidden_layers=2,
        state_size=4,
        pad_token_id=292,
        bos_token_id=1,
        eos_token_id=294,
    ),
    "falcon_h1": lambda: hf.FalconH1Config(
        **SMALL,
        mamba_d_ssm=32,
        mamba_n_heads=4,
        mamba_d_head=8,
        mamba_d_state=8,
        mamba_chunk_size=8,
        lm_head_multiplier=0.25,
    ),
    "jamba": lambda: hf.JambaConfig(
        **SMALL,
        attn_layer_period=2,
        attn_layer_offset=1,
        expert_layer_period=2,
        expert_layer_offset=1,
        num_experts=4,
        mamba_d_state=4,
        use_mamba_kernels=False,
    ),
    "bamba": lambda: hf.BambaConfig(
        **SMALL,
        attn_layer_indices=[1],
        mamba_n_heads=8,
        mamba_d_head=8,
        mamba_d_state=8,
        mamba_chunk_size=8,
        mamba_expand=2,
    ),
    "zamba2": lambda: hf.Zamba2Config(
        **MHA | {"num_hidden_layers": 3},
        layers_block_type=["mamba", "hybrid", "mamba"],
        hybrid_layer_ids=[1],
        mamba_d_state=8,
        mamba_headdim=8,
        n_mamba_heads=8,
        mamba_expand=2,
        mamba_ngroups=1,
        chunk_size=8,
        num_mem_blocks=1,
        use_mem_rope=False,
        use_mamba_kernels=False,
    ),
    "rwkv": lambda: hf.RwkvConfig(
        vocab_size=VOCAB,
        hidden_size=32,
        num_hidden_layers=2,
        context_length=CONTEXT,
        attention_hidden_size=32,
        intermediate_size=48,
    ),
    "xlstm": lambda: hf.xLSTMConfig(
        vocab_size=VOCAB, hidden_size=32, num_hidden_layers=2, num_heads=4, chunk_size=8
    ),
    "lfm2": lambda: hf.Lfm2Config(
        **SMALL, layer_types=["conv", "full_attention"], block_multiple_of=8
    ),
    "persimmon": lambda: hf.PersimmonConfig(**MHA, partial_rotary_factor=0.5),
    "nemotron": lambda: hf.NemotronConfig(**SMALL, partial_rotary_factor=0.5),
    "seed_oss": lambda: hf.SeedOssConfig(**SMALL),
    "arcee": lambda: hf.ArceeConfig(**SMALL),
    "helium": lambda: hf.HeliumConfig(**SMALL),
    "apertus": lambda: hf.ApertusConfig(**SMALL),
    "doge": lambda: hf.DogeConfig(**SMALL),
    "bitnet": lambda: hf.BitNetConfig(**SMALL),
    "diffllama": lambda: hf.DiffLlamaConfig(**SMALL),
    "dots1": lambda: hf.Dots1Config(**SMALL, **MOE),
    "jetmoe": lambda: hf.JetMoeConfig(
        **SMALL | {"kv_channels": 8}, num_local_experts=4, num_experts_per_tok=2
    ),
    "nanochat": lambda: hf.NanoChatConfig(**SMALL),
    "minicpm3": lambda: hf.MiniCPM3Config(
        **(MHA | MLA), scale_emb=2.0, scale_depth=1.4, dim_model_base=8
    ),
    "ctrl": lambda: hf.CTRLConfig(
        vocab_size=VOCAB, n_embd=32, n_layer=2, n_head=4, dff=48, n_positions=CONTEXT
    ),
    "cpmant": lambda: hf.CpmAntConfig(
        vocab_size=VOCAB,
        hidden_size=32,
        num_attention_heads=4,
        dim_head=8,
        dim_ff=48,
        num_hidden_layers=2,
    ),
    "modernbert-decoder": lambda: hf.ModernBertDecoderConfig(**SMALL),
    "olmo_hybrid": lambda: hf.OlmoHybridConfig(
        **SMALL, **LIN, layer_types=["linear_attention", "full_attention"]
    ),
    "nemotron_h": lambda: hf.NemotronHConfig(
        **SMALL,
        mamba_num_heads=4,
        mamba_head_dim=16,
        ssm_state_size=8,
        n_groups=1,
        chunk_size=8,
        expand=2,
        **MOE,
    ),
    "deepseek_v4": lambda: hf.DeepseekV4Config(
        **SMALL | {"num_key_value_heads": 1, "head_dim": 16},
        n_routed_experts=4,
        num_experts_per_tok=2,
        moe_intermediate_size=16,
        q_lora_rank=16,
        layer_types=["heavily_compressed_attention", "compressed_sparse_attention"],
        mlp_layer_types=["hash_moe", "moe"],
        compress_rates={"compressed_sparse_attention": 2, "heavily_compressed_attention": 8},
        sliding_window=6,
        index_n_heads=16,
        index_head_dim=16,
        index_topk=8,
        o_groups=2,
        o_lora_rank=8,
        hc_mult=2,
    ),
    "xlm": lambda: hf.XLMConfig(
        vocab_size=VOCAB, emb_dim=32, n_layers=2, n_heads=4, max_position_embeddings=CONTEXT
    ),
    "prophetnet": lambda: hf.ProphetNetConfig(
        vocab_size=VOCAB,
        hidden_size=32,
        num_decoder_layers=2,
        num_decoder_attention_heads=4,
        decoder_ffn_dim=48,
        max_position_embeddings=CONTEXT,
        is_decoder=True,
    ),
    "bert-decoder": lambda: hf.BertConfig(**MHA, is_decoder=True),
    "bert-encoder": lambda: hf.BertConfig(**MHA),
}
