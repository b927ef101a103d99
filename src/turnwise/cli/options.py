"""Shared pieces of the command line: JSON output and one-sentence errors with exit code 2."""

from __future__ import annotations

import json
import sys
from collections.abc import Iterator
from contextlib import contextmanager
from typing import Any, NoReturn

import typer
from rich.console import Console

from turnwise.errors import TurnwiseError

console = Console()
problems = Console(stderr=True)


def print_json(value: Any) -> None:
    """Write `value` as one JSON object on standard output, and nothing else."""
    sys.stdout.write(json.dumps(value, indent=2) + "\n")


def say(text: str) -> None:
    """Write a line as it is: no markup, no colours, not broken at the terminal's edge."""
    console.print(text, highlight=False, markup=False, soft_wrap=True)


def fail(message: str) -> NoReturn:
    """Say one sentence on standard error and exit with code 2."""
    problems.print(f"[bold red]error:[/] {message}", highlight=False, soft_wrap=True)
    raise typer.Exit(2)


@contextmanager
def one_sentence() -> Iterator[None]:
    """Turn turnwise's own errors, and a disk's, into one sentence and exit code 2.

    Bugs show themselves.
    """
    from turnwise.runs import DiskTrouble

    try:
        with DiskTrouble():
            yield
    except TurnwiseError as error:
        fail(str(error).replace("[", "\\["))
