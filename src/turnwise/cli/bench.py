"""The command `turnwise bench`: times of training steps, beside TRL and beside the machine's peak.

Provides the subcommands and their tables; `turnwise.bench` measures.
"""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from enum import StrEnum
from typing import TYPE_CHECKING, Annotated, Any

import typer

from turnwise.bench.peers import Against, describe
from turnwise.cli.options import (
    AsJson,
    console,
    draw_table,
    one_sentence,
    print_json,
    problems,
    say,
)

if TYPE_CHECKING:
    from turnwise.bench.workloads import Workload

bench = typer.Typer(help="Time training steps: against TRL, and against the machine.")


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


@bench.command()
def workloads(as_json: AsJson = False) -> None:
    """List the workloads that can be timed."""
    from dataclasses import asdict

    from turnwise.bench.workloads import WORKLOADS

    if as_json:
        print_json([asdict(workload) for workload in WORKLOADS.values()])
        return
    columns = ("workload", "model", "prompts x group", "prompt", "completion", "turns", "observed")
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
                _observed(workload),
                "" if workload.goal is None else f"{workload.goal:g}x",
            )
        )
    draw_table((*columns, "goal"), rows)


@bench.command()
def step(
    workloads: Workloads = None,
    against: Annotated[
        Against,
        typer.Option(
            help="TRL tuned in every way known, as its documentation starts it (with torch's own "
            "number of threads), both, or nobody."
        ),
    ] = Against.BOTH,
    steps: Annotated[int, typer.Option(min=1, help="Timed steps of each.")] = 7,
    threads: OwnThreads = None,
    checkpointing: Annotated[
        bool,
        typer.Option(
            help="Compute activations again in the backward pass, on both sides. TRL as documented "
            "always does."
        ),
    ] = False,
    as_json: AsJson = False,
) -> None:
    """Time whole GRPO steps in alternation with TRL's."""
    note = _noter(as_json)
    found: list[dict[str, Any]] = []
    with one_sentence():
        chosen = _chosen(workloads or ["nano-short"])
        from turnwise.bench.step import compare, time_workload

        for workload in chosen:
            if against is not Against.NOBODY:
                results = compare(
                    workload,
                    against=against,
                    pairs=steps,
                    threads=threads,
                    checkpointing=checkpointing,
                    note=note,
                )
                found += [result.as_dict() for result in results]
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
    elif against is Against.NOBODY:
        _draw_alone(found)
    else:
        _draw_comparisons(found)


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


def _observed(workload: Workload) -> str:
    """Return the tokens of an observation in words; none with one turn."""
    least, most = workload.observed_tokens, workload.observed_tokens + workload.observed_spread
    if workload.turns == 1:
        return ""
    return str(least) if least == most else f"{least} to {most}"


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
    columns = ("workload", "TRL", "part", "ours, s", "TRL, s", "ratio", "quartiles")
    rows: list[tuple[str, ...]] = []
    for result in found:
        for part in result["ratio"]:
            rows.append(
                (
                    result["work"],
                    result["against"],
                    "step" if part == "seconds" else part,
                    f"{result['ours'][part]:.3f}",
                    f"{result['theirs'][part]:.3f}",
                    f"{result['ratio'][part]:.2f}x",
                    f"{result['low'][part]:.2f} to {result['high'][part]:.2f}",
                    f"{result['counted'][part]:.2f}",
                    f"{result['efficiency'][part]:.2f}",
                )
            )
    draw_table((*columns, "= counted", "x rate"), rows)
    for result in found:
        peak, threads, counts = result["peak_mb"], result["threads"], result["counts"]
        say(
            f"{result['work']}, TRL {result['against']}: {describe(result['settings'])}; threads: "
            f"TRL's {threads['theirs']}, turnwise's {threads['ours']}; "
            f"first gradients differ by {result['gradient']:.1e} of their length; "
            f"peak memory: TRL's {peak['theirs']:.0f} MB, turnwise's {peak['ours']:.0f} MB"
        )
        said = [
            f"{_counts(counts['theirs'][part])} instead of {_counts(counts['ours'][part])} "
            f"in {'sampling' if part == 'sampling' else 'the update'}"
            for part in counts["ours"]
        ]
        say(f"  its layout computes {', '.join(said)}")


def _counts(counts: Mapping[str, float]) -> str:
    return f"{counts['tokens']:,.0f} tokens ({counts['pairs'] / 1e6:,.1f} million pairs)"


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
