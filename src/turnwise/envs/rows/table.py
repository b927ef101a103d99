"""The table of rows: reading and checking it, and what a row asks and holds.

Provides `Row`, `read_rows`, `check_row`, `problem_of` and `reply_of`.
"""

from __future__ import annotations

import json
from collections.abc import Mapping
from functools import lru_cache
from pathlib import Path
from typing import Any, get_args

from turnwise.envs.rows.values import decode
from turnwise.errors import DataError
from turnwise.types import MessageRole
from turnwise.utils.data_files import read_numbered

TABLES_KEPT = 16
Row = Mapping[str, Any]


def problem_of(row: Row) -> str:
    """Return the key that identifies equal problems: the prompt.

    Example:
        >>> problem_of({"prompt": "2+2=", "answer": "4"})
        '"2+2="'
    """
    return json.dumps(row["prompt"], sort_keys=True)


def reply_of(row: Row, column: str) -> str | None:
    """Return a row's value in a column as a reply: text or a number; None for anything else.

    Example:
        >>> reply_of({"prompt": "2+2=", "answer": 4}, "answer")
        '4'
    """
    value = row.get(column)
    if isinstance(value, bool) or not isinstance(value, str | int | float):
        return None
    return str(value).strip() or None


def read_rows(path: str | Path) -> tuple[Row, ...]:
    """Return the checked rows of a .jsonl or .csv file.

    Raises:
        DataError: if the file or a row is malformed; with its line.
    """
    file = Path(path)
    changed = file.stat().st_mtime_ns if file.is_file() else 0
    return _read_rows(file.resolve(), changed)


@lru_cache(TABLES_KEPT)
def _read_rows(path: Path, changed: int) -> tuple[Row, ...]:
    numbered = read_numbered(path)
    if not numbered:
        raise DataError(f"'{path}' has no rows: give one row or more with a column 'prompt'")
    for line, row in numbered:
        for column, value in row.items():  # report values that cannot be decoded with their line
            decode(value, f"'{path}' line {line}, column {column!r}")
    return tuple(check_row(row, f"'{path}' line {line}") for line, row in numbered)


def check_row(row: Row, where: str) -> Row:
    """Return a row after checking it.

    Raises:
        DataError: if it has no prompt, or one that is neither text nor a conversation that waits
            for an answer.
    """
    if "prompt" not in row:
        columns = ", ".join(map(str, row)) or "none"
        raise DataError(f"{where}: has no column 'prompt' (columns: {columns}): name it so")
    prompt = row["prompt"]
    if isinstance(prompt, str):
        if not prompt:
            raise DataError(f"{where}: the prompt is empty: give text to continue")
        return row
    if not isinstance(prompt, list) or not prompt:
        raise DataError(
            f"{where}: prompt is {type(prompt).__name__}, expected text or a list of messages, "
            '[{"role": "user", "content": "..."}]'
        )
    for number, message in enumerate(prompt, 1):
        _check_message(message, f"{where}, message {number}")
    if prompt[-1]["role"] == "assistant":
        raise DataError(
            f"{where}: the prompt ends with the assistant's message: end with the user's, or give "
            "text that the model goes on with"
        )
    return row


def _check_message(message: Any, where: str) -> None:
    if not isinstance(message, dict) or set(message) != {"role", "content"}:
        raise DataError(f"{where}: got {message!r}, expected an object of role and content only")
    if message["role"] not in get_args(MessageRole):
        known = ", ".join(get_args(MessageRole))
        raise DataError(f"{where}: role {message['role']!r} is none of {known}")
    if not isinstance(message["content"], str):
        raise DataError(f"{where}: content {message['content']!r} must be text")
