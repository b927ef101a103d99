"""The commands `turnwise card` and `turnwise push`: a run as a folder, and its upload."""

from __future__ import annotations

from pathlib import Path
from typing import Annotated

import typer

from turnwise.cli.options import one_sentence, say, tell


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
        from turnwise.app.card.files import published_files
        from turnwise.app.card.write import write_card

        folder = write_card(run, out, license=license, note=tell)
        for line in listed(folder, published_files(folder)):
            say(line)
    say(f"model card: {folder / 'README.md'}")


def push(
    target: Annotated[
        Path,
        typer.Argument(
            metavar="FOLDER | RUN",
            help="The folder of a card or of a data set; or a run, whose card is written first.",
        ),
    ],
    repo: Annotated[str, typer.Option(help="The repository on the hub, as USER/NAME.")],
    private: Annotated[
        bool,
        typer.Option(
            "--private", help="Make a new repository private; one that is public is refused."
        ),
    ] = False,
    dry_run: Annotated[
        bool, typer.Option("--dry-run", help="Show what would be uploaded, and upload nothing.")
    ] = False,
) -> None:
    """Upload a model card, or a data set, to the Hugging Face hub with the token of HF_TOKEN."""
    with one_sentence():
        from turnwise.app.card.push import plan_upload
        from turnwise.app.card.push import push as upload_to_hub

        upload = plan_upload(target, repo, private=private, note=tell)
        for line in listed(upload.folder, list(upload.files)):
            say(line)
        which = f"{'private ' if private else ''}{upload.kind} '{repo}'"
        what = f"{len(upload.files)} files of '{upload.folder}' as {which}"
        say(f"{upload.size:>13,}  bytes in {what}")
        if dry_run:
            return
        address = upload_to_hub(upload, note=tell)
    say(f"uploaded: {address}")


def listed(folder: Path, files: list[Path]) -> list[str]:
    """Return the names of files with their sizes, as lines."""
    return [f"{(folder / file).stat().st_size:>13,}  {file}" for file in files]
