"""The layers of a model that get an adapter.

Provides `adapter_targets`. PEFT puts adapters on every requested linear layer. Some models read the
weights of a layer without calling it, so that an adapter has no effect, and some layers return more
than a product. A short forward pass shows which layers are called.
"""

from __future__ import annotations

import re
from collections.abc import Mapping
from typing import Any

import torch
from torch import Tensor, nn
from transformers import PreTrainedModel
from transformers.pytorch_utils import Conv1D

from turnwise.errors import ModelError
from turnwise.policies.config import LoraSettings

PROBE = 24
"""Tokens of the forward pass."""


def adapter_targets(model: PreTrainedModel, settings: LoraSettings, source: str) -> list[str] | str:
    """Return the targets in PEFT's form: "all-linear", or names of layers.

    Raises:
        ModelError: if a layer is named that does not exist or cannot have an adapter, or if no
            layer can.
    """
    linear = {n: m for n, m in model.named_modules() if isinstance(m, nn.Linear | Conv1D)}
    unfit = _unfit(model, linear)
    fit = sorted({_last(name) for name in linear} - {_last(name) for name in unfit})
    if settings.targets == "all-linear":
        head = model.get_output_embeddings()
        chosen = [n for n, module in linear.items() if n not in unfit and module is not head]
        if not chosen:
            raise ModelError(
                f"lora: {source!r} has no linear layer that an adapter can be put on: train all "
                "weights, without `lora`"
            )
        return chosen if unfit else "all-linear"
    absent = sorted(set(settings.targets) - {_last(name) for name in linear})
    if absent or not settings.targets:
        raise ModelError(
            f"lora.targets = {list(settings.targets)}: {source!r} has no linear layer named "
            f"{', '.join(absent) or '(nothing given)'}; choose among {', '.join(fit)}, "
            "or use 'all-linear'"
        )
    for name, reason in unfit.items():
        if _last(name) in settings.targets:
            raise ModelError(
                f"lora.targets = {list(settings.targets)}: {name} of {source!r} {reason}; choose "
                f"among {', '.join(fit)}, or use 'all-linear'"
            )
    return list(settings.targets)


def _unfit(model: PreTrainedModel, linear: Mapping[str, nn.Module]) -> dict[str, str]:
    """Return the linear layers that cannot have an adapter, with the reasons."""
    found = _outputs(model, linear)
    called = {_kind(name) for name in found}  # a short pass calls only a few of many experts
    unfit: dict[str, str] = {}
    for name in linear:
        mixer = model.get_submodule(name.rpartition(".")[0])
        if hasattr(mixer, "A_log") and hasattr(mixer, "D") and _last(name) != "in_proj":
            unfit[name] = "is part of a Mamba mixer, whose kernels read its weights directly"
        elif _kind(name) not in called:
            unfit[name] = "is not called in a forward pass: its weights are read directly"
        elif name in found and not isinstance(found[name], Tensor):
            unfit[name] = "returns more than its product"
        elif name in found and found[name].ndim == 0:
            unfit[name] = "returns its product in another shape"
    return unfit


@torch.no_grad()
def _outputs(model: PreTrainedModel, linear: Mapping[str, nn.Module]) -> dict[str, Any]:
    """Return what linear layers returned in a short pass, by name, without its numbers.

    A scalar stands for a product in another shape than an adapter's (DeepSeek-V4's groups).
    """
    found: dict[str, Any] = {}
    vocabulary = int(model.config.get_text_config().vocab_size)
    ids = (torch.arange(PROBE, device=model.device) * 7919 % vocabulary)[None]

    def keep(name: str) -> Any:
        def kept(module: nn.Module, given: Any, out: Any) -> None:
            if isinstance(out, Tensor):
                whole = not given or out.shape == (*given[0].shape[:-1], _width(module))
                out = out[..., :0] if whole else out.new_zeros(())
            found[name] = out

        return kept

    hooks = [module.register_forward_hook(keep(name)) for name, module in linear.items()]
    try:
        model(input_ids=ids, use_cache=False)
    finally:
        for hook in hooks:
            hook.remove()
    return found


def _width(module: nn.Module) -> int:
    """Return the output width of a linear layer."""
    return int(module.nf if isinstance(module, Conv1D) else module.out_features)  # pyright: ignore


def _last(name: str) -> str:
    return name.rpartition(".")[2]


def _kind(name: str) -> str:
    """Return a layer's name without the numbers of its layer and expert."""
    return re.sub(r"\b\d+\b", "#", name)
