"""Texts without what is nobody else's business: absolute paths of a machine, and secrets.

Provides `without_paths`, `cleaned` and `secrets_in`.
"""

from __future__ import annotations

import re
from collections.abc import Mapping
from typing import Any

_PATH = re.compile(r"(?<![\w<:/.\\])(?:file://)?~?(?:/[^\s/'\"`,;:)\]]+)+/([^\s/'\"`,;)\]]+)/?")
"""An absolute path of at least two parts; the group is its last part."""
_SECRETS = {
    "a Hugging Face token": re.compile(r"\bhf_[A-Za-z0-9]{20,}"),
    "an API key": re.compile(r"\bsk-[A-Za-z0-9_-]{20,}"),
    "a GitHub token": re.compile(r"\bgh[pousr]_[A-Za-z0-9]{30,}"),
    "an AWS key": re.compile(r"\bAKIA[0-9A-Z]{16}\b"),
    "a private key": re.compile(r"-----BEGIN [A-Z ]*PRIVATE KEY-----"),
    "a password in an address": re.compile(r"\b[a-z][a-z0-9+.-]*://[^/\s:@]+:[^/\s:@]+@"),
}
_SECRET_KEY = re.compile(r"(^|_)(token|password|secret|api_?key)$", re.IGNORECASE)
"""The key of a secret."""
REMOVED = "removed"
"""What stands in place of a secret."""


def without_paths(text: str) -> str:
    """Return text in which every absolute path is its last part.

    Example:
        >>> without_paths("rows of /home/ann/data/rows.jsonl, see https://a.b/c/d")
        'rows of rows.jsonl, see https://a.b/c/d'
        >>> without_paths("/srv/envs/lake.py:Lake"), without_paths("N/S/E/W </answer> /no_think")
        ('lake.py:Lake', 'N/S/E/W </answer> /no_think')
    """
    return _PATH.sub(r"\1", text)


def secrets_in(text: str) -> list[str]:
    """Return the kinds of secrets that a text seems to hold.

    Example:
        >>> secrets_in("token = hf_" + "a" * 34), secrets_in("max_tokens = 48")
        (['a Hugging Face token'], [])
    """
    return [kind for kind, pattern in _SECRETS.items() if pattern.search(text)]


def cleaned(value: Any, kept: frozenset[str] = frozenset()) -> Any:
    """Return JSON-able values with the paths in their texts shortened and secrets removed.

    Args:
        value: what is cleaned.
        kept: keys whose texts keep what looks like a path, such as prompts.

    Example:
        >>> cleaned({"model": "/srv/models/nano", "system": "/a/b/c"}, frozenset({"system"}))
        {'model': 'nano', 'system': '/a/b/c'}
        >>> cleaned({"max_tokens": 8, "api_key": "abc"})
        {'max_tokens': 8, 'api_key': 'removed'}
    """
    if isinstance(value, str):
        return REMOVED if secrets_in(value) else without_paths(value)
    if isinstance(value, Mapping):
        return {without_paths(key): _cleaned_at(key, each, kept) for key, each in value.items()}
    if isinstance(value, list | tuple):
        return [cleaned(each, kept) for each in value]
    return value


def _cleaned_at(key: str, value: Any, kept: frozenset[str]) -> Any:
    if isinstance(value, str) and value and _SECRET_KEY.search(key):
        return REMOVED
    if isinstance(value, str) and key in kept and not secrets_in(value):
        return value
    return cleaned(value, kept)
