"""Time sampling from several adapters on one base: in one pass, and each by itself.

python benchmarks/adapters_in_one_pass.py --model small --adapters 4 --rows 8
"""

from __future__ import annotations

import argparse
import asyncio
import tempfile
import time
from pathlib import Path
from statistics import median

import numpy as np
import torch
from peft import LoraConfig, get_peft_model
from transformers import AutoModelForCausalLM

from turnwise.bench.workloads import WORDS
from turnwise.engines import EngineConfig, LocalEngine, run
from turnwise.engines.base import Request
from turnwise.policies import nano_preset
from turnwise.policies.nano import make_nano
from turnwise.policies.policy import fork
from turnwise.types import EpisodeId, Sampling, TurnId

PROMPTS, PROMPT_TOKENS, COMPLETION_TOKENS, ROUNDS = 4, 60, 48, 5


class Adapted:
    """A policy as the engine sees it; its completions never end by themselves."""

    version, stop_ids, context = 0, frozenset(), 1024

    def __init__(self, name, model):
        self.name, self.model = name, model


def make_policies(model, count):
    with tempfile.TemporaryDirectory() as folder:
        make_nano(Path(folder) / "model", [" ".join(WORDS)], WORDS, nano_preset(model), seed=0)
        base = AutoModelForCausalLM.from_pretrained(Path(folder) / "model")
    wanted = LoraConfig(
        r=16, target_modules="all-linear", task_type="CAUSAL_LM", init_lora_weights=False
    )
    first = get_peft_model(base, wanted).eval()
    models = [first, *(fork(first).eval() for _ in range(count - 1))]
    return {f"role{i}": Adapted(f"role{i}", member) for i, member in enumerate(models)}


def sampled(engines, names, rows):
    """Return the seconds that all completions of all policies take."""
    rng = np.random.default_rng(0)
    prompts = [tuple(rng.integers(30, 200, PROMPT_TOKENS).tolist()) for _ in range(PROMPTS)]
    began = time.perf_counter()
    for engine, own in zip(engines, names, strict=True):
        asked = [
            Request(
                id=TurnId(
                    episode=EpisodeId(iteration=0, visit=row % PROMPTS, task="t", member=row),
                    role=name,
                    turn=0,
                ),
                stream="train",
                policy=name,
                prompt_ids=prompts[row % PROMPTS],
                sampling=Sampling(max_tokens=COMPLETION_TOKENS),
            )
            for name in own
            for row in range(rows)
        ]

        async def everything(engine=engine, asked=asked):
            return await asyncio.gather(*(engine.generate(one) for one in asked))

        run(everything(), engine)
        engine.end_iteration()
    return time.perf_counter() - began


def main():
    parser = argparse.ArgumentParser(description=__doc__.partition("\n")[0])
    parser.add_argument("--model", default="small")
    parser.add_argument("--adapters", type=int, default=2)
    parser.add_argument("--rows", type=int, default=8, help="completions of each adapter")
    parser.add_argument("--threads", type=int, default=2)
    given = parser.parse_args()
    torch.set_num_threads(given.threads)
    policies = make_policies(given.model, given.adapters)
    joint = [LocalEngine(policies, EngineConfig(), 0)], [list(policies)]
    single = (
        [LocalEngine({name: policy}, EngineConfig(), 0) for name, policy in policies.items()],
        [[name] for name in policies],
    )
    ways = {"apart": single, "joint": joint}
    times = {way: [] for way in ways}
    for _ in range(ROUNDS + 1):  # the first is not counted
        for way, (engines, names) in ways.items():
            times[way].append(sampled(engines, names, given.rows))
    apart, together = times["apart"][1:], times["joint"][1:]
    ratio = median(a / b for a, b in zip(apart, together, strict=True))
    print(f"apart {median(apart):.3f} s, in one pass {median(together):.3f} s, ratio {ratio:.2f}")


if __name__ == "__main__":
    main()
