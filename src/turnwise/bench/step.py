"""Whole training steps of turnwise and of TRL, turn about: who is faster, and why.

Owns the interleaving and what is made of the figures. Which work is timed is `works`'s, the two
trainers are `ours` and `theirs`, what the shapes demand is `counting`'s.
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

from turnwise.bench.counting import Shape, distinct, row_by_row
from turnwise.bench.side import Side
from turnwise.bench.works import Words, Work, count_words, make_model, make_rows
from turnwise.bench.worlds import talk_of, words_of
from turnwise.errors import ConfigError, RunError, TrainingError
from turnwise.policies import default_threads

WARM = 2
AGREEMENT = 1e-4
"""Largest difference of the two first gradients, as a share of their length."""
HOPELESS = 3.0
"""Times the best step that a way's first one may take and still be tried again, warm."""
PARTS = ("seconds", "sampling", "update")


@dataclass(frozen=True, kw_only=True, slots=True)
class StepResult:
    """What was measured of one work.

    `ratio` is TRL's seconds over ours, the median over pairs of steps, `low` and `high` its
    quartiles; by part of the step likewise. It is `counted`, the ratio of operations that the two
    ways of laying out a step demand, times `efficiency`, that of operations a second. `gradient` is
    the relative difference of the two first gradients; `settings` say how TRL was run, the fastest
    of those `tried` (None: it ended, mostly for want of memory). `operations` are a second's, of
    ours.
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
    work: Work,
    *,
    pairs: int,
    threads: int | None,
    checkpointing: bool,
    note: Callable[[str], None],
) -> StepResult:
    """Time `pairs` steps of each trainer on one work, turn about, after `WARM` of each.

    Raises:
        ConfigError: if TRL is not installed.
        TrainingError: if the two first gradients differ: then it is not the same mathematics.
        RunError: if our process ends, or TRL's in every way it is tried.
    """
    if find_spec("trl") is None:
        raise ConfigError("TRL is not installed: pip install 'turnwise[bench]'")
    with tempfile.TemporaryDirectory() as scratch, ExitStack() as stack:
        folder = Path(scratch)
        settings = _settings(work, folder, threads, checkpointing)
        threads = int(settings["threads"])
        first = Path(settings["first"])
        ours = stack.enter_context(_side("ours", settings, folder, threads))
        told = ours.ask("gradients")
        note(f"{work.name}: {told['scorer']}; {told['engine']}")
        way, tried = _fastest(work, settings, folder, threads, note)
        theirs = stack.enter_context(_side("theirs", {**settings, **way}, folder, threads))
        theirs.ask("gradients")
        gradient = gradient_difference(first)
        note(f"{work.name}: first gradients differ by {gradient:.1e} of their length")
        if not gradient <= AGREEMENT:
            raise TrainingError(
                f"{work.name}: the two first gradients differ by {gradient:.1e} of their length, "
                f"more than {AGREEMENT:.0e}: this is not the same step"
            )
        for _ in range(WARM):
            for side in (ours, theirs):
                side.ask("step")
        a, b = [], []
        for _ in range(pairs):
            a.append(ours.ask("step"))
            b.append(theirs.ask("step"))
            note(f"{work.name}: ours {a[-1]['seconds']:.3f} s, TRL {b[-1]['seconds']:.3f} s")
        shape = Shape.of(folder / "model")
    return _result(work, shape, a, b, gradient, dict(way), tried)


def _fastest(
    work: Work,
    settings: Mapping[str, Any],
    folder: Path,
    threads: int,
    note: Callable[[str], None],
) -> tuple[Mapping[str, Any], dict[str, float | None]]:
    """Take two steps by TRL in every way; return the fastest, and the second step of each.

    Where the first takes more than `HOPELESS` times the best, it is the only one.
    """
    tried: dict[str, float | None] = {}
    taken: list[tuple[float, Mapping[str, Any]]] = []
    failure: RunError | None = None
    for way in _ways(work):
        name = ", ".join(f"{key} {value}" for key, value in way.items())
        try:
            with _side("theirs", {**settings, **way}, folder, threads) as side:
                seconds = side.ask("step")["seconds"]
                if not taken or seconds <= HOPELESS * min(taken, key=_seconds)[0]:
                    seconds = side.ask("step")["seconds"]
        except RunError as error:
            tried[name], failure = None, error
            note(f"{work.name}: TRL by {name} ended")
            continue
        tried[name] = seconds
        taken.append((seconds, way))
        note(f"{work.name}: TRL by {name}: {seconds:.2f} s")
    if not taken:
        assert failure is not None
        raise failure
    return min(taken, key=_seconds)[1], tried


def _seconds(taken: tuple[float, Mapping[str, Any]]) -> float:
    return taken[0]


def alone(
    work: Work, *, steps: int, threads: int | None, checkpointing: bool, note: Callable[[str], None]
) -> dict[str, Any]:
    """Time `steps` of our steps on one work; return medians, and operations a second."""
    with tempfile.TemporaryDirectory() as scratch:
        folder = Path(scratch)
        with make_side(work, folder, threads, checkpointing) as side:
            for _ in range(WARM):
                side.ask("step")
            taken = [side.ask("step") for _ in range(steps)]
        needed = distinct(work, Shape.of(folder / "model"))
    seconds = {part: median(step[part] for step in taken) for part in PARTS}
    note(f"{work.name}: {seconds['seconds']:.3f} s")
    return {
        "work": work.name,
        "steps": steps,
        "seconds": seconds,
        "operations": {part: getattr(needed, part) / seconds[part] for part in PARTS},
        "peak_mb": taken[-1]["peak_mb"],
        "metrics": taken[-1]["work"],
    }


def _settings(work: Work, folder: Path, threads: int | None, checkpointing: bool) -> dict[str, Any]:
    """Make a work's model and prompts in `folder`; return what both sides are told.

    Without `threads`, as many as a run of such a model takes, or two where that is torch's choice.
    """
    model = make_model(work, folder / "model")
    if threads is None:
        threads = default_threads(_parameters(model)) or 2
    words = count_words(work, model)
    return {
        "work": asdict(work),
        "model": str(model),
        "rows": str(_prompts(work, words, folder / "rows.jsonl")),
        "talk": asdict(words),
        "first": str(folder / "first.pt"),
        "threads": threads,
        "checkpointing": checkpointing,
    }


def _parameters(model: Path) -> int:
    """Return how many numbers the weights of a saved model hold."""
    files = [load_file(path) for path in model.glob("*.safetensors")]
    return sum(tensor.numel() for file in files for tensor in file.values())


def _prompts(work: Work, words: Words, file: Path) -> Path:
    """Write the first prompts of a work: in many turns, those of the world."""
    if work.turns == 1:
        return make_rows(work, words, file)
    config = talk_of(work, words)
    said = [words_of(config, index, 0) for index in range(work.prompts)]
    rows = [{"prompt": [{"role": "user", "content": text}]} for text in said]
    file.write_text("".join(json.dumps(row) + "\n" for row in rows))
    return file


def _ways(work: Work) -> list[dict[str, Any]]:
    """Return how TRL is tried: rows of a micro-batch, how it samples, how memory is freed.

    `keep` gives its process the allocator's settings that turnwise makes for itself: a user's does
    not have them, but one who wants it to win would find them. In many turns a history is read
    anew every turn, as TRL's own loop does, or its keys and values are `cached`.
    """
    ways = [{"micro_rows": n, "continuous": False, "keep": True} for n in work.micro_rows]
    ways.append(ways[0] | {"keep": False})
    if work.turns == 1:
        return [*ways, ways[0] | {"continuous": True}]
    return [way | {"cached": cached} for way in ways for cached in (True, False)]


def make_side(work: Work, folder: Path, threads: int | None, checkpointing: bool = False) -> Side:
    """Make a work's model and prompts in `folder`, and our process that takes its steps."""
    settings = _settings(work, folder, threads, checkpointing)
    return _side("ours", settings, folder, int(settings["threads"]))


def _side(name: str, settings: Mapping[str, Any], folder: Path, threads: int) -> Side:
    place = folder / name
    place.mkdir(exist_ok=True)
    command = [sys.executable, "-m", f"turnwise.bench.{name}", json.dumps(dict(settings))]
    return Side(name, command, place, threads)


def gradient_difference(first: Path) -> float:
    """Return |theirs - ours| / |ours| over all tensors of the two saved gradients.

    Raises:
        TrainingError: if they are of other tensors.
    """
    ours = torch.load(first, weights_only=False)["gradients"]
    theirs = torch.load(f"{first}.theirs")
    if ours.keys() != theirs.keys():
        other = sorted(ours.keys() ^ theirs.keys())
        raise TrainingError(f"the two trainers train other tensors: {other[0]} and {len(other)}")
    apart = sum(float((theirs[name] - ours[name]).square().sum()) for name in ours)
    whole = sum(float(value.square().sum()) for value in ours.values())
    return (apart / whole) ** 0.5


def _result(
    work: Work,
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
    needed = distinct(work, shape)
    demanded = row_by_row(work, shape, cached=bool(settings.get("cached")))
    ratio = {part: median(values) for part, values in ratios.items()}
    counted = {part: getattr(demanded, part) / getattr(needed, part) for part in PARTS}
    seconds = {part: median(step[part] for step in ours) for part in PARTS}
    return StepResult(
        work=work.name,
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
        metrics=dict(ours[-1]["work"]),
    )
