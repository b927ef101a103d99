"""Adapters: new or saved LoRA weights put on a base, and the base that a saved adapter names.

Owns everything that PEFT is asked at load time. PEFT accepts targets of which only one exists, and
settings that contradict a saved adapter; both are refused here.
"""

from __future__ import annotations

import torch
from peft import LoraConfig, PeftConfig, PeftModel, get_peft_model
from torch import nn
from transformers import PreTrainedModel

from turnwise.errors import ModelError
from turnwise.policies.config import LoraSettings, PolicyConfig
from turnwise.policies.sources import ADAPTER_FILE, existing_source


def adapter_base(source: str) -> str:
    """Return the source of the base that a saved adapter names."""
    base = PeftConfig.from_pretrained(source).base_model_name_or_path
    if not base:
        raise ModelError(
            f"adapter {source} does not name its base: set base_model_name_or_path in "
            f"{ADAPTER_FILE}"
        )
    return existing_source(base)


def with_adapter(
    model: PreTrainedModel, config: PolicyConfig, adapter: str | None, seed: int
) -> PreTrainedModel | PeftModel:
    """Return the model with its saved or new adapter, or as it is."""
    if adapter is not None:
        _check_same_lora(config.lora, adapter)
        return PeftModel.from_pretrained(model, adapter, is_trainable=config.trainable)
    if config.lora is None:
        return model
    _check_targets(model, config.lora, config.model)
    settings = config.lora
    with torch.random.fork_rng():
        torch.manual_seed(seed)
        wrapped = get_peft_model(
            model,
            LoraConfig(
                r=settings.rank,
                lora_alpha=settings.alpha,  # pyright: ignore[reportArgumentType]
                lora_dropout=settings.dropout,
                target_modules=_target_modules(settings),
                task_type="CAUSAL_LM",
            ),
        )
    assert isinstance(wrapped, PeftModel)
    return wrapped


def _target_modules(settings: LoraSettings) -> list[str] | str:
    """Return the targets in PEFT's form."""
    return settings.targets if isinstance(settings.targets, str) else list(settings.targets)


def _check_targets(model: PreTrainedModel, settings: LoraSettings, source: str) -> None:
    """Refuse adapter targets that the model does not have; PEFT needs only one of them to exist."""
    if settings.targets == "all-linear":
        return
    linear = {
        name.rsplit(".", 1)[-1] for name, m in model.named_modules() if isinstance(m, nn.Linear)
    }
    absent = sorted(set(settings.targets) - linear)
    if absent or not settings.targets:
        raise ModelError(
            f"lora.targets = {list(settings.targets)}: {source!r} has no linear layer named "
            f"{', '.join(absent) or '(nothing given)'}; choose among {', '.join(sorted(linear))}, "
            "or use 'all-linear'"
        )


def _check_same_lora(settings: LoraSettings | None, adapter: str) -> None:
    """Refuse `lora` settings that differ from those of the saved adapter being loaded."""
    saved = PeftConfig.from_pretrained(adapter)
    if not isinstance(saved, LoraConfig):
        raise ModelError(f"adapter {adapter} is of type {saved.peft_type}: expected LoRA")
    if settings is not None and (settings.rank, settings.alpha) != (saved.r, saved.lora_alpha):
        raise ModelError(
            f"lora asks for rank {settings.rank} and alpha {settings.alpha}, but the adapter "
            f"{adapter} has rank {saved.r} and alpha {saved.lora_alpha}: remove `lora`, the saved "
            "adapter brings its own settings"
        )
