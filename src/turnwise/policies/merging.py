"""Merging of an adapter into the frozen weights, with a new adapter on top of them.

Merging is done in place. A note in the directory of an adapter names the adapters that must be
merged into the base first. PEFT stores no such record: an adapter trained on merged weights would
load on the bare base without an error, and give other outputs.
"""

from __future__ import annotations

import hashlib
import json
import os
from collections.abc import Sequence
from dataclasses import dataclass
from pathlib import Path

import torch
from peft import PeftModel
from peft.tuners.lora import LoraLayer
from torch import nn

from turnwise.errors import ModelError
from turnwise.policies.sources import ADAPTER_FILE

MERGED_FILE = "merge_first.json"
WEIGHTS_FILE = "adapter_model.safetensors"


@dataclass(frozen=True, kw_only=True, slots=True)
class Merged:
    """An adapter that was merged into the base: where it is saved, and the hash of its weights."""

    path: Path
    digest: str

    @classmethod
    def of(cls, folder: Path) -> Merged:
        """Return the entry of the adapter saved in `folder`."""
        with (folder / WEIGHTS_FILE).open("rb") as file:
            digest = hashlib.file_digest(file, lambda: hashlib.blake2b(digest_size=16))
        return cls(path=folder.resolve(), digest=digest.hexdigest())


def merge_in_place(model: PeftModel, seed: int) -> None:
    """Merge the adapter into the base's weights, and initialise a new one without effect.

    Modules and the adapter's own tensors stay the same objects. The merged weights are new tensors:
    others that share the base keep theirs. They equal `merge_and_unload`'s to the bit.
    """
    (adapter,) = model.active_adapters
    drawn = torch.Generator().manual_seed(seed)
    with torch.no_grad():
        for layer in _layers(model):
            _own_weight(layer)
            layer.merge(adapter_names=[adapter])
            layer.merged_adapters.clear()  # PEFT must not unmerge the new adapter
            down, up = _matrix(layer.lora_A[adapter]), _matrix(layer.lora_B[adapter])
            bound = down.shape[1] ** -0.5  # PEFT's initialisation, drawn on the CPU for all devices
            down.copy_(torch.empty(down.shape).uniform_(-bound, bound, generator=drawn))
            up.zero_()


def merged_model(model: PeftModel) -> nn.Module:
    """Return the base with the adapter merged; others that share the base keep their weights."""
    for layer in _layers(model):
        _own_weight(layer)
    return model.merge_and_unload()


def write_merged(folder: Path, merged: Sequence[Merged], *, place: Path) -> None:
    """Write the note of adapters to merge first into `folder`, which will be moved to `place`.

    Paths are relative to `place`, so that a run folder can be moved.
    """
    if merged:
        entries = [
            {"adapter": os.path.relpath(m.path, place.resolve()), "blake2b": m.digest}
            for m in merged
        ]
        (folder / MERGED_FILE).write_text(json.dumps(entries, indent=2) + "\n", encoding="utf-8")


def read_merged(folder: Path) -> tuple[Merged, ...]:
    """Return the adapters to merge into the base before the one in `folder`, in order.

    Raises:
        ModelError: if one of them is not there or not the one that was merged, or if the note is
            damaged.
    """
    note = folder / MERGED_FILE
    if not note.is_file():
        return ()
    try:
        entries = json.loads(note.read_text(encoding="utf-8"))
        noted = [(str(entry["adapter"]), str(entry["blake2b"])) for entry in entries]
    except (ValueError, KeyError, TypeError) as error:
        raise ModelError(
            f"{note} cannot be read ({error}): expected a list of adapter and blake2b, in the "
            "order of merging; write it again, or save the adapter again"
        ) from error
    found: list[Merged] = []
    for place, digest in noted:
        path = (folder / place).resolve()
        if not (path / ADAPTER_FILE).is_file() or not (path / WEIGHTS_FILE).is_file():
            raise ModelError(
                f"adapter {folder} was trained on weights with the adapter {path} merged in, which "
                f"is not there: put it there, or correct its path in {note}"
            )
        merged = Merged.of(path)
        if merged.digest != digest:
            raise ModelError(
                f"adapter {folder} was trained on weights with another adapter merged in than the "
                f"one that is now in {path}: put the former one there, or correct the path in "
                f"{note}"
            )
        found.append(merged)
    return tuple(found)


def _layers(model: PeftModel) -> list[LoraLayer]:
    return [module for module in model.modules() if isinstance(module, LoraLayer)]


def _matrix(factor: nn.Module) -> nn.Parameter:
    weight = factor.weight
    assert isinstance(weight, nn.Parameter), type(factor)
    return weight


def _own_weight(layer: LoraLayer) -> None:
    """Give a layer its own frozen weight, which may be changed."""
    base = layer.get_base_layer()
    assert isinstance(base.weight, nn.Parameter), type(base)
    base.weight = nn.Parameter(base.weight.detach().clone(), requires_grad=False)
