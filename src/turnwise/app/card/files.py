"""The files that a folder to be published may hold, and nothing else.

Provides `published_files`, which refuses others, `is_published`, `published_scores`, `listed`, and
the patterns of the names of files.
"""

from __future__ import annotations

import json
from collections.abc import Sequence
from fnmatch import fnmatchcase
from pathlib import Path

from turnwise.errors import RunError
from turnwise.runs import RunScores
from turnwise.utils.redaction import cleaned, secrets_in

README = "README.md"
HERE = 'here = "."  # this folder'
"""The line of a card's code that names its folder."""
MODEL_FILES = (
    *("config.json", "generation_config.json", "model.safetensors"),
    *("model-*-of-*.safetensors", "model.safetensors.index.json"),
)
TOKENIZER_FILES = (
    *("tokenizer.json", "tokenizer_config.json", "special_tokens_map.json", "added_tokens.json"),
    *("chat_template.jinja", "vocab.json", "vocab.txt", "merges.txt", "*.model"),
)
_MODEL = (*MODEL_FILES, *TOKENIZER_FILES, "adapter_config.json", "adapter_model.safetensors")
_CARD = (*_MODEL, README, "recipe.toml", "eval.json", "curve.png", "episode.gif")
DATA = "train.jsonl"
"""The file of a data set."""
_SKIPPED = ("__pycache__", ".DS_Store", ".cache")
"""Names that systems and the hub's client leave behind, which are not uploaded."""


def matches(name: str, patterns: Sequence[str]) -> bool:
    """Return whether a file's name fits one of the patterns.

    Example:
        >>> matches("model-00001-of-00002.safetensors", MODEL_FILES), matches(".env", MODEL_FILES)
        (True, False)
    """
    return any(fnmatchcase(name, pattern) for pattern in patterns)


def published_scores(scores: RunScores) -> str:
    """Return the `eval.json` of a card: scores without paths and secrets."""
    return json.dumps(cleaned(scores.model_dump()), indent=2) + "\n"


def published_files(folder: Path, *, data: bool = False) -> list[Path]:
    """Return the files of a card's folder, relative to it, after checking each.

    Args:
        folder: with a README.md.
        data: whether it is the folder of a data set, and not of a model.

    Raises:
        RunError: if there is no such folder, no card in it, or a file that does not belong to a
            card or seems to hold a secret.
    """
    if not folder.is_dir():
        what = "a file" if folder.exists() else "not there"
        raise RunError(
            f"'{folder}' is {what}: expected the folder that `turnwise card RUN` or "
            "`turnwise data NAME --out FOLDER` writes, or a run"
        )
    if not (folder / README).is_file():
        raise RunError(
            f"'{folder}' has no {README}: expected the folder that `turnwise card RUN` or "
            "`turnwise data NAME --out FOLDER` writes"
        )
    found = [
        file.relative_to(folder)
        for file in sorted(folder.rglob("*"))
        if (file.is_symlink() or not file.is_dir())
        and not set(file.relative_to(folder).parts) & set(_SKIPPED)
    ]
    wrong = [str(file) for file in found if not _belongs(folder, file, data=data)]
    if wrong:
        raise RunError(
            f"'{folder}' holds {listed(wrong)}, which {'is' if len(wrong) == 1 else 'are'} no "
            f"part of a {'data set' if data else 'model'} card: move "
            f"{'it' if len(wrong) == 1 else 'them'} elsewhere"
        )
    for file in found:
        _check_secrets(folder / file)
    return found


def is_published(file: Path, *, data: bool = False) -> bool:
    """Return whether a path, relative to a card's folder, is one of the files that a card has.

    Example:
        >>> is_published(Path("ant/adapter_config.json")), is_published(Path("notes/README.md"))
        (True, False)
    """
    patterns = (README, DATA) if data else _CARD if len(file.parts) == 1 else _MODEL
    return len(file.parts) <= (1 if data else 2) and matches(file.name, patterns)


def _belongs(folder: Path, file: Path, *, data: bool) -> bool:
    """Return whether a file may be in a card's folder; models may be one folder below it."""
    plain = (folder / file).is_file() and not (folder / file).is_symlink()
    return plain and is_published(file, data=data)


def _check_secrets(file: Path) -> None:
    if file.suffix not in (".md", ".toml", ".json", ".jsonl", ".jinja"):
        return
    with file.open(encoding="utf-8", errors="replace") as lines:  # data sets can be large
        found = next((kinds[0] for line in lines if (kinds := secrets_in(line))), "")
    if found:
        raise RunError(f"'{file}' seems to hold {found}: remove it before the folder is uploaded")


def listed(names: Sequence[str]) -> str:
    """Return names for a message, at most four of them."""
    most = 4
    more = f" and {len(names) - most} more" if len(names) > most else ""
    return f"{', '.join(names[:most])}{more}"
