"""The commands `turnwise card` and `turnwise push`: a run as a folder, and its upload."""

from __future__ import annotations

from pathlib import Path
from typing import Annotated

import typer

from turnwise.cli.options import one_sentence, say


def card(
    run: Annotated[Path, typer.Argument(help="The folder of a finished run.")],
    out: Annotated[
        Path | None,
        typer.Option(help="The folder to write; must not exist. `card` in the run by default."),
    ] = None,
    license: Annotated[
        str,
        typer.Option(
            help="The license of the weights by its name on the hub, such as apache-2.0; left open "
            "by default."
        ),
    ] = "",
) -> None:
    """Write a run's weights, tokenizer and model card as a folder for the Hugging Face hub."""
    with one_sentence():
        from turnwise.app.card import published_files, write_card

        folder = write_card(run, out, license=license)
        for line in listed(folder, published_files(folder)):
            say(line)
    say(f"model card: {folder / 'README.md'}")


def listed(folder: Path, files: list[Path]) -> list[str]:
    """Return the names of files with their sizes, as lines."""
    return [f"{(folder / file).stat().st_size:>13,}  {file}" for file in files]
