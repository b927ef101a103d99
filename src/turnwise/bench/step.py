"""Time of whole training steps of turnwise and of TRL, measured in alternation.

Provides `compare`, which also checks that both trainers compute the same gradient, and
`time_workload`, which times turnwise alone. `peers` has the settings of TRL.
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
from turnwise.bench.flops import Shape, distinct_count, distinct_operations, flat_count
from turnwise.bench.peers import Against, Peer, Rollout, describe, peers_of
from turnwise.bench.worker import Worker
from turnwise.bench.workloads import (
    Words,
    Workload,
    count_words,
    make_model,
    make_rows,
    system_message,
)
from turnwise.errors import ConfigError, RunError, TrainingError
from turnwise.policies import default_threads

WARM = 2
AGREEMENT = 1e-4
"""Largest relative difference of the two first gradients."""
MAX_SLOWDOWN = 3.0
"""A variant whose first step takes longer than this times the best one is not timed again."""
PARTS = ("seconds", "sampling", "update")
Answer = Mapping[str, Any]
"""A worker's answer to one step: the seconds of its parts, and peak memory."""


@dataclass(frozen=True, kw_only=True, slots=True)
class StepResult:
    """The measurements of one workload beside TRL in one of its settings, `against`.

    `ratio` is TRL's seconds over turnwise's (`theirs` over `ours`), the median over pairs of steps;
    `low` and `high` are its quartiles. All are given for each part of the step. The ratio is
    `counted`, the ratio of required operations, times `efficiency`, the ratio of operations per
    second. `counts` are the tokens and query-key pairs of a layer that each side computes, by part
    of the step. `gradient` is the relative difference of the two first gradients. `settings` are
    those of the fastest variant of TRL among those `tried` (None: its process ended, usually for
    lack of memory). `operations` are turnwise's per second.
    """

    work: str
    against: str
    pairs: int
    ours: dict[str, float]
    theirs: dict[str, float]
    ratio: dict[str, float]
    low: dict[str, float]
    high: dict[str, float]
    counted: dict[str, float]
    counts: dict[str, dict[str, dict[str, float]]]
    efficiency: dict[str, float]
    operations: dict[str, float]
    gradient: float
    peak_mb: dict[str, float]
    threads: dict[str, int]
    settings: dict[str, Any]
    tried: dict[str, float | None]
    metrics: dict[str, float]

    def as_dict(self) -> dict[str, Any]:
        """Return everything as plain values."""
        return asdict(self)


def compare(
    workload: Workload,
    *,
    against: Against,
    pairs: int,
    threads: int | None,
    checkpointing: bool,
    note: Callable[[str], None],
) -> list[StepResult]:
    """Time `pairs` steps of turnwise in alternation with those of each peer, after `WARM` of each.

    Raises:
        ConfigError: if TRL is not installed.
        TrainingError: if the two first gradients differ, so the steps are not comparable.
        RunError: if turnwise's process ends, or TRL's in every variant.
    """
    if find_spec("trl") is None:
        raise ConfigError("TRL is not installed: pip install 'turnwise[bench]'")
    found: list[StepResult] = []
    with tempfile.TemporaryDirectory() as scratch, ExitStack() as stack:
        folder = Path(scratch)
        settings = step_settings(workload, folder, threads, checkpointing)
        ours = stack.enter_context(
            _worker("run_turnwise", settings, folder, int(settings["threads"]))
        )
        told = ours.ask("gradients")
        note(f"{workload.name}: {told['scorer']}; {told['engine']}")
        shape = Shape.of(folder / "model")
        tuned: Mapping[str, Any] | None = None
        for peer in peers_of(workload, against):
            variants = peer.variants(workload)
            if tuned and not peer.documented:  # the rollout has no part in the update's settings
                variants = [{**tuned, "rollout": peer.rollout}]
            variant, tried = _fastest(workload, settings, folder, variants, note)
            tuned = tuned if peer.documented else variant
            with _trl_worker({**settings, **variant}, folder) as theirs:
                theirs_told = theirs.ask("gradients")
                gradient = gradient_difference(Path(settings["first"]))
                _check_gradient(workload, peer, gradient, note)
                taken = _alternate(workload, peer, ours, theirs, pairs, note)
            counts = {"ours": int(settings["threads"]), "theirs": int(theirs_told["threads"])}
            found.append(
                _result(workload, peer, shape, taken, gradient, dict(variant), tried, counts)
            )
    return found


def _check_gradient(
    workload: Workload, peer: Peer, gradient: float, note: Callable[[str], None]
) -> None:
    """Report the difference of the two first gradients; refuse one that is not rounding.

    As documented, TRL computes in bfloat16, whose rounding is larger than any limit for float32.
    """
    note(f"{workload.name}: {peer.name}: first gradients differ by {gradient:.1e} of their length")
    if not peer.documented and not gradient <= AGREEMENT:
        raise TrainingError(
            f"{workload.name}: the two first gradients differ by {gradient:.1e} "
            f"of their length, more than {AGREEMENT:.0e}: the steps are not comparable"
        )


def _alternate(
    workload: Workload,
    peer: Peer,
    ours: Worker,
    theirs: Worker,
    pairs: int,
    note: Callable[[str], None],
) -> list[tuple[Answer, Answer]]:
    """Return the answers to `pairs` steps of both trainers in turn, after untimed ones."""
    for _ in range(WARM):
        for worker in (ours, theirs):
            worker.ask("step")
    taken: list[tuple[Answer, Answer]] = []
    for _ in range(pairs):
        a, b = ours.ask("step"), theirs.ask("step")
        taken.append((a, b))
        note(f"{workload.name}: {a['seconds']:.3f} s, TRL {peer.name} {b['seconds']:.3f} s")
    return taken


def _fastest(
    workload: Workload,
    settings: Mapping[str, Any],
    folder: Path,
    variants: Sequence[Mapping[str, Any]],
    note: Callable[[str], None],
) -> tuple[Mapping[str, Any], dict[str, float | None]]:
    """Take two steps in every variant of TRL; return the fastest, and the second time of each.

    A variant whose first step takes more than `MAX_SLOWDOWN` times the best takes only that step. A
    single variant takes none.
    """
    tried: dict[str, float | None] = {}
    if len(variants) == 1:
        return variants[0], tried
    taken: list[tuple[float, Mapping[str, Any]]] = []
    failure: RunError | None = None
    for variant in variants:
        name = describe(variant)
        try:
            with _trl_worker({**settings, **variant}, folder) as worker:
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
    start = [{"role": "system", "content": system_message(words.system)}] if words.system else []
    said = [words_of(config, index, 0) for index in range(workload.prompts)]
    rows = [
        {"prompt": [*start, {"role": "user", "content": text}], "index": index}
        for index, text in enumerate(said)
    ]
    file.write_text("".join(json.dumps(row) + "\n" for row in rows))
    return file


def make_worker(
    workload: Workload, folder: Path, threads: int | None, checkpointing: bool = False
) -> Worker:
    """Write a workload's model and prompts to `folder`; return turnwise's worker for its steps."""
    settings = step_settings(workload, folder, threads, checkpointing)
    return _worker("run_turnwise", settings, folder, int(settings["threads"]))


def _trl_worker(settings: Mapping[str, Any], folder: Path) -> Worker:
    """Return TRL's worker; as documented, torch chooses the number of threads."""
    threads = None if settings["documented"] else int(settings["threads"])
    return _worker("run_trl", settings, folder, threads)


def _worker(name: str, settings: Mapping[str, Any], folder: Path, threads: int | None) -> Worker:
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
    peer: Peer,
    shape: Shape,
    taken: Sequence[tuple[Answer, Answer]],
    gradient: float,
    settings: dict[str, Any],
    tried: dict[str, float | None],
    threads: dict[str, int],
) -> StepResult:
    ratios = {part: sorted(b[part] / a[part] for a, b in taken) for part in PARTS}
    quarter = (len(taken) - 1) / 4
    cached = peer.rollout is Rollout.KEPT
    counts = {"ours": distinct_count(workload), "theirs": flat_count(workload, cached=cached)}
    needed, demanded = (c.operations(shape, frozen=workload.lora) for c in counts.values())
    ratio = {part: median(values) for part, values in ratios.items()}
    counted = {part: getattr(demanded, part) / getattr(needed, part) for part in PARTS}
    seconds = {part: median(ours[part] for ours, _ in taken) for part in PARTS}
    ours, theirs = taken[-1]
    return StepResult(
        work=workload.name,
        against=peer.name,
        pairs=len(taken),
        ours=seconds,
        theirs={part: median(step[part] for _, step in taken) for part in PARTS},
        ratio=ratio,
        low={part: values[round(quarter)] for part, values in ratios.items()},
        high={part: values[round(3 * quarter)] for part, values in ratios.items()},
        counted=counted,
        counts={
            side: {
                part: {"tokens": each.tokens, "pairs": each.pairs}
                for part, each in (("sampling", count.sampling), ("update", count.update))
            }
            for side, count in counts.items()
        },
        efficiency={part: ratio[part] / counted[part] for part in PARTS},
        operations={part: getattr(needed, part) / seconds[part] for part in PARTS},
        gradient=gradient,
        peak_mb={"ours": ours["peak_mb"], "theirs": theirs["peak_mb"]},
        threads=threads,
        settings=settings,
        tried=tried,
        metrics=dict(ours["metrics"]),
    )
