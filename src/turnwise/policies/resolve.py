"""The choice of device, precision, attention and context: the meaning of "auto", and refusals.

Provides one pure function for each. No model is loaded.
"""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any

import torch

from turnwise.errors import ModelError
from turnwise.kernels import longest_sequence

SMALL = 50_000_000
"""Models with fewer parameters use float32 on every device with "auto" precision."""


def resolve_device(asked: str) -> torch.device:
    """Return the device for `asked`: "auto" is CUDA if there is a card, else the CPU.

    Example:
        >>> resolve_device("cpu")
        device(type='cpu')
    """
    available = {
        "cpu": True,
        "cuda": torch.cuda.is_available(),
        "mps": torch.backends.mps.is_available(),
    }
    chosen = ("cuda" if available["cuda"] else "cpu") if asked == "auto" else asked
    if not available[chosen]:
        raise ModelError(
            f"device = {asked!r} is not available here: install a torch built for it, or use "
            "device = 'auto'"
        )
    return torch.device(chosen)


def resolve_dtype(
    asked: str, device: str, *, has_bf16: bool, parameters: int, trainable: bool
) -> torch.dtype:
    """Return the precision for `asked`.

    "auto" on CUDA, from 50 million parameters: bfloat16 where the card has it; elsewhere float16
    for a frozen policy and float32 for one in training, which would underflow.

    Example:
        >>> resolve_dtype("auto", "cuda", has_bf16=True, parameters=10**9, trainable=True)
        torch.bfloat16
    """
    table = {"float32": torch.float32, "bfloat16": torch.bfloat16, "float16": torch.float16}
    if asked != "auto":
        return table[asked]
    if device != "cuda" or parameters < SMALL:
        return torch.float32
    if has_bf16:
        return torch.bfloat16
    return torch.float32 if trainable else torch.float16


def resolve_attention(asked: str, sizes: Mapping[str, Any], *, has_sdpa: bool, model: str) -> str:
    """Return the attention implementation for `asked`, given the text model's config as a dict.

    Example:
        >>> resolve_attention("auto", {"attn_logit_softcapping": 50.0}, has_sdpa=True, model="g")
        'eager'
    """
    softcap = sizes.get("attn_logit_softcapping") is not None
    if asked == "auto":
        return "sdpa" if has_sdpa and not softcap else "eager"
    if asked == "sdpa" and (softcap or not has_sdpa):
        reason = "soft-caps its attention logits" if softcap else "has no SDPA attention"
        raise ModelError(
            f"attention = 'sdpa' is wrong for {model!r}, which {reason}: use 'auto' or 'eager'"
        )
    return asked


def resolve_context(asked: int | None, config: Any, tokenizer_limit: int, *, model: str) -> int:
    """Return the longest sequence of prompt and completion, given the text model's config.

    Dynamic NTK stretches a model's positions by its `factor`, if a longer context is asked for.

    Raises:
        ModelError: if `asked` is more than the model has positions for.
    """
    own = longest_sequence(config)
    if asked is None:
        return tokenizer_limit if own is None else own
    rotary = config.to_dict().get("rope_parameters") or {}
    dynamic = "dynamic" in str(rotary.get("rope_type"))
    limit = own if own is None or not dynamic else int(own * float(rotary.get("factor") or 1))
    if limit is not None and asked > limit:
        raise ModelError(
            f"context = {asked}, but {model!r} has positions for {limit} tokens: set context to "
            f"{limit} or less"
        )
    return asked
