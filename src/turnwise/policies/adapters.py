"""LoRA adapters: new or saved weights on a base model, and the base that a saved adapter names.

PEFT accepts targets of which only one exists, and settings that contradict a saved adapter. This
module refuses both.
"""

from __future__ import annotations

from collections.abc import Mapping
from pathlib import Path

import torch
from peft import LoraConfig, PeftConfig, PeftModel, get_peft_model
from transformers import PreTrainedModel

from turnwise.errors import ModelError
from turnwise.kernels.wrapped import Model
from turnwise.policies.config import LoraSettings, PolicyConfig
from turnwise.policies.merging import merged_model, read_merged
from turnwise.policies.sources import ADAPTER_FILE, existing_source
from turnwise.policies.targets import adapter_targets


def adapter_base(source: str) -> str:
    """Return the source of the base that a saved adapter names."""
    base = PeftConfig.from_pretrained(source).base_model_name_or_path
    if not base:
        raise ModelError(
            f"adapter {source} does not name its base: set base_model_name_or_path in "
            f"{ADAPTER_FILE}"
        )
    if Path(base).is_absolute() and not Path(base).is_dir():
        raise ModelError(
            f"adapter {source} names the base {base}, which is not there: put the base there, or "
            f"correct base_model_name_or_path in {ADAPTER_FILE}"
        )
    return existing_source(base)


def with_adapter(
    model: PreTrainedModel, config: PolicyConfig, adapter: str | None, seed: int
) -> Model:
    """Return the model with its saved or new adapter, or unchanged without one."""
    if adapter is not None:
        _check_same_lora(config.lora, adapter)
        for below in read_merged(Path(adapter)):
            loaded = merged_model(_saved(model, str(below.path), trainable=False))
            assert isinstance(loaded, PreTrainedModel)
            model = loaded
        return _saved(model, adapter, trainable=config.trainable)
    if config.lora is None:
        return model
    settings = config.lora
    targets = adapter_targets(model, settings, config.model)
    _check_tied_head(model, settings, config.model)
    with torch.random.fork_rng():
        torch.manual_seed(seed)
        try:
            wrapped = get_peft_model(
                model,
                LoraConfig(
                    r=settings.rank,
                    lora_alpha=settings.alpha,  # pyright: ignore[reportArgumentType]
                    lora_dropout=settings.dropout,
                    target_modules=targets,
                    task_type="CAUSAL_LM",
                ),
            )
        except (ValueError, TypeError, NotImplementedError) as error:
            raise ModelError(
                f"lora.targets = {settings.targets!r}: PEFT cannot put an adapter on "
                f"{config.model!r} ({str(error).strip().splitlines()[0]}): name other layers"
            ) from error
    assert isinstance(wrapped, PeftModel)
    return wrapped


def _saved(model: PreTrainedModel, adapter: str, *, trainable: bool) -> PeftModel:
    """Return the model with a saved adapter."""
    try:
        return PeftModel.from_pretrained(model, adapter, is_trainable=trainable)
    except (ValueError, RuntimeError) as error:
        raise ModelError(
            f"adapter {adapter} does not fit its base {type(model).__name__} "
            f"({str(error).strip().splitlines()[0]}): give the base that it was trained on"
        ) from error


def _check_tied_head(model: PreTrainedModel, settings: LoraSettings, source: str) -> None:
    """Refuse to merge an adapter into an output layer that shares the embedding's weights."""
    if settings.targets == "all-linear":
        return
    head, embedding = model.get_output_embeddings(), model.get_input_embeddings()
    tied = head is not None and head.weight is embedding.weight
    named = [name.rsplit(".", 1)[-1] for name, module in model.named_modules() if module is head]
    if settings.merge_warmup and tied and set(named) & set(settings.targets):
        raise ModelError(
            f"lora.merge_warmup = true with targets {list(settings.targets)}: {source!r} uses the "
            f"weights of {named[0]} as its embedding too, which merging would change: leave "
            f"{named[0]} out of the targets"
        )


def _check_same_lora(settings: LoraSettings | None, adapter: str) -> None:
    """Refuse `lora` settings that differ from those of the saved adapter being loaded."""
    saved = PeftConfig.from_pretrained(adapter)
    if not isinstance(saved, LoraConfig):
        raise ModelError(f"adapter {adapter} is of type {saved.peft_type}: expected LoRA")
    if settings is None:
        return
    asked = {"rank": settings.rank, "alpha": settings.alpha, "dropout": settings.dropout}
    has = {"rank": saved.r, "alpha": saved.lora_alpha, "dropout": saved.lora_dropout}
    if settings.targets != "all-linear":
        asked["targets"] = sorted(settings.targets)
        has["targets"] = sorted(saved.target_modules or ())
    if asked != has:
        raise ModelError(
            f"lora asks for {_listed(asked)}, but the adapter {adapter} has {_listed(has)}: remove "
            "`lora`, the saved adapter brings its own settings"
        )
    if settings.merge_warmup and (saved.use_dora or saved.lora_bias or saved.modules_to_save):
        raise ModelError(
            f"lora.merge_warmup = true, but the adapter {adapter} is more than two factors (DoRA, "
            "biases or whole modules): set it to false"
        )


def _listed(values: Mapping[str, object]) -> str:
    """Return names and values as a phrase."""
    parts = [f"{name} {value}" for name, value in values.items()]
    return f"{', '.join(parts[:-1])} and {parts[-1]}"
