"""The folder of a search: its settings, its history and its result.

Provides `open_folder`, `read_config`, `write_result` and `read_result`. A folder belongs to one
search: other settings are refused.
"""

from __future__ import annotations

import json
import tomllib
from collections.abc import Iterator, Mapping
from contextlib import contextmanager
from dataclasses import asdict, dataclass
from pathlib import Path
from typing import Any

import tomli_w

from turnwise.errors import ConfigError, RunError
from turnwise.runs.files import json_object, locked, write_atomically
from turnwise.runs.folder import SEARCH, check_own, claim_folder
from turnwise.search.config import SearchConfig
from turnwise.search.history import HISTORY
from turnwise.settings import parse
from turnwise.utils.text import printable

SETTINGS, RESULT, LOCK = SEARCH, "result.json", "run.lock"


@dataclass(frozen=True, kw_only=True, slots=True)
class Result:
    """What a search found, and what it cost.

    Attributes:
        task: its name.
        proposer: who proposed, a method, a model's name or a run, and what it was shown.
        seed: of the search.
        params: the returned policy, by the env's own numbers of states and actions; None if its
            parameters are not those of the search.
        score: its mean return in the search.
        stderr: the standard error of that.
        score_episodes: the episodes of that.
        fresh: its mean return in fresh episodes.
        fresh_stderr: the standard error of that.
        fresh_episodes: the number of fresh episodes.
        exact: its expected return, where the env publishes its dynamics.
        optimum: the expected return of the best policy, where that can be computed.
        mean_best: the mean over evaluations of the score of the best policy so far.
        mean_best_exact: the same of its expected return, where that can be computed.
        evaluations: the evaluations of the search, those played again and lost included.
        lost: the evaluations in which a model gave no policy.
        policies: the policies that were tried.
        episodes: the episodes that were played, without the fresh ones.
        calls: the model calls.
        failed_calls: those that brought no reply.
        refused_replies: replies that were unreadable, or repeated an earlier policy.
        prompt_tokens: of all prompts.
        completion_tokens: of all replies.
        cost: the price of the tokens, by the prices that were given.
        seconds: of the last process that worked on it.
    """

    task: str
    proposer: str
    seed: int
    params: list[float] | list[int] | None
    score: float
    stderr: float | None
    score_episodes: int
    fresh: float
    fresh_stderr: float
    fresh_episodes: int
    exact: float | None
    optimum: float | None
    mean_best: float
    mean_best_exact: float | None
    evaluations: int
    lost: int
    policies: int
    episodes: int
    calls: int
    failed_calls: int
    refused_replies: int
    prompt_tokens: int
    completion_tokens: int
    cost: float
    seconds: float


@contextmanager
def open_folder(config: SearchConfig, folder: Path | None, root: Path) -> Iterator[Path]:
    """Lock the folder of a search, which is made if it is new, and yield it.

    Args:
        config: the search.
        folder: of this search, or new; None makes one in `root`.
        root: where new folders go.

    Raises:
        RunError: if it belongs to something else, or to another process.
    """
    if folder is None:
        folder = claim_folder(root, f"search-{_bare(config.task)}-{_bare(config.proposer)}")
    else:
        _check(config, folder)
        folder.mkdir(parents=True, exist_ok=True)
    busy = "wait for it, stop it, or choose another folder with --folder"
    with locked(folder / LOCK, f"search '{folder}'", busy):
        _check(config, folder)  # another process may have begun it since
        if not (folder / SETTINGS).is_file():
            plain = config.model_dump(mode="json", exclude_none=True)
            write_atomically(folder / SETTINGS, tomli_w.dumps(plain))
        yield folder


def is_search(folder: Path) -> bool:
    """Whether a folder is one of a search."""
    return (folder / SETTINGS).is_file()


def read_config(folder: Path) -> SearchConfig:
    """Return the settings of the search in a folder.

    Raises:
        RunError: if there is none, or it is damaged.
    """
    path = folder / SETTINGS
    try:
        data = tomllib.loads(path.read_text(encoding="utf-8"))
    except FileNotFoundError:
        raise RunError(
            f"'{folder}' is no folder of a search, it has no {SETTINGS}: give one that `turnwise "
            "search` made"
        ) from None
    except ValueError:  # neither TOML nor UTF-8
        raise RunError(f"'{path}' is damaged: restore it, or begin in another folder") from None
    try:
        return parse(SearchConfig, data, f"'{path}'")
    except ConfigError as error:
        raise RunError(f"{error}: restore it, or begin in another folder") from None


def write_result(folder: Path, result: Result) -> None:
    """Write what a search found."""
    write_atomically(folder / RESULT, json.dumps(asdict(result), indent=2, allow_nan=False) + "\n")


def read_result(folder: Path) -> Result | None:
    """Return what a search found; None while it is not finished.

    Raises:
        RunError: if the file is damaged.
    """
    path = folder / RESULT
    if not path.is_file():
        return None
    found: Mapping[str, Any] | None = json_object(path.read_bytes())
    if found is None or set(found) != set(Result.__dataclass_fields__):
        raise RunError(f"'{path}' is damaged: remove it, and go on with the search")
    return Result(**found)


def _check(config: SearchConfig, folder: Path) -> None:
    """Refuse a folder of something else before anything is written to it."""
    check_own(folder, SETTINGS, {LOCK, f".{SETTINGS}.partial"})
    if not is_search(folder):
        return
    ours, theirs = (_flat(c.model_dump(mode="json")) for c in (config, read_config(folder)))
    keys = [key for key in {**theirs, **ours} if ours.get(key) != theirs.get(key)]
    if keys:
        key = keys[0]
        raise RunError(
            f"'{folder}' is a search with {key} = {theirs.get(key)!r}, and this command asks for "
            f"{ours.get(key)!r}: choose another folder, or go on with it by `turnwise search "
            f"--resume {folder}`"
        )


def _flat(table: Mapping[str, Any], before: str = "") -> dict[str, Any]:
    """Return the values of nested tables by their dotted keys."""
    found: dict[str, Any] = {}
    for key, value in table.items():
        if isinstance(value, Mapping):
            found |= _flat(value, f"{before}{key}.")
        else:
            found[f"{before}{key}"] = value
    return found


def _bare(name: str) -> str:
    """Return a name as a part of a folder's name."""
    kept = "".join(c if c.isascii() and c.isalnum() else "-" for c in printable(name))
    return kept.strip("-")[-40:].strip("-") or "search"


__all__ = [
    "HISTORY", "RESULT", "SETTINGS", "Result", "is_search", "open_folder", "read_config",
    "read_result", "write_result",
]  # fmt: skip
