"""One training step of a prompt and a group that are far over the budgets of memory.

Plays and trains the same step with less and less memory allowed, each in a process of its own, and
prints what it took. Every run must finish, and the gradients must stay the same.

python benchmarks/over_the_budget.py --prompt 3000 --group 128 --completion 64
"""

from __future__ import annotations

import argparse
import json
import resource
import subprocess
import sys
import tempfile
import time
from dataclasses import asdict, replace
from pathlib import Path

import torch

from turnwise.app.build import plan_of
from turnwise.bench.growth import BASE
from turnwise.bench.run_turnwise import first_gradients, open_session, recipe_of
from turnwise.bench.workloads import Workload, count_words, make_model, make_rows
from turnwise.engines import EngineConfig
from turnwise.forest import ForestConfig
from turnwise.trainers import Silent

BUDGETS = (
    {"activations": 4096, "prefixes": 1024, "rows": 512},
    {"activations": 256, "prefixes": 16, "rows": 64},
    {"activations": 32, "prefixes": 1, "rows": 8},
    {"activations": 1, "prefixes": 0, "rows": 1},
)


def take_step(workload: Workload, budget: dict[str, int], gradients: str) -> dict[str, float]:
    torch.set_num_threads(2)
    with tempfile.TemporaryDirectory() as scratch:
        folder = Path(scratch)
        model = make_model(workload, folder / "model")
        words = count_words(workload, model)
        rows = make_rows(workload, words, folder / "rows.jsonl")
        recipe = recipe_of(workload, words, model, rows, checkpointing=False).model_copy(
            update={
                "forest": ForestConfig(activation_megabytes=budget["activations"]),
                "engine": EngineConfig(
                    prefix_megabytes=budget["prefixes"], max_rows=budget["rows"]
                ),
            }
        )
        session = open_session(recipe, folder / "run", Silent())
        before = resource.getrusage(resource.RUSAGE_SELF).ru_maxrss / 1024
        began = time.perf_counter()
        found = first_gradients(session, plan_of(recipe))
        seconds = time.perf_counter() - began
        counted = session.take_sampling() | found["metrics"]
    torch.save(found["gradients"], gradients)
    return {
        "seconds": seconds,
        "before_mb": before,
        "peak_mb": resource.getrusage(resource.RUSAGE_SELF).ru_maxrss / 1024,
        "prefilled": counted["engine/prefill_tokens"],
        "micro_batches": counted["forest/micro_batches"],
        "trained": counted["forest/tokens_distinct"],
    }


def apart(one: str, other: str) -> float:
    a, b = torch.load(one), torch.load(other)
    difference = sum(float((a[name] - b[name]).square().sum()) for name in a)
    return (difference / sum(float(value.square().sum()) for value in a.values())) ** 0.5


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--prompt", type=int, default=3000)
    parser.add_argument("--group", type=int, default=128)
    parser.add_argument("--completion", type=int, default=64)
    asked = parser.parse_args()
    workload = replace(
        BASE,
        name="over the budget",
        prompts=1,
        group=asked.group,
        prompt_tokens=asked.prompt,
        completion_tokens=asked.completion,
    )
    with tempfile.TemporaryDirectory() as folder:
        files = [f"{folder}/{number}.pt" for number in range(len(BUDGETS))]
        for budget, file in zip(BUDGETS, files, strict=True):
            told = json.dumps([asdict(workload), budget, file])
            done = subprocess.run(
                [sys.executable, __file__, told], stdout=subprocess.PIPE, check=True, text=True
            )
            found = json.loads(done.stdout.splitlines()[-1])
            said = ", ".join(f"{name} {value:,.1f}" for name, value in found.items())
            print(f"{budget}: {said}, gradients apart {apart(files[0], file):.1e}", flush=True)


if __name__ == "__main__":
    if sys.argv[1:] and sys.argv[1].startswith("["):
        given, budget, file = json.loads(sys.argv[1])
        print(json.dumps(take_step(Workload(**given), budget, file)))
    else:
        main()
