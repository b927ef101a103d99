"""Reading of JSONL and CSV files into plain dicts.

Provides `read_jsonl`, `read_csv`, `read_numbered` and `check_value`. A malformed file raises
`DataError` with its name and the line. No row is skipped, and no value is guessed or coerced.
"""

from __future__ import annotations

import csv
import io
import json
import math
from collections.abc import Callable, Mapping
from pathlib import Path
from typing import Any

from turnwise.errors import DataError

Numbered = list[tuple[int, dict[str, Any]]]
"""Rows, each with the number of its first line, counted from 1."""
DEEPEST = 200
"""The deepest nesting of a value in lists and objects."""
MOST_DIGITS = 4300
"""The most digits of a whole number: Python writes and reads no more."""
TOO_LARGE = 10**MOST_DIGITS
LARGEST_CELL = 2**31 - 1
"""The most characters of a value in a CSV file; the default of `csv` is 131,072."""


class _RepeatedKeyError(ValueError):
    """A JSON object has a key twice."""


def read_jsonl(path: str | Path) -> list[dict[str, Any]]:
    """Return the objects of a JSON-lines file; blank lines are allowed.

    Raises:
        DataError: if the file cannot be read, or a line is not a JSON object in UTF-8, repeats a
            key or has a value that `check_value` refuses.
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


def check_value(value: Any, where: str, depth: int = 0) -> None:
    """Raise unless plain JSON can be stored in UTF-8 and read again.

    Args:
        value: the value of a column.
        where: the row and column, for messages.
        depth: the lists and objects that it is in.

    Raises:
        DataError: for a number that is not finite or has too many digits, text that is not Unicode,
            and lists and objects that are nested too deeply.

    Example:
        >>> check_value([1, float("nan")], "row 0, column 'x'")
        Traceback (most recent call last):
            ...
        turnwise.errors.DataError: row 0, column 'x': nan cannot be kept: use finite numbers, or \
null (None in Python)
    """
    check_depth(where, depth)
    if isinstance(value, str):
        _check_text(value, where)
    elif isinstance(value, float):
        if not math.isfinite(value):
            raise DataError(
                f"{where}: {value} cannot be kept: use finite numbers, or null (None in Python)"
            )
    elif isinstance(value, int):
        if abs(value) >= TOO_LARGE:
            raise DataError(f"{where}: {_TOO_LONG}")
    elif isinstance(value, list):
        for part in value:
            check_value(part, where, depth + 1)
    elif isinstance(value, dict):
        for key, part in value.items():
            _check_text(key, where)
            check_value(part, where, depth + 1)


def check_depth(where: str, depth: int) -> None:
    """Raise if a value is in more than `DEEPEST` lists and objects."""
    if depth > DEEPEST:
        raise DataError(f"{where}: is nested deeper than {DEEPEST}: make it flatter")


_TOO_LONG = f"a whole number of more than {MOST_DIGITS} digits cannot be kept: write it as text"


def _check_text(text: str, where: str) -> None:
    try:
        text.encode()
    except UnicodeEncodeError as error:
        raise DataError(
            f"{where}: text holds half of a surrogate pair ({error.reason}): fix it"
        ) from None


def _jsonl(path: Path) -> Numbered:
    decoder = json.JSONDecoder(object_pairs_hook=_object)
    rows: Numbered = []
    for line, text in enumerate(_text(path).split("\n"), start=1):
        if not text.strip():
            continue
        where = f"'{path}' line {line}"
        try:
            row = decoder.decode(text)
        except json.JSONDecodeError as error:
            raise DataError(
                f"{where}, column {error.colno}: not JSON ({error.msg}): every line must be one "
                "JSON object"
            ) from None
        except _RepeatedKeyError as error:
            raise DataError(f"{where}: {error}: give every key of an object once") from None
        except RecursionError:
            check_depth(where, DEEPEST + 1)
            raise
        except ValueError:  # `int` refuses the digits
            raise DataError(f"{where}: {_TOO_LONG}") from None
        if not isinstance(row, dict):
            raise DataError(
                f"{where}: got a JSON {type(row).__name__}, expected an object: write "
                '{"column": value, ...}'
            )
        for column, value in row.items():
            check_value(column, f"{where}, the name of column {column!r}")
            check_value(value, f"{where}, column {column!r}")
        rows.append((line, row))
    return rows


def _object(pairs: list[tuple[str, Any]]) -> dict[str, Any]:
    """Return a JSON object; of a key that stands twice, `json` would keep the last value."""
    found = dict(pairs)
    if len(found) < len(pairs):
        keys = [key for key, _ in pairs]
        raise _RepeatedKeyError(f"repeats {next(k for k in keys if keys.count(k) > 1)!r}")
    return found


def _csv(path: Path) -> Numbered:
    reader = csv.reader(io.StringIO(_text(path), newline=""), strict=True)
    rows: Numbered = []
    header: list[str] = []
    line = 1
    limit = csv.field_size_limit(LARGEST_CELL)  # of the process
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
    finally:
        csv.field_size_limit(limit)
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
