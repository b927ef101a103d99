"""The command `turnwise sandbox`, which describes the isolation on this machine or runs a program.

Provides the subcommands; `turnwise.sandbox` runs the programs.
"""

from __future__ import annotations

import json
import time
from dataclasses import asdict
from pathlib import Path
from typing import Annotated, Any

import typer

from turnwise.cli.options import AsJson, one_sentence, print_json, say
from turnwise.errors import ConfigError, DataError
from turnwise.sandbox import Job, Limits, Sandbox
from turnwise.settings import parse
from turnwise.utils.text import printable

sandbox = typer.Typer(help="Run programs that a model wrote, and describe their isolation.")

Backend = Annotated[
    str,
    typer.Option(
        help="isolated, bubblewrap, namespaces, container, landlock (weaker) or subprocess (none)."
    ),
]
Preload = Annotated[
    list[str] | None, typer.Option(help="A module to import beforehand; may be repeated.")
]


@sandbox.command()
def check(
    backend: Backend = "isolated",
    workers: Annotated[
        int | None, typer.Option(min=1, help="Programs at once; one for each core if left out.")
    ] = None,
    preload: Preload = None,
    seconds: Annotated[float, typer.Option(min=0.1, help="How long to measure.")] = 2.0,
    as_json: AsJson = False,
) -> None:
    """Describe the isolation of programs on this machine, and measure programs per second."""
    with one_sentence(), _opened(backend, preload, workers) as box:
        began = time.perf_counter()
        box.start()
        started = time.perf_counter()
        job = Job(program="def double(x): return 2 * x", inputs=(4,), call="double")
        count = 0
        while (spent := time.perf_counter() - started) < seconds:
            count += sum(result.value == 8 for result in box.run_batch([job] * 50))
        found = {
            "backend": backend,
            "isolation": box.isolation,
            "promise": box.promise,
            "workers": box.config.at_once,
            "start_seconds": started - began,
            "programs_per_second": count / spent,
        }
    if as_json:
        print_json(found)
        return
    say(f"{backend}: {box.promise}")
    say(f"{found['workers']} workers, the first after {found['start_seconds']:.2f} s")
    say(f"{found['programs_per_second']:.0f} short programs a second")


@sandbox.command()
def run(
    file: Annotated[Path, typer.Argument(help="The program.")],
    call: Annotated[str, typer.Option(help="The function to call; a script if left out.")] = "",
    inputs: Annotated[
        str, typer.Option(help="Arguments as JSON: a list, or an object by name.")
    ] = "[]",
    limit: Annotated[
        list[str] | None, typer.Option(help="A limit, as cpu=0.5; may be repeated.")
    ] = None,
    backend: Backend = "isolated",
    preload: Preload = None,
    as_json: AsJson = False,
) -> None:
    """Run one program as training does, and print its result; exit code 1 for a failure."""
    from turnwise.recipe.schema import parse_override

    with one_sentence():
        if not file.is_file():
            raise DataError(f"no file at '{file}': give a program")
        limits = parse(Limits, dict(map(parse_override, limit or [])), "--limit")
        given = _arguments(inputs)
        with _opened(backend, preload, 1) as box:
            result = box.run(file.read_text(), given, limits, call=call)
    if as_json:
        print_json(asdict(result) | {"value": _shown(result.value)})
    else:
        for text in filter(None, (result.stdout, result.stderr)):
            say(text.rstrip("\n"))
        line = f" in line {result.line}" if result.line else ""
        failed = f"{result.failure}{line}: {result.message}"
        say(f"value: {_shown(result.value)}" if result.ok else failed)
        say(f"{result.cpu_seconds:.3f} s of CPU time, {result.wall_seconds:.3f} s by the clock")
    if not result.ok:
        raise typer.Exit(1)


def _shown(value: Any) -> str:
    """Return a program's value as text that any terminal can print."""
    try:
        return printable(repr(value).encode("utf-8", "backslashreplace").decode())
    except ValueError as cause:  # an integer with more digits than Python prints
        return f"a value that cannot be shown: {cause}"


def _opened(backend: str, preload: list[str] | None, workers: int | None) -> Sandbox:
    given: dict[str, Any] = {"backend": backend, "preload": preload or []}
    return Sandbox(None, **given | ({"workers": workers} if workers else {}))


def _arguments(text: str) -> list[Any] | dict[str, Any]:
    try:
        given = json.loads(text)
    except ValueError as cause:
        raise ConfigError(f"--inputs {text!r}: {cause}: give JSON, as '[1, \"a\"]'") from None
    if not isinstance(given, list | dict):
        raise ConfigError(f"--inputs {text!r}: give a list, or an object by name")
    return given
