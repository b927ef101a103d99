"""The command `turnwise bench`: times of training steps, beside TRL and beside the machine's peak.

Provides the subcommands and their tables; `turnwise.bench` measures.
"""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from enum import StrEnum
from typing import TYPE_CHECKING, Annotated, Any

import typer

from turnwise.cli.options import console, draw_table, one_sentence, print_json, problems, say

if TYPE_CHECKING:
    from turnwise.bench.workloads import Workload

bench = typer.Typer(help="Time training steps: against TRL, and against the machine.")


class Against(StrEnum):
    """The trainer to compare with."""

    TRL = "trl"
    NOBODY = "nobody"


class Along(StrEnum):
    """The size that a series varies."""

    GROUP = "group"
    PROMPT = "prompt"
    TURNS = "turns"


Workloads = Annotated[
    list[str] | None,
    typer.Option(
        "--workload", help="The workloads to time; repeatable. `turnwise bench workloads` lists."
    ),
]
Threads = Annotated[int, typer.Option(min=1, help="Threads of each trainer.")]
OwnThreads = Annotated[
    int | None,
    typer.Option(min=1, help="Threads of each trainer; by default those of a training run."),
]
AsJson = Annotated[bool, typer.Option("--json", help="Print one JSON object and nothing else.")]


@bench.command()
def workloads(as_json: AsJson = False) -> None:
    """List the workloads that can be timed."""
    from dataclasses import asdict

    from turnwise.bench.workloads import WORKLOADS

    if as_json:
        print_json([asdict(workload) for workload in WORKLOADS.values()])
        return
    columns = ("workload", "model", "prompts x group", "prompt", "completion", "turns", "goal")
    rows: list[tuple[str, ...]] = []
    for workload in WORKLOADS.values():
        rows.append(
            (
                workload.name,
                workload.model + (", LoRA" if workload.lora else ""),
                f"{workload.prompts} x {workload.group}",
                str(workload.prompt_tokens),
                str(workload.completion_tokens),
                str(workload.turns),
                "" if workload.goal is None else f"{workload.goal:g}x",
            )
        )
    draw_table(columns, rows)


@bench.command()
def step(
    workloads: Workloads = None,
    against: Annotated[Against, typer.Option(help="The trainer to compare with.")] = Against.TRL,
    steps: Annotated[int, typer.Option(min=1, help="Timed steps of each.")] = 7,
    threads: OwnThreads = None,
    checkpointing: Annotated[
        bool, typer.Option(help="Compute activations again in the backward pass, on both sides.")
    ] = False,
    as_json: AsJson = False,
) -> None:
    """Time whole GRPO steps in alternation with TRL's, at equal mathematics."""
    note = _noter(as_json)
    found: list[dict[str, Any]] = []
    with one_sentence():
        chosen = _chosen(workloads or ["nano-short"])
        from turnwise.bench.step import compare, time_workload

        for workload in chosen:
            if against is Against.TRL:
                result = compare(
                    workload, pairs=steps, threads=threads, checkpointing=checkpointing, note=note
                )
                found.append(result.as_dict())
            else:
                found.append(
                    time_workload(
                        workload,
                        steps=steps,
                        threads=threads,
                        checkpointing=checkpointing,
                        note=note,
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
    workloads: Workloads = None,
    steps: Annotated[int, typer.Option(min=1, help="Timed steps of each workload.")] = 5,
    threads: Threads = 2,
    as_json: AsJson = False,
) -> None:
    """Measure the peaks of the machine and the share of them that a step uses."""
    from dataclasses import asdict

    note = _noter(as_json)
    with one_sentence():
        chosen = _chosen(workloads or ["nano-short", "small"])
        from turnwise.bench.roofline import measure
        from turnwise.bench.step import time_workload

        peaks = measure("cpu", threads)
        found = [
            time_workload(workload, steps=steps, threads=threads, checkpointing=False, note=note)
            for workload in chosen
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
        list[Along] | None, typer.Option(help="The quantities to vary; repeatable; all by default.")
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


def _chosen(names: Sequence[str]) -> list[Workload]:
    from turnwise.bench.workloads import WORKLOADS
    from turnwise.errors import unknown_name

    for name in names:
        if name not in WORKLOADS:
            raise unknown_name("workload", name, WORKLOADS)
    return [WORKLOADS[name] for name in names]


def _draw_comparisons(found: Sequence[Mapping[str, Any]]) -> None:
    columns = ("workload", "part", "ours, s", "TRL, s", "ratio", "quartiles", "= counted", "x rate")
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
    columns = ("workload", "part", "seconds", "billion operations a second", *["share"] * shared)
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
