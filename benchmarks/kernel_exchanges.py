"""Measure the gain of each replacement of a model's operations, in whole training steps.

    python benchmarks/kernel_exchanges.py [--workload nano-short small] [--lora] [--steps 9]

Workers take steps in turn: one with every replacement, and one without each. A row is the median
over rounds of the seconds without one replacement over the seconds with all, and its quartiles: at
1.10 a step takes a tenth longer without it. `nothing` is a second worker with every replacement and
shows the noise. A replacement below 1.1 on both `nano-short` and `small` is not worth its code.
"""

from __future__ import annotations

import argparse
import json
import sys
import tempfile
from collections.abc import Callable
from contextlib import ExitStack, suppress
from dataclasses import replace
from pathlib import Path

import numpy as np

from turnwise import kernels
from turnwise.bench import run_turnwise
from turnwise.bench.step import PARTS, WARM, step_settings
from turnwise.bench.worker import ParentExited, Worker
from turnwise.bench.workloads import WORKLOADS, Workload
from turnwise.kernels import linear


def _without_memory() -> None:
    kernels.keep_freed_memory = lambda: False


def _without_linear() -> None:
    linear.prefers_onednn = lambda: False


REPLACEMENTS: dict[str, Callable[[], None]] = {
    "nothing": lambda: None,
    "linear layers": _without_linear,
    "freed memory": _without_memory,
}
"""The function that undoes a replacement in a worker, before its model is made."""


def measure(workload: Workload, names: list[str], steps: int, threads: int | None) -> None:
    """Print a row for each replacement of `names` on one workload."""
    with tempfile.TemporaryDirectory() as scratch, ExitStack() as stack:
        settings = step_settings(workload, Path(scratch), threads, False)
        workers = {}
        for name in ["full", *names]:
            place = Path(scratch) / name.replace(" ", "-")
            place.mkdir()
            command = [sys.executable, __file__, "--worker", name, json.dumps(settings)]
            workers[name] = stack.enter_context(
                Worker(name, command, place, int(settings["threads"]))
            )
        for _ in range(WARM):
            for worker in workers.values():
                worker.ask("step")
        taken: dict[str, list[list[float]]] = {name: [] for name in workers}
        for number in range(steps):
            order = list(workers) if number % 2 else list(workers)[::-1]
            for name in order:
                answer = workers[name].ask("step")
                taken[name].append([answer[part] for part in PARTS])
    full = np.array(taken["full"])
    print(f"\n{workload.name}: {np.median(full[:, 0]):.3f} s a step, {settings['threads']} threads")
    print(f"{'without':16} {'step':>6} (quartiles)      {'sampling':>8} {'update':>8}")
    for name in names:
        ratios = np.array(taken[name]) / full
        low, middle, high = np.quantile(ratios[:, 0], (0.25, 0.5, 0.75))
        parts = np.median(ratios[:, 1:], axis=0)
        print(f"{name:16} {middle:6.3f} ({low:.3f} to {high:.3f}) {parts[0]:8.3f} {parts[1]:8.3f}")


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--workload", nargs="+", default=["nano-short", "small"])
    parser.add_argument("--lora", action="store_true", help="train adapters")
    parser.add_argument("--without", nargs="+", default=list(REPLACEMENTS), choices=REPLACEMENTS)
    parser.add_argument("--steps", type=int, default=9)
    parser.add_argument("--threads", type=int)
    parser.add_argument("--worker", nargs=2, help=argparse.SUPPRESS)
    asked = parser.parse_args()
    if asked.worker:
        name, settings = asked.worker
        REPLACEMENTS.get(name, REPLACEMENTS["nothing"])()
        with suppress(ParentExited):
            run_turnwise.main(json.loads(settings))
        return
    for name in asked.workload:
        workload = WORKLOADS[name]
        workload = replace(workload, lora=workload.lora or asked.lora)
        measure(workload, asked.without, asked.steps, asked.threads)


if __name__ == "__main__":
    main()
