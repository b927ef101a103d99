"""The cost of a token as group size, prompt or number of turns grow.

Provides `grow` and the three series. The cost per token should be constant, except for attention,
whose operations are counted separately because they grow with the length of the history.
"""

from __future__ import annotations

import tempfile
from collections.abc import Callable
from contextlib import ExitStack
from dataclasses import dataclass, replace
from pathlib import Path
from statistics import median

from turnwise.bench.flops import Shape, distinct_operations, distinct_tokens
from turnwise.bench.step import PARTS, WARM, make_worker
from turnwise.bench.workloads import Workload

BASE = Workload(
    name="",
    model="nano",
    prompts=8,
    group=8,
    prompt_tokens=256,
    completion_tokens=32,
)


def _workload(along: str, size: int) -> Workload:
    name = f"{along} {size}"
    if along == "group":
        return replace(BASE, name=name, group=size)
    if along == "prompt":
        return replace(BASE, name=name, prompt_tokens=size)
    return replace(
        BASE, name=name, prompt_tokens=200, completion_tokens=20, observed_tokens=40, turns=size
    )


SERIES = {
    "group": [_workload("group", size) for size in (4, 16, 64)],
    "prompt": [_workload("prompt", size) for size in (64, 256, 1024, 2048)],
    "turns": [_workload("turns", size) for size in (1, 10, 40)],
}


@dataclass(frozen=True, kw_only=True, slots=True)
class Growth:
    """One size of a series; times and operations are per distinct token, by part of the step.

    `seconds` are medians. `growth` is their ratio to those of the first size of the series, and
    `counted` is the same ratio of operations, which includes attention to a longer history.
    """

    along: str
    work: str
    tokens: int
    seconds: dict[str, float]
    growth: dict[str, float]
    counted: dict[str, float]
    peak_mb: float


def grow(
    along: str, *, steps: int, threads: int | None, model: str, note: Callable[[str], None]
) -> list[Growth]:
    """Time `steps` steps of every size of a series, in alternation.

    Raises:
        RunError: if a process ends early.
    """
    workloads = [replace(workload, model=model) for workload in SERIES[along]]
    with tempfile.TemporaryDirectory() as scratch, ExitStack() as stack:
        workers, shapes = [], []
        for number, workload in enumerate(workloads):
            folder = Path(scratch) / str(number)
            folder.mkdir()
            workers.append(stack.enter_context(make_worker(workload, folder, threads)))
            shapes.append(Shape.of(folder / "model"))
        for worker in workers * WARM:
            worker.ask("step")
        taken = []
        for number in range(steps):
            taken.append([worker.ask("step") for worker in workers])
            note(f"{along}: round {number + 1} of {steps}")
    found: list[Growth] = []
    first: tuple[dict[str, float], dict[str, float]] | None = None
    for number, (workload, shape) in enumerate(zip(workloads, shapes, strict=True)):
        tokens, needed = distinct_tokens(workload), distinct_operations(workload, shape)
        of_size = [answers[number] for answers in taken]
        seconds = {part: median(step[part] for step in of_size) / tokens for part in PARTS}
        operations = {part: getattr(needed, part) / tokens for part in PARTS}
        first = first or (seconds, operations)
        found.append(
            Growth(
                along=along,
                work=workload.name,
                tokens=tokens,
                seconds=seconds,
                growth={part: seconds[part] / first[0][part] for part in PARTS},
                counted={part: operations[part] / first[1][part] for part in PARTS},
                peak_mb=max(step["peak_mb"] for step in of_size),
            )
        )
    return found
