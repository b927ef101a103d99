"""How many tokens a second the local engine samples from a nano model, and what takes the time.

    python benchmarks/engine_decode.py [--threads 2] [--rows 64 256 512] [--profile]

Prompts have 55 tokens, completions 20. Three workloads: every prompt its own; groups of eight that
share a prompt, from a model that has not learnt (they part at the first token); and lakes: groups
of eight on a map, four turns each, whose prompts differ in the last eight tokens only, with a model
made certain of its words, as a trained one is of the description it writes.
"""

from __future__ import annotations

import argparse
import asyncio
import time
from dataclasses import dataclass

import numpy as np
import torch
from torch.profiler import ProfilerActivity, profile
from transformers import Qwen3Config, Qwen3ForCausalLM

from turnwise.engines import EngineConfig, LocalEngine, Request, run
from turnwise.types import EpisodeId, Sampling, TurnId

VOCAB, PROMPT, COMPLETION, GROUP, TURNS, TAIL = 600, 55, 20, 8, 4, 8


@dataclass
class Nano:
    """A policy of the preset "nano" with random weights."""

    model: Qwen3ForCausalLM
    name: str = "main"
    version: int = 0
    stop_ids: frozenset[int] = frozenset()
    context: int = 512


def nano(certainty: float) -> Nano:
    torch.manual_seed(0)
    sizes = Qwen3Config(
        vocab_size=VOCAB,
        hidden_size=128,
        intermediate_size=384,
        num_hidden_layers=4,
        num_attention_heads=4,
        num_key_value_heads=2,
        head_dim=32,
        max_position_embeddings=512,
        tie_word_embeddings=False,
    )
    model = Qwen3ForCausalLM(sizes).eval()
    with torch.no_grad():
        model.lm_head.weight.mul_(certainty)
    return Nano(model)


def play(engine: LocalEngine, rows: int, group: int, turns: int, iteration: int = 0) -> None:
    """Sample `rows` episodes of `turns` turns, `group` episodes to a map."""
    rng = np.random.default_rng(0)
    maps = rng.integers(0, VOCAB, (rows // group, PROMPT)).tolist()
    tails = rng.integers(0, VOCAB, (9, TAIL)).tolist()

    async def episode(number: int) -> None:
        prompt = maps[number // group]
        for turn in range(turns):
            request = Request(
                id=TurnId(episode=EpisodeId(iteration=iteration, visit=number // group, task="t",
                member=number % group), role="player", turn=turn), stream="train", policy="main",
                prompt_ids=tuple(prompt), sampling=Sampling(max_tokens=COMPLETION),
            )  # fmt: skip
            completion = await engine.generate(request)
            prompt = prompt[:-TAIL] + tails[sum(completion.token_ids) % len(tails)]

    async def everything() -> None:
        await asyncio.gather(*(episode(number) for number in range(rows)))

    run(everything(), engine)
    engine.end_iteration()


WORKLOADS = {"own prompts": (1.0, 1, 1), "groups": (1.0, GROUP, 1), "lakes": (300.0, GROUP, TURNS)}


def measure(rows: int, name: str) -> str:
    certainty, group, turns = WORKLOADS[name]
    engine = LocalEngine({"main": nano(certainty)}, EngineConfig(max_rows=rows), seed=0)
    play(engine, rows, group, turns)
    seconds = []
    for iteration in range(1, 4):
        engine.metrics()
        began = time.perf_counter()
        play(engine, rows, group, turns, iteration)
        seconds.append(time.perf_counter() - began)
    did, best = engine.metrics(), min(seconds)
    sampled = did["engine/sampled_tokens"]
    return (
        f"{name:12s} {rows:4d} {sampled / best:9,.0f} {1e3 * best:8.0f} {sampled:8,.0f} "
        f"{did['engine/decode_tokens']:8,.0f} {did['engine/prompt_tokens']:8,.0f} "
        f"{did['engine/prefill_tokens']:8,.0f} {did['engine/forward_calls']:6.0f} "
        f"{did['engine/row_steps'] / did['engine/steps']:6.0f}"
    )


def main() -> None:
    parser = argparse.ArgumentParser()
    parser.add_argument("--threads", type=int, default=2)
    parser.add_argument("--rows", type=int, nargs="+", default=[64, 256, 512])
    parser.add_argument("--profile", action="store_true")
    options = parser.parse_args()
    torch.set_num_threads(options.threads)
    print(
        f"{'workload':12s} rows  tokens/s       ms  sampled  decoded   prompt  prefill  calls "
        f"  rows ({options.threads} threads)"
    )
    for name in WORKLOADS:
        for rows in options.rows:
            print(measure(rows, name))
    if options.profile:
        engine = LocalEngine({"main": nano(1.0)}, EngineConfig(max_rows=256), seed=0)
        play(engine, 256, GROUP, 1)
        with profile(activities=[ProfilerActivity.CPU]) as found:
            play(engine, 256, GROUP, 1)
        print(found.key_averages().table(sort_by="self_cpu_time_total", row_limit=15))


if __name__ == "__main__":
    main()
