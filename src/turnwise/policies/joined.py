"""The sum of adapters that were trained one after the other, as one adapter in PEFT's format.

Provides `write_joined`. An adapter that was trained on a base into which others were merged gives
other outputs on the bare base. The sum of all of them gives the same outputs there, to rounding:
their factors are put side by side, so the rank is the sum of their ranks.
"""

from __future__ import annotations

import json
from collections.abc import Mapping, Sequence
from pathlib import Path
from typing import Any

import torch
from safetensors.torch import load_file, save_file

from turnwise.errors import ModelError
from turnwise.policies.merging import WEIGHTS_FILE
from turnwise.policies.sources import ADAPTER_FILE

_PLAIN = ("use_dora", "lora_bias", "use_rslora", "modules_to_save", "rank_pattern", "alpha_pattern")
"""Options of LoRA under which an adapter is more than two factors with one scale."""


def write_joined(adapters: Sequence[Path], folder: Path, base: str | None) -> None:
    """Write the sum of saved LoRA adapters into `folder`: their config and their weights.

    Args:
        adapters: the folders of the adapters, in the order in which they were trained.
        folder: exists.
        base: the name of their base on the hub; None if it has none.

    Raises:
        ModelError: if there are several, and one has other layers than the others or is more than
            two factors.
    """
    configs = [json.loads((each / ADAPTER_FILE).read_text(encoding="utf-8")) for each in adapters]
    weights = [load_file(each / WEIGHTS_FILE) for each in adapters]
    config, joined = configs[-1], weights[-1]
    if len(adapters) > 1:
        _check_plain(adapters, configs, weights)
        rank = sum(each["r"] for each in configs)
        scale = config["lora_alpha"] / config["r"]
        joined = {name: _side_by_side(name, configs, weights, scale) for name in joined}
        config = config | {"r": rank, "lora_alpha": scale * rank}
    save_file(joined, folder / WEIGHTS_FILE, metadata={"format": "pt"})
    config = config | {"base_model_name_or_path": base, "inference_mode": True}
    text = json.dumps(config, indent=2, sort_keys=True) + "\n"
    (folder / ADAPTER_FILE).write_text(text, encoding="utf-8")


def _side_by_side(
    name: str,
    configs: Sequence[Mapping[str, Any]],
    weights: Sequence[Mapping[str, torch.Tensor]],
    scale: float,
) -> torch.Tensor:
    """Return one factor of the sum; the scales of earlier adapters go into their second factors."""
    if ".lora_A." in name:
        return torch.cat([each[name] for each in weights], dim=0).contiguous()
    scaled = [
        each[name] * (config["lora_alpha"] / config["r"] / scale)
        for config, each in zip(configs, weights, strict=True)
    ]
    return torch.cat(scaled, dim=1).contiguous()


def _check_plain(
    adapters: Sequence[Path],
    configs: Sequence[Mapping[str, Any]],
    weights: Sequence[Mapping[str, torch.Tensor]],
) -> None:
    for adapter, config, each in zip(adapters, configs, weights, strict=True):
        more = [option for option in _PLAIN if config.get(option)]
        if more or each.keys() != weights[-1].keys():
            what = f"has {', '.join(more)}" if more else "is on other layers"
            raise ModelError(
                f"adapter {adapter} {what}, so its sum with {adapters[-1]} is no plain LoRA "
                "adapter: merge both into the base with PEFT (examples/04_a_real_model.py)"
            )
