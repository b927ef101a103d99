"""The command `turnwise data`, which writes the data sets that turnwise generates."""

from __future__ import annotations

import csv
import inspect
import io
import json
import shlex
from collections.abc import Iterable, Mapping, Sequence
from itertools import islice
from pathlib import Path

from turnwise.envs.datasets import DATASETS
from turnwise.errors import DataError, unknown_name
from turnwise.recipe.schema import parse_override
from turnwise.runs.files import write_atomically
from turnwise.seeding import generator
from turnwise.settings import parse

ROWS, CARD = "train.jsonl", "README.md"
"""The files of a data set's folder."""
SIZES = ((1_000, "n<1K"), (10_000, "1K<n<10K"), (100_000, "10K<n<100K"), (1_000_000, "100K<n<1M"))
"""The hub's names of sizes, each with the number of rows below which it holds."""


def write_dataset(name: str, out: Path, *, rows: int, seed: int, sets: Sequence[str]) -> str:
    """Write `rows` rows of the data set `name` to `out` and return a sentence about it.

    A name without an ending is that of a folder, which `datasets.load_dataset` reads: the rows as
    JSON lines, and a card.

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
    (out.parent if out.suffix else out).mkdir(parents=True, exist_ok=True)
    if out.suffix == ".csv":
        write_atomically(out, _as_csv(options.columns, found))
    elif out.suffix == ".jsonl":
        write_atomically(out, _as_lines(found))
    else:
        command = f"turnwise data {name} --out {shlex.quote(out.name)} --rows {rows} --seed {seed}"
        given = "".join(f" --set {shlex.quote(each)}" for each in sets)
        lines = _as_lines(found)
        write_atomically(out / ROWS, lines)
        write_atomically(out / CARD, _card(name, rows, f"{command}{given}", lines))
    return f"{out}: {rows:,} rows of {', '.join(options.columns)}"


def _as_csv(columns: Sequence[str], rows: Iterable[Mapping[str, str]]) -> str:
    text = io.StringIO(newline="")
    writer = csv.DictWriter(text, columns, lineterminator="\n")
    writer.writeheader()
    writer.writerows(rows)
    return text.getvalue()


def _as_lines(rows: Iterable[Mapping[str, str]]) -> str:
    return "".join(f"{json.dumps(dict(row))}\n" for row in rows)


def _card(name: str, rows: int, command: str, lines: str) -> str:
    """Return the card of a data set: what it is, the command that makes it, and its first row."""
    kind = DATASETS[name]
    said = " ".join((inspect.getdoc(kind) or "").split("\n\n")[0].split())
    first = json.dumps(json.loads(lines.split("\n", 1)[0]), indent=2)
    size = next((size for most, size in SIZES if rows < most), "n>1M")
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

```bash
{command}
```

```python
from datasets import load_dataset

rows = load_dataset(".", split="train")  # this folder, or the name of its repository on the hub
```

The first row:

```json
{first}
```
"""
