"""`turnwise bench`: how fast a training step is, against TRL's and against the machine.

Owns the tables. What is measured is `turnwise.bench`'s.
"""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from enum import StrEnum
from typing import TYPE_CHECKING, Annotated, Any

import typer

from turnwise.cli.options import console, draw_table, one_sentence, print_json, problems, say

if TYPE_CHECKING:
    from turnwise.bench.works import Work

bench = typer.Typer(help="Time training steps: against TRL, and against the machine.")


class Against(StrEnum):
    """Whom to be timed against."""

    TRL = "trl"
    NOBODY = "nobody"


class Along(StrEnum):
    """What grows."""

    GROUP = "group"
    PROMPT = "prompt"
    TURNS = "turns"


Works = Annotated[
    list[str] | None,
    typer.Option("--work", help="What to time; may be repeated. `turnwise bench works` lists."),
]
Threads = Annotated[int, typer.Option(min=1, help="Threads of each trainer.")]
OwnThreads = Annotated[
    int | None,
    typer.Option(min=1, help="Threads of each trainer; what a run takes, if not given."),
]
AsJson = Annotated[bool, typer.Option("--json", help="Print one JSON object and nothing else.")]


@bench.command()
def works(as_json: AsJson = False) -> None:
    """List what can be timed."""
    from dataclasses import asdict

    from turnwise.bench.works import WORKS

    if as_json:
        print_json([asdict(work) for work in WORKS.values()])
        return
    columns = ("work", "model", "prompts x group", "prompt", "completion", "turns", "goal")
    rows: list[tuple[str, ...]] = []
    for work in WORKS.values():
        rows.append(
            (
                work.name,
                work.model + (", LoRA" if work.lora else ""),
                f"{work.prompts} x {work.group}",
                str(work.prompt_tokens),
                str(work.completion_tokens),
                str(work.turns),
                "" if work.goal is None else f"{work.goal:g}x",
            )
        )
    draw_table(columns, rows)


@bench.command()
def step(
    works: Works = None,
    against: Annotated[Against, typer.Option(help="Whom to be timed against.")] = Against.TRL,
    steps: Annotated[int, typer.Option(min=1, help="Timed steps of each.")] = 7,
    threads: OwnThreads = None,
    checkpointing: Annotated[
        bool, typer.Option(help="Compute activations again in the backward pass, on both sides.")
    ] = False,
    as_json: AsJson = False,
) -> None:
    """Time whole GRPO steps, turn about with TRL at equal mathematics."""
    note = _noter(as_json)
    found: list[dict[str, Any]] = []
    with one_sentence():
        chosen = _chosen(works or ["nano-short"])
        from turnwise.bench.step import alone, compare

        for work in chosen:
            if against is Against.TRL:
                result = compare(
                    work, pairs=steps, threads=threads, checkpointing=checkpointing, note=note
                )
                found.append(result.as_dict())
            else:
                found.append(
                    alone(
                        work, steps=steps, threads=threads, checkpointing=checkpointing, note=note
                    )
                )
    if as_json:
        print_json(found)
    elif against is Against.TRL:
        _draw_comparisons(found)
    else:
        _draw_alone(found)


@bench.command()
def roofline(
    works: Works = None,
    steps: Annotated[int, typer.Option(min=1, help="Timed steps of each work.")] = 5,
    threads: Threads = 2,
    as_json: AsJson = False,
) -> None:
    """Measure what the machine can do, and the share of it that a step uses."""
    from dataclasses import asdict

    note = _noter(as_json)
    with one_sentence():
        chosen = _chosen(works or ["nano-short", "small"])
        from turnwise.bench.roofline import measure
        from turnwise.bench.step import alone

        peaks = measure("cpu", threads)
        found = [
            alone(work, steps=steps, threads=threads, checkpointing=False, note=note)
            for work in chosen
        ]
    for result in found:
        rates = result["operations"]
        result["share_of_peak"] = {k: v / peaks.operations["float32"] for k, v in rates.items()}
    if as_json:
        print_json({"peaks": asdict(peaks), "works": found})
        return
    for name, rate in peaks.operations.items():
        say(f"{name}: {rate / 1e9:.0f} billion operations a second, {threads} threads")
    say(f"memory: {peaks.bandwidth / 1e9:.0f} GB a second, read and written")
    _draw_alone(found)


@bench.command()
def growth(
    along: Annotated[
        list[Along] | None, typer.Option(help="What grows; may be repeated; all by default.")
    ] = None,
    model: Annotated[str, typer.Option(help="The model: a nano preset.")] = "nano",
    steps: Annotated[int, typer.Option(min=1, help="Timed steps of each size.")] = 5,
    threads: OwnThreads = None,
    as_json: AsJson = False,
) -> None:
    """Measure how the time of a token grows with group size, prompt and turns."""
    from dataclasses import asdict

    from turnwise.policies import nano_preset

    note = _noter(as_json)
    with one_sentence():
        nano_preset(model)
        from turnwise.bench.growth import grow

        found = [
            row
            for series in along or list(Along)
            for row in grow(series, steps=steps, threads=threads, model=model, note=note)
        ]
    if as_json:
        print_json([asdict(row) for row in found])
        return
    columns = ("size", "part", "tokens", "microseconds a token", "growth", "of operations")
    rows: list[tuple[str, ...]] = []
    for row in found:
        for part, seconds in row.seconds.items():
            rows.append(
                (
                    row.work,
                    "step" if part == "seconds" else part,
                    str(row.tokens),
                    f"{seconds * 1e6:.1f}",
                    f"{row.growth[part]:.2f}",
                    f"{row.counted[part]:.2f}",
                )
            )
    draw_table(columns, rows)


def _noter(as_json: bool) -> Callable[[str], None]:
    where = problems if as_json else console

    def note(text: str) -> None:
        where.print(text, style="dim", highlight=False, markup=False, soft_wrap=True)

    return note


def _chosen(names: Sequence[str]) -> list[Work]:
    from turnwise.bench.works import WORKS
    from turnwise.errors import unknown_name

    for name in names:
        if name not in WORKS:
            raise unknown_name("work", name, WORKS)
    return [WORKS[name] for name in names]


def _draw_comparisons(found: Sequence[Mapping[str, Any]]) -> None:
    columns = ("work", "part", "ours, s", "TRL, s", "ratio", "quartiles", "= counted", "x rate")
    rows: list[tuple[str, ...]] = []
    for result in found:
        for part in result["ratio"]:
            rows.append(
                (
                    result["work"],
                    "step" if part == "seconds" else part,
                    f"{result['ours'][part]:.3f}",
                    f"{result['theirs'][part]:.3f}",
                    f"{result['ratio'][part]:.2f}x",
                    f"{result['low'][part]:.2f} to {result['high'][part]:.2f}",
                    f"{result['counted'][part]:.2f}",
                    f"{result['efficiency'][part]:.2f}",
                )
            )
    draw_table(columns, rows)
    for result in found:
        peak = result["peak_mb"]
        say(
            f"{result['work']}: first gradients differ by {result['gradient']:.1e} of their length;"
            f" peak memory {peak['ours']:.0f} MB, TRL's {peak['theirs']:.0f} MB; TRL with "
            + ", ".join(f"{key} {value}" for key, value in result["settings"].items())
        )


def _draw_alone(found: Sequence[Mapping[str, Any]]) -> None:
    shared = bool(found) and "share_of_peak" in found[0]
    columns = ("work", "part", "seconds", "billion operations a second", *["share"] * shared)
    rows: list[tuple[str, ...]] = []
    for result in found:
        for part, seconds in result["seconds"].items():
            share = [f"{result['share_of_peak'][part]:.2f}"] if shared else []
            rows.append(
                (
                    result["work"],
                    "step" if part == "seconds" else part,
                    f"{seconds:.3f}",
                    f"{result['operations'][part] / 1e9:.0f}",
                    *share,
                )
            )
    draw_table(columns, rows)
