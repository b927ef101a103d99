"""Rows for supervised training, from the rows of data files.

Provides `SftRow` and `sft_rows`, which checks each row. `utils.data_files` reads the files.
"""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass, replace
from pathlib import Path
from typing import Any, get_args

from turnwise.errors import DataError
from turnwise.types import Message, MessageRole
from turnwise.utils.data_files import read_numbered

WANTED = "give prompt and completion, or messages that end with the assistant's"


@dataclass(frozen=True, kw_only=True, slots=True)
class SftRow:
    """One completion to imitate and the messages before it.

    `role` is the env's role that it belongs to; None is every role.

    Example:
        >>> SftRow(messages=(Message(role="user", content="2+2"),), completion="4").completion
        '4'
    """

    messages: tuple[Message, ...]
    completion: str
    role: str | None = None


def sft_rows(path: str | Path) -> list[SftRow]:
    """Return the rows of a .jsonl or .csv file to imitate.

    A row has the strings `prompt` (one user message) and `completion`; or, in JSONL, `messages` as
    chats have them, the last of which is the assistant's and is imitated. The column `role`, where
    it is not empty, names the env's role that the row is for. Other columns are free.

    Raises:
        DataError: if the file is of another kind or a row is not of this form; with its line.
    """
    found: list[SftRow] = []
    for line, row in read_numbered(path):
        where = f"'{path}' line {line}"
        role = row.get("role") or None
        if role is not None and not isinstance(role, str):
            raise DataError(f"{where}: role = {role!r} must be text, the name of a role of the env")
        found.append(replace(_sft_row(row, where), role=role))
    return found


def _sft_row(row: Mapping[str, Any], where: str) -> SftRow:
    pair = [name for name in ("prompt", "completion") if name in row]
    if "messages" in row:
        if pair:
            raise DataError(f"{where}: has messages and {pair[0]}: {WANTED}, not both")
        return _chat_row(row["messages"], where)
    if len(pair) < 2:
        missing = [name for name in ("prompt", "completion") if name not in row]
        columns = ", ".join(row) or "none"
        raise DataError(
            f"{where}: has no {' and no '.join(missing)} (columns: {columns}): {WANTED}"
        )
    for name in pair:
        if not isinstance(row[name], str) or not row[name].strip():
            raise DataError(f"{where}: {name} = {row[name]!r} must be text that is not blank")
    prompt = Message(role="user", content=row["prompt"])
    return SftRow(messages=(prompt,), completion=row["completion"])


def _chat_row(messages: Any, where: str) -> SftRow:
    if not isinstance(messages, list) or len(messages) < 2:
        raise DataError(
            f"{where}: messages must be a list of two or more objects with role and content"
        )
    chat = [_message(message, f"{where}, message {i}") for i, message in enumerate(messages, 1)]
    if chat[-1].role != "assistant":
        raise DataError(
            f"{where}: the last message is the {chat[-1].role}'s: end with the assistant's, "
            "which is what training imitates"
        )
    return SftRow(messages=tuple(chat[:-1]), completion=chat[-1].content)


def _message(message: Any, where: str) -> Message:
    if not isinstance(message, dict) or set(message) != {"role", "content"}:
        raise DataError(f"{where}: got {message!r}, expected an object of role and content only")
    role, content = message["role"], message["content"]
    if role not in get_args(MessageRole):
        raise DataError(f"{where}: role {role!r} is none of {', '.join(get_args(MessageRole))}")
    if not isinstance(content, str) or not content.strip():
        raise DataError(f"{where}: content {content!r} must be text that is not blank")
    return Message(role=role, content=content)
