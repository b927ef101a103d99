"""Time of whole training steps of turnwise and of TRL, measured in alternation.

Provides `compare`, which also checks that both trainers compute the same gradient, and
`time_workload`, which times turnwise alone.
"""

from __future__ import annotations

import json
import sys
import tempfile
from collections.abc import Callable, Mapping, Sequence
from contextlib import ExitStack
from dataclasses import asdict, dataclass
from importlib.util import find_spec
from pathlib import Path
from statistics import median
from typing import Any

import torch
from safetensors.torch import load_file

from turnwise.bench.envs import words_config, words_of
from turnwise.bench.flops import Shape, distinct_operations, flat_operations
from turnwise.bench.worker import Worker
from turnwise.bench.workloads import Words, Workload, count_words, make_model, make_rows
from turnwise.errors import ConfigError, RunError, TrainingError
from turnwise.policies import default_threads

WARM = 2
AGREEMENT = 1e-4
"""Largest relative difference of the two first gradients."""
MAX_SLOWDOWN = 3.0
"""A variant whose first step takes longer than this times the best one is not timed again."""
PARTS = ("seconds", "sampling", "update")


@dataclass(frozen=True, kw_only=True, slots=True)
class StepResult:
    """The measurements of one workload.

    `ratio` is TRL's seconds over turnwise's (`theirs` over `ours`), the median over pairs of steps;
    `low` and `high` are its quartiles. All are given for each part of the step. The ratio is
    `counted`, the ratio of required operations, times `efficiency`, the ratio of operations per
    second. `gradient` is the relative difference of the two first gradients. `settings` are those
    of the fastest variant of TRL among those `tried` (None: its process ended, usually for lack of
    memory). `operations` are turnwise's per second.
    """

    work: str
    pairs: int
    ours: dict[str, float]
    theirs: dict[str, float]
    ratio: dict[str, float]
    low: dict[str, float]
    high: dict[str, float]
    counted: dict[str, float]
    efficiency: dict[str, float]
    operations: dict[str, float]
    gradient: float
    peak_mb: dict[str, float]
    settings: dict[str, Any]
    tried: dict[str, float | None]
    metrics: dict[str, float]

    def as_dict(self) -> dict[str, Any]:
        """Return everything as plain values."""
        return asdict(self)


def compare(
    workload: Workload,
    *,
    pairs: int,
    threads: int | None,
    checkpointing: bool,
    note: Callable[[str], None],
) -> StepResult:
    """Time `pairs` steps of each trainer on one workload in alternation, after `WARM` of each.

    Raises:
        ConfigError: if TRL is not installed.
        TrainingError: if the two first gradients differ, so the steps are not comparable.
        RunError: if turnwise's process ends, or TRL's in every variant.
    """
    if find_spec("trl") is None:
        raise ConfigError("TRL is not installed: pip install 'turnwise[bench]'")
    with tempfile.TemporaryDirectory() as scratch, ExitStack() as stack:
        folder = Path(scratch)
        settings = step_settings(workload, folder, threads, checkpointing)
        threads = int(settings["threads"])
        first = Path(settings["first"])
        ours = stack.enter_context(_worker("run_turnwise", settings, folder, threads))
        told = ours.ask("gradients")
        note(f"{workload.name}: {told['scorer']}; {told['engine']}")
        variant, tried = _fastest(workload, settings, folder, threads, note)
        theirs = stack.enter_context(_worker("run_trl", {**settings, **variant}, folder, threads))
        theirs.ask("gradients")
        gradient = gradient_difference(first)
        note(f"{workload.name}: first gradients differ by {gradient:.1e} of their length")
        if not gradient <= AGREEMENT:
            raise TrainingError(
                f"{workload.name}: the two first gradients differ by {gradient:.1e} "
                f"of their length, more than {AGREEMENT:.0e}: the steps are not comparable"
            )
        for _ in range(WARM):
            for worker in (ours, theirs):
                worker.ask("step")
        a, b = [], []
        for _ in range(pairs):
            a.append(ours.ask("step"))
            b.append(theirs.ask("step"))
            note(f"{workload.name}: {a[-1]['seconds']:.3f} s, TRL {b[-1]['seconds']:.3f} s")
        shape = Shape.of(folder / "model")
    return _result(workload, shape, a, b, gradient, dict(variant), tried)


def _fastest(
    workload: Workload,
    settings: Mapping[str, Any],
    folder: Path,
    threads: int,
    note: Callable[[str], None],
) -> tuple[Mapping[str, Any], dict[str, float | None]]:
    """Take two steps in every variant of TRL; return the fastest, and the second time of each.

    A variant whose first step takes more than `MAX_SLOWDOWN` times the best takes only that step.
    """
    tried: dict[str, float | None] = {}
    taken: list[tuple[float, Mapping[str, Any]]] = []
    failure: RunError | None = None
    for variant in _variants(workload):
        name = ", ".join(f"{key} {value}" for key, value in variant.items())
        try:
            with _worker("run_trl", {**settings, **variant}, folder, threads) as worker:
                seconds = worker.ask("step")["seconds"]
                if not taken or seconds <= MAX_SLOWDOWN * min(taken, key=_seconds)[0]:
                    seconds = worker.ask("step")["seconds"]
        except RunError as error:
            tried[name], failure = None, error
            note(f"{workload.name}: TRL by {name} ended")
            continue
        tried[name] = seconds
        taken.append((seconds, variant))
        note(f"{workload.name}: TRL by {name}: {seconds:.2f} s")
    if not taken:
        assert failure is not None
        raise failure
    return min(taken, key=_seconds)[1], tried


def _seconds(taken: tuple[float, Mapping[str, Any]]) -> float:
    return taken[0]


def time_workload(
    workload: Workload,
    *,
    steps: int,
    threads: int | None,
    checkpointing: bool,
    note: Callable[[str], None],
) -> dict[str, Any]:
    """Time `steps` steps of turnwise on one workload; return medians, and operations per second."""
    with tempfile.TemporaryDirectory() as scratch:
        folder = Path(scratch)
        with make_worker(workload, folder, threads, checkpointing) as worker:
            for _ in range(WARM):
                worker.ask("step")
            taken = [worker.ask("step") for _ in range(steps)]
        needed = distinct_operations(workload, Shape.of(folder / "model"))
    seconds = {part: median(step[part] for step in taken) for part in PARTS}
    note(f"{workload.name}: {seconds['seconds']:.3f} s")
    return {
        "work": workload.name,
        "steps": steps,
        "seconds": seconds,
        "operations": {part: getattr(needed, part) / seconds[part] for part in PARTS},
        "peak_mb": taken[-1]["peak_mb"],
        "metrics": taken[-1]["metrics"],
    }


def step_settings(
    workload: Workload, folder: Path, threads: int | None, checkpointing: bool
) -> dict[str, Any]:
    """Write a workload's model and prompts to `folder`; return the settings of both workers.

    Without `threads`, the number is that of a run of the model, or two if PyTorch chooses that.
    """
    model = make_model(workload, folder / "model")
    if threads is None:
        threads = default_threads(_parameters(model)) or 2
    words = count_words(workload, model)
    return {
        "workload": asdict(workload),
        "model": str(model),
        "rows": str(_prompts(workload, words, folder / "rows.jsonl")),
        "talk": asdict(words),
        "first": str(folder / "first.pt"),
        "threads": threads,
        "checkpointing": checkpointing,
    }


def _parameters(model: Path) -> int:
    """Return the number of parameters of a saved model."""
    files = [load_file(path) for path in model.glob("*.safetensors")]
    return sum(tensor.numel() for file in files for tensor in file.values())


def _prompts(workload: Workload, words: Words, file: Path) -> Path:
    """Write the first prompts of a workload; with many turns, those of the env."""
    if workload.turns == 1:
        return make_rows(workload, words, file)
    config = words_config(workload, words)
    said = [words_of(config, index, 0) for index in range(workload.prompts)]
    rows = [{"prompt": [{"role": "user", "content": text}]} for text in said]
    file.write_text("".join(json.dumps(row) + "\n" for row in rows))
    return file


def _variants(workload: Workload) -> list[dict[str, Any]]:
    """Return the variants of TRL: rows of a micro-batch, sampling method, allocator settings.

    `keep` applies turnwise's settings of the allocator to TRL's process; a user's process would not
    have them. With many turns, each turn computes its history again, as TRL's own loop does, or
    keys and values are `cached`.
    """
    variants = [{"micro_rows": n, "continuous": False, "keep": True} for n in workload.micro_rows]
    variants.append(variants[0] | {"keep": False})
    if workload.turns == 1:
        return [*variants, variants[0] | {"continuous": True}]
    return [variant | {"cached": cached} for variant in variants for cached in (True, False)]


def make_worker(
    workload: Workload, folder: Path, threads: int | None, checkpointing: bool = False
) -> Worker:
    """Write a workload's model and prompts to `folder`; return turnwise's worker for its steps."""
    settings = step_settings(workload, folder, threads, checkpointing)
    return _worker("run_turnwise", settings, folder, int(settings["threads"]))


def _worker(name: str, settings: Mapping[str, Any], folder: Path, threads: int) -> Worker:
    place = folder / name
    place.mkdir(exist_ok=True)
    command = [sys.executable, "-m", f"turnwise.bench.{name}", json.dumps(dict(settings))]
    return Worker(name, command, place, threads)


def gradient_difference(first: Path) -> float:
    """Return |TRL - turnwise| / |turnwise| over all tensors of the two saved gradients.

    Raises:
        TrainingError: if the trainers train different tensors.
    """
    ours = torch.load(first, weights_only=False)["gradients"]
    theirs = torch.load(f"{first}.trl")
    if ours.keys() != theirs.keys():
        other = sorted(ours.keys() ^ theirs.keys())
        raise TrainingError(
            f"the two trainers train different tensors: {other[0]} is one of {len(other)} that "
            "only one of them trains"
        )
    apart = sum(float((theirs[name] - ours[name]).square().sum()) for name in ours)
    whole = sum(float(value.square().sum()) for value in ours.values())
    return (apart / whole) ** 0.5


def _result(
    workload: Workload,
    shape: Shape,
    ours: Sequence[Mapping[str, Any]],
    theirs: Sequence[Mapping[str, Any]],
    gradient: float,
    settings: dict[str, Any],
    tried: dict[str, float | None],
) -> StepResult:
    ratios = {
        part: sorted(t[part] / o[part] for o, t in zip(ours, theirs, strict=True)) for part in PARTS
    }
    quarter = (len(ours) - 1) / 4
    needed = distinct_operations(workload, shape)
    demanded = flat_operations(workload, shape, cached=bool(settings.get("cached")))
    ratio = {part: median(values) for part, values in ratios.items()}
    counted = {part: getattr(demanded, part) / getattr(needed, part) for part in PARTS}
    seconds = {part: median(step[part] for step in ours) for part in PARTS}
    return StepResult(
        work=workload.name,
        pairs=len(ours),
        ours=seconds,
        theirs={part: median(step[part] for step in theirs) for part in PARTS},
        ratio=ratio,
        low={part: values[round(quarter)] for part, values in ratios.items()},
        high={part: values[round(3 * quarter)] for part, values in ratios.items()},
        counted=counted,
        efficiency={part: ratio[part] / counted[part] for part in PARTS},
        operations={part: getattr(needed, part) / seconds[part] for part in PARTS},
        gradient=gradient,
        peak_mb={"ours": ours[-1]["peak_mb"], "theirs": theirs[-1]["peak_mb"]},
        settings=settings,
        tried=tried,
        metrics=dict(ours[-1]["metrics"]),
    )
