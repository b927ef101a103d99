"""The type of a model with or without PEFT adapters, and access to the model inside.

Provides `Model` and `base_of`.
"""

from __future__ import annotations

from typing import TypeAlias

from peft import PeftModel
from transformers import PreTrainedModel

from turnwise.errors import ModelError

Model: TypeAlias = PreTrainedModel | PeftModel


def base_of(model: Model) -> PreTrainedModel:
    """Return the transformers model inside `model`; PEFT injects adapters into its layers.

    Raises:
        ModelError: if the model is not one of transformers.
    """
    base = model.get_base_model() if isinstance(model, PeftModel) else model
    if not isinstance(base, PreTrainedModel):
        raise ModelError(f"expected a transformers model, got {type(base).__name__}")
    return base
