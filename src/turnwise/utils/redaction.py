"""Texts without what is nobody else's business: paths and hosts of a machine, and secrets.

Provides `without_paths`, `without_secrets`, `cleaned` and `secrets_in`.
"""

from __future__ import annotations

import re
from collections.abc import Mapping
from typing import Any

_PATH = re.compile(r"(?<![\w</.\\])(?:file://)?~?(?:/[^\s/'\"`,;:)\]]+)+/([^\s/'\"`,;)\]]+)/?")
"""An absolute path of at least two parts; the group is its last part."""
_QUOTED = re.compile(r"(?<=['\"`])(?:file://)?~?(?:/[^\n/'\"`]+)+/([^\n/'\"`]+)/?(?=['\"`])")
"""The same in quotes, where parts may have blanks."""
_WHOLE = re.compile(
    r"(?:file://)?(?:~|/(?:home|Users|root|mnt|media|data|srv|opt|tmp|var|scratch))"
    r"(?:/[^\n/]+)*/([^\n/]+)/?"
)
"""A text that is a path, parts of which may have blanks."""
_HOME = re.compile(
    r"(?<![\w</.\\])(?:file://)?/(?:home|Users)/[^\s/'\"`,;:)\]]+/?(?![^\s'\"`,;:)\]])"
)
"""A home folder, whose last part is the name of a user."""
_HOST = re.compile(r"\b((?:http|ws)s?://)(\[[^\]\s]*\]|[^\s/:@?#'\"`\[\]]+)")
"""An address up to its host, the second group."""
_NEARBY = re.compile(
    r"\[.*|[^.]*|[\d.]+|.*\.(?:local|localdomain|lan|internal|intranet|corp|home|private|arpa)\.?",
    re.IGNORECASE,
)
"""A host that is known in one network only, and numbers."""
_KEY = r"[A-Za-z0-9_-]"
_SECRETS = {
    "a Hugging Face token": re.compile(r"\bhf_[A-Za-z0-9]{20,}"),
    "an API key": re.compile(
        rf"\b(?:sk-|gsk_|xai-|nvapi-|pplx-|[rs]k_live_|r8_)(?={_KEY}{{0,40}}\d){_KEY}{{20,}}"
        rf"|\bAIza{_KEY}{{35}}"
    ),
    "a GitHub token": re.compile(r"\b(?:gh[pousr]_[A-Za-z0-9]{30,}|github_pat_[A-Za-z0-9_]{30,})"),
    "a GitLab token": re.compile(rf"\bglpat-{_KEY}{{20,}}"),
    "a Slack token": re.compile(r"\bxox[abeprs]-[A-Za-z0-9-]{20,}"),
    "an AWS key": re.compile(r"\b(?:AKIA|ASIA)[0-9A-Z]{16}\b"),
    "a signed token": re.compile(rf"\beyJ{_KEY}{{10,}}\.eyJ{_KEY}{{10,}}\.{_KEY}{{10,}}"),
    "a private key": re.compile(r"-----BEGIN [A-Z ]{0,40}PRIVATE KEY(?: BLOCK)?-----"),
    "a password in an address": re.compile(
        r"\b[a-z][a-z0-9+.-]{0,30}://[^/\s:@'\"]*:[^/\s:@'\"]+@"
    ),
    "a key in an address": re.compile(
        r"[?&](?:api_?key|key|access_token|token|secret|sig)=[^&\s'\"]{12,}", re.IGNORECASE
    ),
}
_SECRET_KEY = re.compile(
    r"(?:^|[_-])(tokens?|passw(?:or)?d|passphrase|secret|authorization|credentials?"
    r"|(?:api|access|secret|private|auth)[_-]?keys?)$"
)
"""The key of a secret, in snake case."""
_CREDENTIAL = re.compile(r"[^\s<>\[\]|]{8,}")
"""A token of a service; a model's special tokens are shorter or have brackets."""
REMOVED = "removed"
"""What stands in place of a secret."""


def without_paths(text: str) -> str:
    """Return text in which every absolute path is its last part, and a home folder is `~`.

    Hosts that are known in one network only are `localhost`.

    Example:
        >>> without_paths("rows of /home/ann/data/rows.jsonl, see https://a.b/c/d")
        'rows of rows.jsonl, see https://a.b/c/d'
        >>> without_paths("/srv/envs/lake.py:Lake"), without_paths("N/S/E/W </answer> /no_think")
        ('lake.py:Lake', 'N/S/E/W </answer> /no_think')
        >>> without_paths("in /home/ann: no file '/home/ann/my data/rows.jsonl'")
        "in ~: no file 'rows.jsonl'"
    """
    text = _HOST.sub(lambda found: found[1] + _public(found[2]), text)
    return _PATH.sub(r"\1", _HOME.sub("~", _QUOTED.sub(r"\1", text)))


def _public(host: str) -> str:
    return "localhost" if _NEARBY.fullmatch(host) else host


def without_secrets(text: str) -> str:
    """Return text without what seems to be a secret.

    Example:
        >>> without_secrets("refused: hf_" + "a" * 34 + " is not valid")
        'refused: removed is not valid'
    """
    for pattern in _SECRETS.values():
        text = pattern.sub(REMOVED, text)
    return text


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
        >>> cleaned({"max_tokens": 8, "api_key": "abc", "eos_token": "<|im_end|>"})
        {'max_tokens': 8, 'api_key': 'removed', 'eos_token': '<|im_end|>'}
    """
    if isinstance(value, str):
        path = None if _HOME.fullmatch(value) else _WHOLE.fullmatch(value)
        return REMOVED if secrets_in(value) else path[1] if path else without_paths(value)
    if isinstance(value, Mapping):
        return {without_paths(key): _cleaned_at(key, each, kept) for key, each in value.items()}
    if isinstance(value, list | tuple):
        return [cleaned(each, kept) for each in value]
    return value


def _cleaned_at(key: str, value: Any, kept: frozenset[str]) -> Any:
    if isinstance(value, list | tuple):
        return [_cleaned_at(key, each, kept) for each in value]
    if isinstance(value, str) and key in kept and not secrets_in(value):
        return value
    return REMOVED if _is_secret(key, value) else cleaned(value, kept)


def _is_secret(key: str, value: Any) -> bool:
    """Return whether a value is a secret by its key, such as `api_key` or `accessToken`."""
    named = _SECRET_KEY.search(re.sub(r"(?<=[a-z])(?=[A-Z])", "_", key).lower())
    if named is None:
        return False
    if isinstance(value, str):
        return bool(_CREDENTIAL.fullmatch(value) if named[1].startswith("token") else value)
    return isinstance(value, int) and named[1].startswith("pass")
