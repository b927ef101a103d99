"""What a pass of the local engine costs with N rows of k new tokens each.

    OMP_NUM_THREADS=1 python benchmarks/pass_cost.py

Prints CPU milliseconds, medians of nine passes, for a nano model and for one of 13 M parameters.
Drafts pay as long as several tokens of a row take little more than one: `drafts.spare_tokens` is
the number of tokens that take as long as the fixed part of a pass.
"""

from __future__ import annotations

import time

import numpy as np
import torch
from transformers import Qwen3Config, Qwen3ForCausalLM

from turnwise.engines import EngineConfig
from turnwise.engines.base import PromptKey
from turnwise.engines.local.drafts import spare_tokens
from turnwise.engines.local.probe import choose_rows
from turnwise.engines.local.row_store import NewTokens

PROMPT, CONTEXT, HELD, PASSES = 55, 512, 5, 9
SHAPES = ((1, 1), (1, 8), (1, 32), (8, 1), (8, 16), (32, 1), (32, 4), (32, 16), (128, 1), (128, 8))
MODELS = {
    "nano": {"vocab_size": 600, "hidden_size": 128, "intermediate_size": 384,
             "num_hidden_layers": 4, "num_attention_heads": 4, "head_dim": 32},
    "small": {"vocab_size": 2000, "hidden_size": 384, "intermediate_size": 1024,
              "num_hidden_layers": 8, "num_attention_heads": 6, "head_dim": 64},
}  # fmt: skip


def cost(model: Qwen3ForCausalLM, rows: int, each: int) -> float:
    """Return the CPU seconds of a pass."""
    make, _ = choose_rows(model, CONTEXT, EngineConfig(), 0)
    rng = np.random.default_rng(0)
    store, nothing = make(), np.zeros(0, dtype=np.int64)
    store.prefill(
        [PromptKey((), tuple(rng.integers(0, 500, PROMPT).tolist())) for _ in range(rows)]
    )
    sizes = np.full(rows, each)
    seconds = []
    for _ in range(PASSES):
        tokens = rng.integers(0, 500, rows * each)
        new = NewTokens(tokens=tokens, sizes=sizes, wanted=sizes, prompt=np.zeros_like(sizes))
        began = time.thread_time()
        store.decode(new)
        seconds.append(time.thread_time() - began)
        store.rearrange(nothing, nothing, np.full(rows, HELD))
    return float(np.median(seconds))


def main() -> None:
    torch.set_num_threads(1)
    for name, sizes in MODELS.items():
        config = Qwen3Config(**sizes, num_key_value_heads=2, max_position_embeddings=CONTEXT)
        model = Qwen3ForCausalLM(config).eval()
        print(f"{name}: spare tokens as counted: {spare_tokens(model):.0f}")
        with torch.inference_mode():
            for rows, each in SHAPES:
                print(f"  {rows:4d} rows x {each:2d}: {1e3 * cost(model, rows, each):7.2f} ms")


if __name__ == "__main__":
    main()
