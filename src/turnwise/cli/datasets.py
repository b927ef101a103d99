"""The command `turnwise data`, which writes the data sets that turnwise generates."""

from __future__ import annotations

import csv
import io
import json
from collections.abc import Iterable, Mapping, Sequence
from itertools import islice
from pathlib import Path

from turnwise.envs.datasets import DATASETS
from turnwise.errors import DataError, unknown_name
from turnwise.recipe.schema import parse_override
from turnwise.runs.files import write_atomically
from turnwise.seeding import generator
from turnwise.settings import parse


def write_dataset(name: str, out: Path, *, rows: int, seed: int, sets: Sequence[str]) -> str:
    """Write `rows` rows of the data set `name` to `out` and return a sentence about it.

    Raises:
        UnknownNameError: if there is no such data set.
        ConfigError: if an option is unknown or wrong.
        DataError: if `out` is not the name of a .csv or .jsonl file, or exists.
    """
    if name not in DATASETS:
        raise unknown_name("data set", name, DATASETS)
    options = parse(DATASETS[name], dict(map(parse_override, sets)), f"data set {name!r}")
    if out.suffix not in (".csv", ".jsonl"):
        raise DataError(f"'{out}' must end in .csv or .jsonl: rename it")
    if out.exists():
        raise DataError(f"'{out}' exists: give a file that does not")
    found = islice(options.rows(generator(seed, "data", name)), rows)
    if out.suffix == ".jsonl":
        text = "".join(f"{json.dumps(dict(row))}\n" for row in found)
    else:
        text = _as_csv(options.columns, found)
    out.parent.mkdir(parents=True, exist_ok=True)
    write_atomically(out, text)
    return f"{out}: {rows:,} rows of {', '.join(options.columns)}"


def _as_csv(columns: Sequence[str], rows: Iterable[Mapping[str, str]]) -> str:
    text = io.StringIO(newline="")
    writer = csv.DictWriter(text, columns, lineterminator="\n")
    writer.writeheader()
    writer.writerows(rows)
    return text.getvalue()
