"""Models as they are handed about: transformers' own, or with PEFT's adapters around them.

Owns the way to the one inside.
"""

from __future__ import annotations

from typing import TypeAlias

from peft import PeftModel
from transformers import PreTrainedModel

from turnwise.errors import ModelError

Model: TypeAlias = PreTrainedModel | PeftModel


def base_of(model: Model) -> PreTrainedModel:
    """Return the transformers model inside; adapters are injected into its layers.

    Raises:
        ModelError: if it is another library's.
    """
    base = model.get_base_model() if isinstance(model, PeftModel) else model
    if not isinstance(base, PreTrainedModel):
        raise ModelError(f"expected a transformers model, got {type(base).__name__}")
    return base
