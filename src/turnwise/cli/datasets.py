"""The command `turnwise data`, which writes the data sets that turnwise generates."""

from __future__ import annotations

import csv
import inspect
import json
import shlex
from collections.abc import Iterable, Iterator, Mapping, Sequence
from contextlib import contextmanager
from itertools import chain, islice
from pathlib import Path
from typing import TextIO

from turnwise.envs.datasets import DATASETS
from turnwise.errors import DataError, unknown_name
from turnwise.recipe.schema import parse_override
from turnwise.seeding import generator
from turnwise.settings import parse
from turnwise.utils.text import fence_of, printable

ROWS, CARD = "train.jsonl", "README.md"
"""The files of a data set's folder."""
SIZES = (
    *((1_000, "n<1K"), (10_000, "1K<n<10K"), (100_000, "10K<n<100K"), (1_000_000, "100K<n<1M")),
    *((10**7, "1M<n<10M"), (10**8, "10M<n<100M"), (10**9, "100M<n<1B"), (10**10, "1B<n<10B")),
)
"""The hub's names of sizes, each with the number of rows below which it holds."""


def write_dataset(name: str, out: Path, *, rows: int, seed: int, sets: Sequence[str]) -> str:
    """Write `rows` rows of the data set `name` to `out` and return a sentence about it.

    A name without an ending is that of a folder, which `datasets.load_dataset` reads: the rows as
    JSON lines, and a card. The file or folder appears when it is complete, and no more than one row
    is in memory.

    Raises:
        UnknownNameError: if there is no such data set.
        ConfigError: if an option is unknown or wrong.
        DataError: if `out` has another ending than .csv or .jsonl, or exists.
    """
    if name not in DATASETS:
        raise unknown_name("data set", name, DATASETS)
    options = parse(DATASETS[name], dict(map(parse_override, sets)), f"data set {name!r}")
    if out.suffix not in (".csv", ".jsonl", ""):
        raise DataError(
            f"'{out}' must end in .csv or .jsonl, or have no ending, which makes a folder for the "
            "Hugging Face hub: rename it"
        )
    if out.exists():
        raise DataError(f"'{out}' exists: give a file or a folder that does not")
    found = islice(options.rows(generator(seed, "data", name)), rows)
    out.parent.mkdir(parents=True, exist_ok=True)
    if out.suffix == ".csv":
        with _new_file(out) as file:
            writer = csv.DictWriter(file, options.columns, lineterminator="\n")
            writer.writeheader()
            writer.writerows(found)
    elif out.suffix == ".jsonl":
        with _new_file(out) as file:
            _write_lines(file, found)
    else:
        command = f"turnwise data {name} --out {shlex.quote(out.name)} --rows {rows} --seed {seed}"
        given = "".join(f" --set {shlex.quote(each)}" for each in sets)
        _write_folder(out, name, rows, printable(f"{command}{given}"), found)
    return f"{out}: {rows:,} rows of {', '.join(options.columns)}"


def _write_folder(
    out: Path, name: str, count: int, command: str, rows: Iterator[Mapping[str, str]]
) -> None:
    from turnwise.policies.folders import replaced_folder  # it imports transformers

    with replaced_folder(out) as folder:
        first = next(rows)
        with (folder / ROWS).open("w", encoding="utf-8") as file:
            _write_lines(file, chain([first], rows))
        (folder / CARD).write_text(_card(name, count, command, first), encoding="utf-8")


@contextmanager
def _new_file(path: Path) -> Iterator[TextIO]:
    """Yield a file that gets the name `path` when the block succeeds."""
    partial = path.with_name(f".{path.name}.partial")
    try:
        with partial.open("w", encoding="utf-8", newline="") as file:
            yield file
        partial.replace(path)
    finally:
        partial.unlink(missing_ok=True)


def _write_lines(file: TextIO, rows: Iterable[Mapping[str, str]]) -> None:
    file.writelines(f"{json.dumps(dict(row))}\n" for row in rows)


def _card(name: str, rows: int, command: str, first: Mapping[str, str]) -> str:
    """Return the card of a data set: what it is, the command that makes it, and its first row."""
    kind = DATASETS[name]
    said = " ".join((inspect.getdoc(kind) or "").split("\n\n")[0].split())
    size = next((size for most, size in SIZES if rows < most), "10B<n<100B")
    fence = fence_of(command, least=3)
    return f"""\
---
configs:
- config_name: default
  data_files:
  - split: train
    path: {ROWS}
pretty_name: {json.dumps(name)}
size_categories:
- {size}
tags:
- turnwise
---

# {name}

{said}

{rows:,} rows of the columns {", ".join(f"`{column}`" for column in kind.columns)}, made by
[turnwise](https://github.com/turnwise/turnwise):

{fence}bash
{command}
{fence}

```python
from datasets import load_dataset

rows = load_dataset(".", split="train")  # this folder, or the name of its repository on the hub
```

The first row:

```json
{json.dumps(dict(first), indent=2)}
```
"""
