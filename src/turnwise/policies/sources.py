"""Where weights and tokenizers come from: local directories and hub names, checked before loading.

Owns the sentences that refuse a source. Loads nothing.
"""

from __future__ import annotations

from pathlib import Path

from turnwise.errors import ModelError
from turnwise.policies.nano import PRESETS

ADAPTER_FILE = "adapter_config.json"
TOKENIZER_FILES = ("tokenizer.json", "tokenizer.model", "vocab.json", "spiece.model", "vocab.txt")


def existing_source(model: str) -> str:
    """Return a local directory's full path, or a hub name as it is."""
    path = Path(model).expanduser()
    if path.is_dir():
        _check_directory(path)
        return str(path.resolve())
    looks_local = path.exists() or path.is_absolute() or model.startswith((".", "~"))
    if looks_local or model.count("/") > 1:
        presets = ", ".join(PRESETS)
        raise ModelError(
            f"model {model!r} is no directory: expected a Hugging Face model directory, a hub name "
            f"such as 'Qwen/Qwen3-0.6B', or one of {presets}; correct the path or the name"
        )
    return model


def _check_directory(path: Path) -> None:
    """Refuse a directory without a config or without safetensors weights."""
    if (path / ADAPTER_FILE).is_file():
        return
    if not (path / "config.json").is_file():
        raise ModelError(
            f"model directory {path} has no config.json: give the directory that holds config.json "
            "and *.safetensors"
        )
    if not any(path.glob("*.safetensors")):
        found = "only pickled .bin weights" if any(path.glob("*.bin")) else "no weights"
        raise ModelError(
            f"model directory {path} holds {found}, but safetensors are expected: load the model "
            "once with transformers in a place you trust and `save_pretrained` it"
        )


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
