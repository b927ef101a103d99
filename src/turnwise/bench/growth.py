"""How the cost of a token grows with group size, prompt and turns: it should not.

Owns the three series and their measurement. What differs along a series is what is named. Attention
to what came before is counted apart: a token with a longer past has more to do.
"""

from __future__ import annotations

import tempfile
from collections.abc import Callable
from contextlib import ExitStack
from dataclasses import dataclass, replace
from pathlib import Path
from statistics import median

from turnwise.bench.counting import Shape, distinct, distinct_tokens
from turnwise.bench.step import PARTS, WARM, make_side
from turnwise.bench.works import Work

BASE = Work(
    name="",
    model="nano",
    prompts=8,
    group=8,
    prompt_tokens=256,
    completion_tokens=32,
)


def _work(along: str, size: int) -> Work:
    name = f"{along} {size}"
    if along == "group":
        return replace(BASE, name=name, group=size)
    if along == "prompt":
        return replace(BASE, name=name, prompt_tokens=size)
    return replace(
        BASE, name=name, prompt_tokens=200, completion_tokens=20, observed_tokens=40, turns=size
    )


SERIES = {
    "group": [_work("group", size) for size in (4, 16, 64)],
    "prompt": [_work("prompt", size) for size in (64, 256, 1024, 2048)],
    "turns": [_work("turns", size) for size in (1, 10, 40)],
}


@dataclass(frozen=True, kw_only=True, slots=True)
class Growth:
    """One size of a series; times and operations are a distinct token's, by part of the step.

    `seconds` are medians; `growth` is their ratio to those of the series' first size, and `counted`
    that of operations, which attention to a longer past makes more.
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
    """Time `steps` steps of every size of a series, turn about.

    Raises:
        RunError: if a process ends.
    """
    works = [replace(work, model=model) for work in SERIES[along]]
    with tempfile.TemporaryDirectory() as scratch, ExitStack() as stack:
        sides, shapes = [], []
        for number, work in enumerate(works):
            folder = Path(scratch) / str(number)
            folder.mkdir()
            sides.append(stack.enter_context(make_side(work, folder, threads)))
            shapes.append(Shape.of(folder / "model"))
        for side in sides * WARM:
            side.ask("step")
        taken = []
        for number in range(steps):
            taken.append([side.ask("step") for side in sides])
            note(f"{along}: round {number + 1} of {steps}")
    found: list[Growth] = []
    first: tuple[dict[str, float], dict[str, float]] | None = None
    for number, (work, shape) in enumerate(zip(works, shapes, strict=True)):
        tokens, needed = distinct_tokens(work), distinct(work, shape)
        of_size = [answers[number] for answers in taken]
        seconds = {part: median(step[part] for step in of_size) / tokens for part in PARTS}
        operations = {part: getattr(needed, part) / tokens for part in PARTS}
        first = first or (seconds, operations)
        found.append(
            Growth(
                along=along,
                work=work.name,
                tokens=tokens,
                seconds=seconds,
                growth={part: seconds[part] / first[0][part] for part in PARTS},
                counted={part: operations[part] / first[1][part] for part in PARTS},
                peak_mb=max(step["peak_mb"] for step in of_size),
            )
        )
    return found
