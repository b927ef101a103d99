"""Reading of JSONL and CSV files into plain dicts.

Provides `read_jsonl`, `read_csv` and `read_numbered`. A malformed file raises `DataError` with its
name and the line. No row is skipped, and no value is guessed or coerced.
"""

from __future__ import annotations

import csv
import io
import json
from collections.abc import Callable, Mapping
from pathlib import Path
from typing import Any

from turnwise.errors import DataError

Numbered = list[tuple[int, dict[str, Any]]]
"""Rows, each with the number of its first line, counted from 1."""


def read_jsonl(path: str | Path) -> list[dict[str, Any]]:
    """Return the objects of a JSON-lines file; blank lines are allowed.

    Raises:
        DataError: if the file cannot be read, or a line is not a JSON object in UTF-8.
    """
    return [row for _, row in _jsonl(Path(path))]


def read_csv(path: str | Path) -> list[dict[str, str]]:
    """Return the rows of a CSV file with a header, every value as text.

    Raises:
        DataError: if the file cannot be read, is not UTF-8, has no header or a repeated column, or
            a row has more or fewer values than the header.
    """
    return [row for _, row in _csv(Path(path))]


def read_numbered(path: str | Path) -> Numbered:
    """Return the rows of a .jsonl or .csv file, each with the number of its first line.

    Raises:
        DataError: if the file is of another kind, cannot be read or is malformed.
    """
    path = Path(path)
    if path.suffix not in READERS:
        raise DataError(f"'{path}' must end in {' or '.join(READERS)}: rename or convert it")
    return READERS[path.suffix](path)


def _jsonl(path: Path) -> Numbered:
    rows: Numbered = []
    for line, text in enumerate(_text(path).split("\n"), start=1):
        if not text.strip():
            continue
        try:
            row = json.loads(text)
        except json.JSONDecodeError as error:
            raise DataError(
                f"'{path}' line {line}, column {error.colno}: not JSON ({error.msg}): every line "
                "must be one JSON object"
            ) from None
        if not isinstance(row, dict):
            raise DataError(
                f"'{path}' line {line}: got a JSON {type(row).__name__}, expected an object: write "
                '{"column": value, ...}'
            )
        rows.append((line, row))
    return rows


def _csv(path: Path) -> Numbered:
    reader = csv.reader(io.StringIO(_text(path), newline=""), strict=True)
    rows: Numbered = []
    header: list[str] = []
    line = 1
    try:
        for values in reader:
            if values and not header:
                header = _header(values, path)
            elif values:
                if len(values) != len(header):
                    raise DataError(
                        f"'{path}' line {line}: {len(values)} values for {len(header)} columns "
                        f"({', '.join(header)}): put values with commas in double quotes"
                    )
                rows.append((line, dict(zip(header, values, strict=True))))
            line = reader.line_num + 1  # a quoted value may contain line breaks
    except csv.Error as error:
        raise DataError(f"'{path}' line {line}: not CSV ({error}): check its quotes") from None
    if not header:
        raise DataError(f"'{path}' is empty: its first line must name the columns")
    return rows


def _header(values: list[str], path: Path) -> list[str]:
    repeated = sorted({name for name in values if values.count(name) > 1})
    if repeated or "" in values:
        what = f"repeats column {repeated[0]!r}" if repeated else "has a column without a name"
        raise DataError(f"'{path}' line 1 {what}: give every column its own name")
    return values


def _text(path: Path) -> str:
    """Return a file's text without its byte-order mark and with uniform line ends."""
    if not path.is_file():
        raise DataError(f"no file at '{path}': give a file that exists")
    data = path.read_bytes()
    try:
        return data.decode("utf-8-sig").replace("\r\n", "\n")
    except UnicodeDecodeError as error:
        line = data[: error.start].count(b"\n") + 1
        raise DataError(
            f"'{path}' line {line}: not UTF-8 (byte {data[error.start]:#04x}): save it as UTF-8"
        ) from None


READERS: Mapping[str, Callable[[Path], Numbered]] = {".jsonl": _jsonl, ".csv": _csv}
