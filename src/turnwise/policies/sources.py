"""Sources of weights and tokenizers: local directories and hub names, checked before loading."""

from __future__ import annotations

import difflib
import ssl
import urllib.error
import urllib.request
from collections.abc import Sequence
from pathlib import Path

from turnwise.errors import ModelError
from turnwise.policies.presets import PRESETS

ADAPTER_FILE = "adapter_config.json"
DEEPEST = 4
"""How many levels below a directory models are looked for, as `checkpoints/NAME/policies/POLICY` is
below a run."""
PATIENCE = 5.0
"""Seconds within which the hub must answer."""
TOKENIZER_FILES = ("tokenizer.json", "tokenizer.model", "vocab.json", "spiece.model", "vocab.txt")


def existing_source(model: str) -> str:
    """Return a local directory's full path, or a hub name as it is."""
    path = Path(model).expanduser()
    if path.is_dir():
        _check_directory(path)
        return str(path.resolve())
    before, _, policy = model.rpartition(":")
    run = Path(before).expanduser()
    if before and run.is_dir():
        found = [each for each in _models_below(run) if policy in each.parts]
        given = f"such as {_listed(found)}" if found else "with its config.json"
        raise ModelError(
            f"model {model!r} names a run's policy, as `turnwise eval` takes it: give the folder "
            f"of a model here, {given}"
        )
    looks_local = path.exists() or path.is_absolute() or model.startswith((".", "~"))
    if looks_local or model.count("/") > 1:
        presets = ", ".join(PRESETS)
        raise ModelError(
            f"model {model!r} is not a directory: {beside(path)}expected a Hugging Face model "
            "directory, a hub name "
            f"such as 'Qwen/Qwen3-0.6B', or one of {presets}; correct the path or the name"
        )
    _check_reachable(model)
    return model


def _check_reachable(model: str) -> None:
    """Refuse a hub name at once if it is neither cached nor reachable.

    The hub's own client tries again for most of a minute. Proxies of the environment are used.
    """
    from huggingface_hub import constants, try_to_load_from_cache

    files = ("config.json", ADAPTER_FILE)
    try:
        cached = any(isinstance(try_to_load_from_cache(model, file), str) for file in files)
    except ValueError as error:  # not a valid hub name
        raise cannot_load("model", model, error) from error
    if cached:
        return
    if constants.HF_HUB_OFFLINE:
        raise cannot_load("model", model, OSError("it is not in the cache, and the hub is off."))
    asked = urllib.request.Request(constants.ENDPOINT, method="HEAD")
    try:
        urllib.request.urlopen(asked, timeout=PATIENCE).close()
    except urllib.error.HTTPError:
        return  # the hub answers
    except OSError as error:
        if isinstance(error, urllib.error.URLError) and isinstance(error.reason, ssl.SSLError):
            return  # the hub's client may have other certificates
        reason = f"it is not in the cache, and {constants.ENDPOINT} cannot be reached."
        raise cannot_load("model", model, OSError(reason)) from error


def beside(path: Path) -> str:
    """Return a question with the nearest existing directory beside a missing path, or nothing."""
    if not path.parent.is_dir():
        return ""
    folders = [each.name for each in path.parent.iterdir() if each.is_dir()]
    near = difflib.get_close_matches(path.name, folders, n=1, cutoff=0.6)
    return f"did you mean '{path.parent / near[0]}'? Otherwise " if near else ""


def _check_directory(path: Path) -> None:
    """Refuse a directory without a config or without safetensors weights."""
    if (path / ADAPTER_FILE).is_file():
        return
    if not (path / "config.json").is_file():
        found = _models_below(path)
        given = (
            _listed(found) if found else "the directory that holds config.json and *.safetensors"
        )
        raise ModelError(f"model directory {path} has no config.json: give {given}")
    if not any(path.glob("*.safetensors")):
        found = "only pickled .bin weights" if any(path.glob("*.bin")) else "no weights"
        raise ModelError(
            f"model directory {path} holds {found}, but safetensors are expected: load the model "
            "once with transformers in a place you trust and `save_pretrained` it"
        )


def _models_below(path: Path) -> list[Path]:
    """Return the folders of models and adapters up to `DEEPEST` levels below a directory."""
    files = ("config.json", ADAPTER_FILE)
    levels = ("*/" * depth for depth in range(1, DEEPEST + 1))
    found = (file.parent for level in levels for name in files for file in path.glob(level + name))
    return sorted(set(found))


def _listed(folders: Sequence[Path]) -> str:
    """Return the first folders of several, as a choice."""
    first = " or ".join(f"'{folder}'" for folder in folders[:2])
    return f"{first}, or another of {len(folders)}" if len(folders) > 2 else first


def has_tokenizer(folder: Path) -> bool:
    """Whether a directory holds a tokenizer's vocabulary."""
    return any((folder / name).is_file() for name in TOKENIZER_FILES)


def cannot_load(what: str, source: str, error: Exception) -> ModelError:
    """Build the error for a source that transformers cannot load."""
    first = str(error).strip().splitlines() or [type(error).__name__]
    return ModelError(
        f"cannot load the {what} of {source!r}: {first[0]} Check the name, your network (or "
        "HF_HUB_OFFLINE) and access rights, or give a local directory with safetensors or one of "
        f"{', '.join(PRESETS)}"
    )
