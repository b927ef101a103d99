"""A recipe's plain values with a user's settings over them.

Provides `Fit`, by which rules leave out or cap values of the recipe, and the functions on nested
tables that it stands on.
"""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any

from turnwise import option_paths

Data = dict[str, Any]
PHASES = ("options", "training", "warmup")
"""The tables of [env] that hold options of the env."""


def nest(key: str, value: Any) -> Data:
    """Return {"a": {"b": value}} for "a.b"."""
    for part in reversed(key.split(".")):
        value = {part: value}
    return value


def merge(base: Mapping[str, Any], over: Mapping[str, Any]) -> Data:
    """Return `base` with the values of `over`, table by table; None takes a key out.

    A table in which nothing stands but keys to take out does not come in by that.
    """
    merged = dict(base)
    for key, value in over.items():
        if value is None:
            merged.pop(key, None)
        elif isinstance(value, Mapping):
            below = merged.get(key)
            found = merge(below if isinstance(below, Mapping) else {}, value)
            if found or not value or key in merged:
                merged[key] = found
        else:
            merged[key] = value
    return merged


def value_at(data: Any, path: str) -> Any:
    """Return the value at a dotted path; None where there is none."""
    return option_paths.value_at(data, path.split("."))


def setting_at(settings: Mapping[str, Any], path: str) -> Any:
    """Return what settings say at a dotted path, by dotted keys or in tables; None if nothing.

    Example:
        >>> setting_at({"a.b": 1}, "a.b"), setting_at({"a": {"b": 1}}, "a.b"), setting_at({}, "a.b")
        (1, 1, None)
    """
    tables: Data = {}
    for key, value in settings.items():
        tables = merge(tables, nest(key, value))
    return value_at(tables, path)


class Fit:
    """A recipe's values with settings over them, and what the settings touched."""

    def __init__(self, base: Data, merged: Data, given: set[str]) -> None:
        self.base, self.merged, self.given, self.notes = base, merged, given, []

    def get(self, path: str, of: Data | None = None) -> Any:
        """Return the value at a dotted path; None where there is none."""
        return value_at(self.merged if of is None else of, path)

    def set_by_user(self, path: str) -> bool:
        """Whether the user's settings say something at `path` or below it."""
        return any(leaf == path or leaf.startswith(f"{path}.") for leaf in self.given)

    def switched(self, path: str, default: Any) -> bool:
        """Whether the user's settings change the value at `path`."""
        if not self.set_by_user(path):
            return False
        before = self.get(path, self.base)
        return (default if before is None else before) != (self.get(path) or default)

    def table(self, path: str) -> Mapping[str, Any]:
        """Return the table at `path`; empty if there is none."""
        table = self.get(path)
        return table if isinstance(table, Mapping) else {}

    def keys(self, path: str) -> list[str]:
        """Return the keys of the table at `path`."""
        return list(self.table(path))

    def drop(self, reason: str, *paths: str) -> None:
        """Leave out what the recipe alone sets at `paths`, and say so."""
        gone = [p for p in paths if self.get(p) is not None and not self.set_by_user(p)]
        if gone:
            said = ", ".join(f"{path} = {_brief(self.get(path))}" for path in gone)
            self.notes.append(f"{reason}: left out the recipe's {said}")
        for path in gone:
            self.merged = merge(self.merged, nest(path, None))

    def cap(self, reason: str, path: str, most: int) -> None:
        """Lower a number that the recipe alone sets at `path`, and say so."""
        value = self.get(path)
        if is_count(value) and value > most and not self.set_by_user(path):
            self.notes.append(f"{reason}: lowered the recipe's {path} from {value} to {most}")
            self.merged = merge(self.merged, nest(path, most))


def _brief(value: Any) -> str:
    text = repr(value)
    return text if len(text) <= 40 else "{...}" if isinstance(value, Mapping) else "..."


def is_number(value: Any) -> bool:
    """Whether a value is a number; a bool is none."""
    return isinstance(value, int | float) and not isinstance(value, bool)


def is_count(value: Any) -> bool:
    """Whether a value is a whole number; a bool is none."""
    return isinstance(value, int) and not isinstance(value, bool)
