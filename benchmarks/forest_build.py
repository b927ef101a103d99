"""Time trees against flat rows on a nano model: 512 rows of 85 tokens, prompts shared 8 ways.

Run: python benchmarks/forest_build.py [--rows 512] [--prompt 60] [--completion 25] [--group 8]
"""

from __future__ import annotations

import argparse
import time
from collections.abc import Callable

import numpy as np
import torch
import transformers

from turnwise.forest import ForestConfig, build, forest_metrics
from turnwise.forest.choose import choose
from turnwise.forest.config import MOST_TOKENS
from turnwise.losses import make_loss
from turnwise.trainers.update import make_batch
from turnwise.types import EpisodeId, TrainingSample, TurnId

VOCAB = 600
CHAT_START = [1, 7, 9]


def nano() -> transformers.PreTrainedModel:
    config = transformers.Qwen3Config(
        vocab_size=VOCAB,
        hidden_size=128,
        intermediate_size=384,
        num_hidden_layers=4,
        num_attention_heads=4,
        num_key_value_heads=2,
        head_dim=32,
        tie_word_embeddings=True,
    )
    torch.manual_seed(0)
    return transformers.AutoModelForCausalLM.from_config(config).eval()


def make_rows(rows: int, prompt: int, completion: int, group: int) -> list[TrainingSample]:
    """Draw groups of rows that share a prompt; all prompts open with the same few tokens."""
    rng = np.random.default_rng(0)
    made = []
    for index in range(rows):
        if index % group == 0:
            start = CHAT_START + rng.integers(10, VOCAB, prompt - len(CHAT_START)).tolist()
        ids = start + rng.integers(10, VOCAB, completion).tolist()
        turn = TurnId(
            episode=EpisodeId(iteration=0, visit=0, task="t", member=index), role="player", turn=0
        )
        sampled = np.where(np.arange(len(ids)) >= prompt, 0, -1)
        made.append(
            TrainingSample.of(policy="main", turns=(turn,), token_ids=ids, turn_index=sampled,
                      advantages=rng.normal(size=len(ids)))
        )  # fmt: skip
    return made


def best(act: Callable[[], object], repeats: int) -> float:
    """Return the shortest of some runs, in seconds."""
    times = []
    for _ in range(repeats):
        begin = time.perf_counter()
        act()
        times.append(time.perf_counter() - begin)
    return min(times)


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__)
    for name, default in (("rows", 512), ("prompt", 60), ("completion", 25), ("group", 8)):
        parser.add_argument(f"--{name}", type=int, default=default)
    parser.add_argument("--repeats", type=int, default=3)
    parser.add_argument("--token-budget", type=int, default=MOST_TOKENS)
    options = parser.parse_args()
    samples = make_rows(options.rows, options.prompt, options.completion, options.group)
    model = nano()
    size = sum(parameter.numel() for parameter in model.parameters()) / 1e6
    print(f"{size:.2f} M parameters, {len(samples)} rows, {torch.get_num_threads()} threads")
    print(f"build           {best(lambda: build(samples), 5) * 1e3:8.1f} ms")
    whole = make_batch(samples, make_loss())
    for layout in ("tree", "flat"):
        scorer = choose(model, ForestConfig(layout=layout, token_budget=options.token_budget))
        batches = scorer.batches(samples)

        def update(scorer=scorer, batches=batches) -> None:
            model.zero_grad()
            for batch in batches:
                scores = scorer.score(model, batch)
                (whole.at(batch)["advantages"] * scores.logprobs).sum().backward()

        def score(scorer=scorer, batches=batches) -> None:
            with torch.no_grad():
                for batch in batches:
                    scorer.score(model, batch)

        packing = best(lambda scorer=scorer: scorer.batches(samples), 5)
        gathering = best(lambda b=batches: [whole.at(batch) for batch in b], 5)
        print(f"{layout}: pack       {packing * 1e3:8.1f} ms")
        print(f"{layout}: columns    {gathering * 1e3:8.1f} ms")
        print(f"{layout}: score      {best(score, options.repeats):8.3f} s (no gradient)")
        print(f"{layout}: update     {best(update, options.repeats):8.3f} s (forward, backward)")
        print(f"{layout}: {scorer.reason}")
        print(" ", {name: round(value, 2) for name, value in forest_metrics(batches).items()})


if __name__ == "__main__":
    main()
