"""Shared helpers of the commands: JSON output, tables, one-sentence errors (exit code 2)."""

from __future__ import annotations

import json
import sys
import textwrap
from collections.abc import Callable, Iterator, Sequence
from contextlib import contextmanager
from pathlib import Path
from typing import TYPE_CHECKING, Annotated, Any, NoReturn, TextIO

import typer
from rich.cells import cell_len
from rich.markup import escape
from rich.table import Table

from turnwise.errors import Interrupted, TurnwiseError
from turnwise.utils.console import LastingConsole, silence
from turnwise.utils.stuck_calls import ending_process
from turnwise.utils.text import printable

if TYPE_CHECKING:
    from turnwise.app.progress_bar import LiveProgress

Sets = Annotated[
    list[str] | None,
    typer.Option("--set", help="Override a setting, as section.key=value; may be repeated."),
]
AsJson = Annotated[bool, typer.Option("--json", help="Print one JSON object and nothing else.")]
HELP = {"help_option_names": ["-h", "--help"]}
"""Settings that add -h as a help option, also for subcommands."""
STOPPED = 130
"""The exit code of a command that was stopped by Ctrl-C or another signal."""
TEXT = 24
"""The smallest width of a cell with wrapped text."""
console = LastingConsole()
problems = LastingConsole(stderr=True)


@contextmanager
def _written() -> Iterator[None]:
    """Report an error of writing to standard output, such as a full disk, in one sentence."""
    try:
        yield
    except BrokenPipeError:
        raise  # the reader has closed the pipe, which typer handles
    except OSError as error:
        said = (error.strerror or str(error)).lower()
        silence(sys.stdout)  # the rest of its buffer would fail again when Python exits
        fail(f"the output cannot be written ({said}): send it elsewhere")


def print_json(value: Any) -> None:
    """Write `value` as one JSON object on standard output, and nothing else."""
    # Python has no stream for a descriptor that is closed, as by `>&-`
    stdout: TextIO | None = sys.stdout
    if stdout is None:
        fail("the output cannot be written (it is closed): send it elsewhere")
    with _written():
        stdout.write(json.dumps(value, indent=2) + "\n")
        stdout.flush()


def say(text: str) -> None:
    """Print a line without markup, colours or line breaks at the terminal's edge."""
    print_styled(text, highlight=False, markup=False, soft_wrap=True)


def tell(text: str) -> None:
    """Print a line like `say`, on standard error."""
    problems.print(text, highlight=False, markup=False, soft_wrap=True)


def look_at_run(run: Path, sets: Sequence[str]) -> None:
    """Refuse an invalid folder or invalid settings before slow packages are imported.

    Raises:
        TurnwiseError: if there is no run at `run`, or its recipe does not take `sets`.
    """
    from turnwise.recipe.schema import load_recipe
    from turnwise.runs import Run

    load_recipe(str(Run.open(run).recipe), sets, lambda text: None)


def print_styled(*args: Any, **styles: Any) -> None:
    """Print like rich's console."""
    with _written():
        console.print(*args, **styles)


def draw_table(
    columns: Sequence[str],
    rows: Sequence[Sequence[str]],
    *,
    title: str | None = None,
    wraps: str = "",
    numbers: Sequence[str] = (),
    bold: Callable[[Sequence[str]], bool] = lambda row: False,
) -> None:
    """Print a table without truncation; in a narrow console, one entry per line.

    Args:
        columns: the headings; the first column holds names.
        rows: the cells.
        title: stands above.
        wraps: the column of text that may wrap between words.
        numbers: the columns that are aligned to the right.
        bold: whether a row is set in bold.
    """
    columns = [printable(column) for column in columns]  # before they are measured
    rows = [[printable(cell) for cell in row] for row in rows]
    widths = [
        TEXT if column == wraps else max(map(cell_len, (column, *(row[i] for row in rows))))
        for i, column in enumerate(columns)
    ]
    if sum(widths) + 3 * len(columns) + 1 > console.width:
        _draw_entries(columns, rows, title, bold)
        return
    table = Table(title=None if title is None else escape(title))
    for column in columns:
        align = "right" if column in numbers else "left"
        table.add_column(column, justify=align, no_wrap=column != wraps)
    for row in rows:
        table.add_row(*map(escape, row), style="bold" if bold(row) else "")
    print_styled(table)


def _draw_entries(
    columns: Sequence[str],
    rows: Sequence[Sequence[str]],
    title: str | None,
    bold: Callable[[Sequence[str]], bool],
) -> None:
    """Print each row as its name and, below it, its other columns, wrapped between columns."""
    if title is not None:
        print_styled(title, style="italic", markup=False, soft_wrap=True)
    for row in rows:
        style = "bold" if bold(row) else "cyan"
        print_styled(row[0], style=style, highlight=False, markup=False, soft_wrap=True)
        cells = zip(columns[1:], row[1:], strict=True)
        parts = [f"{column} {text}" for column, text in cells if text]
        for line in _wrapped(parts, console.width - 2):
            say(f"  {line}")


def _wrapped(parts: Sequence[str], width: int) -> Iterator[str]:
    """Yield lines of whole parts; a part longer than a line is broken between words."""
    room, line = width - 1, ""  # for the semicolon at the end of a line
    for part in parts:
        joined = f"{line}; {part}" if line else part
        if cell_len(joined) <= room:
            line = joined
            continue
        if line:
            yield f"{line};"
        *whole, line = textwrap.wrap(part, room, break_long_words=False) or [""]
        yield from whole
    if line:
        yield line


def fail(message: str) -> NoReturn:
    """Print one sentence to standard error and exit with code 2."""
    problems.print(f"[bold red]error:[/] {escape(message)}", highlight=False, soft_wrap=True)
    raise typer.Exit(2)


@contextmanager
def watched(live: LiveProgress) -> Iterator[None]:
    """Draw progress in the block; a run that a signal stopped ends the command with code 130."""
    try:
        with live:
            yield
    except Interrupted as stopped:
        live.note(str(stopped))
        raise typer.Exit(STOPPED) from None


@contextmanager
def one_sentence() -> Iterator[None]:
    """Turn turnwise's own errors, and a disk's, into one sentence and exit code 2.

    Ctrl-C ends the command with code 130; a call into the user's code that cannot be interrupted,
    too, ends the process (`turnwise.utils.stuck_calls`). Bugs show themselves.
    """
    from turnwise.runs import DiskErrors

    try:
        with DiskErrors(), ending_process():
            yield
    except TurnwiseError as error:
        fail(str(error))
    except KeyboardInterrupt:
        problems.print("interrupted", highlight=False)
        raise typer.Exit(STOPPED) from None
