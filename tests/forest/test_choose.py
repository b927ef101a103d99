"""Which layout is chosen, and what the reason says."""

import pytest

from turnwise.forest import ForestConfig, choose

TREES = (
    "qwen3-sdpa", "qwen3-eager", "qwen3-window", "qwen3-lora", "llama", "gemma", "gemma2-eager",
    "gemma3-sdpa", "gemma3-eager", "mistral", "gpt2", "granite",
)  # fmt: skip


@pytest.mark.parametrize("name", TREES)
def test_attention_models_are_scored_as_trees(models, name):
    scorer = choose(models(name), ForestConfig())
    print(name, scorer.reason)
    assert scorer.layout == "tree", scorer.reason
    assert "max difference" in scorer.reason


@pytest.mark.parametrize("name", ["lfm2", "falcon-h1", "qwen3-next", "mamba", "bloom"])
def test_models_that_no_mask_serves_are_scored_flat(models, name):
    scorer = choose(models(name), ForestConfig())
    print(name, scorer.reason)
    assert scorer.layout == "flat", scorer.reason
