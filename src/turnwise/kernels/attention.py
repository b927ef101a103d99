"""The attention function that decoders are given, and the mask that carries a plan to it.

Owns the passage through transformers: its interface of attention functions, and 4-D masks, which
decoders hand on to every layer as they are, through gradient checkpointing too.
"""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any, Protocol

import torch
from torch import Tensor, nn
from transformers import AttentionInterface, AttentionMaskInterface, PreTrainedModel
from transformers.integrations.sdpa_attention import sdpa_attention_forward
from transformers.masking_utils import sdpa_mask

ATTENTION, BY_HAND = "turnwise", "turnwise_eager"
"""The functions' names, for a model's `config._attn_implementation`: what is not planned is done by
SDPA, or as eager code does it."""


PROBE = 24
"""Tokens on which the model's own attention is measured."""
HARMLESS = frozenset({"position_ids", "cache_position", "token_type_ids", "input_ids"})
"""Tensors that decoders hand to an attention function and that it may pass over."""
EXACT, ROUNDED = 1e-4, 2e-2
"""Mean difference of log-probabilities that is rounding, in float32 and in shorter types."""


class Plan(Protocol):
    """Attends in one pass's layers."""

    def attend(
        self,
        module: nn.Module,
        query: Tensor,
        key: Tensor,
        value: Tensor,
        *,
        scale: float,
        softcap: float | None,
        window: int | None,
    ) -> Tensor:
        """Return what a layer's queries see.

        Args:
            module: the layer's attention.
            query: [batch, query heads, queries, width].
            key: [batch, key-value heads, keys, width].
            value: like `key`.
            scale: factor of the scores.
            softcap: bound that scores approach, or None.
            window: how far back a query sees, itself included, or None.

        Returns:
            [batch, queries, query heads, width].

        Raises:
            ValueError: if it cannot do one of these.
        """
        ...


class Planned(Tensor):
    """A plan in the shape of a 4-D attention mask."""

    plan: Plan

    @classmethod
    def of(cls, plan: Plan, device: torch.device | None = None) -> Planned:
        """Return a mask that carries `plan`."""
        mask = torch.zeros(1, 1, 1, 1, dtype=torch.bool, device=device).as_subclass(cls)
        mask.plan = plan
        return mask


def attend(
    module: nn.Module,
    query: Tensor,
    key: Tensor,
    value: Tensor,
    attention_mask: Tensor | None,
    scaling: float | None = None,
    dropout: float = 0.0,
    **kwargs: Any,
) -> tuple[Tensor, None]:
    """Attend as `attention_mask` says: by its plan, or as SDPA does.

    The signature is that of transformers' attention functions.

    Raises:
        ValueError: if a planned pass comes with dropout, or what is asked cannot be done.
    """
    _check_asked(kwargs)
    if isinstance(attention_mask, Planned):
        return _planned(module, query, key, value, attention_mask, scaling, dropout, kwargs), None
    return sdpa_attention_forward(
        module, query, key, value, attention_mask, dropout=dropout, scaling=scaling, **kwargs
    )


def attend_by_hand(
    module: nn.Module,
    query: Tensor,
    key: Tensor,
    value: Tensor,
    attention_mask: Tensor | None,
    scaling: float | None = None,
    dropout: float = 0.0,
    **kwargs: Any,
) -> tuple[Tensor, None]:
    """Attend by the plan of `attention_mask`, or product by product, as SDPA cannot (Gemma 2).

    Raises:
        ValueError: if a planned pass comes with dropout, or what is asked cannot be done.
    """
    _check_asked(kwargs)
    if isinstance(attention_mask, Planned):
        return _planned(module, query, key, value, attention_mask, scaling, dropout, kwargs), None
    scale = query.shape[-1] ** -0.5 if scaling is None else scaling
    softcap = kwargs.get("softcap")
    copies = query.shape[1] // key.shape[1]
    key, value = (t.repeat_interleave(copies, 1) for t in (key, value))
    scores = torch.matmul(query, key.transpose(-1, -2)) * scale
    if softcap is not None:
        scores = torch.tanh(scores / softcap) * softcap
    if attention_mask is None:  # none where all is causal
        ones = torch.ones(scores.shape[-2:], dtype=torch.bool, device=scores.device)
        attention_mask = ones.tril(scores.shape[-1] - scores.shape[-2])
    if attention_mask.dtype == torch.bool:
        scores = scores.masked_fill(~attention_mask, torch.finfo(scores.dtype).min)
    else:
        scores = scores + attention_mask
    shares = scores.softmax(-1, dtype=torch.float32).to(query.dtype)
    shares = torch.nn.functional.dropout(shares, dropout)
    return torch.matmul(shares, value).transpose(1, 2), None


def _planned(
    module: nn.Module,
    query: Tensor,
    key: Tensor,
    value: Tensor,
    mask: Planned,
    scaling: float | None,
    dropout: float,
    asked: Mapping[str, Any],
) -> Tensor:
    """Attend by a plan, with what else a decoder asks for."""
    if dropout:
        raise ValueError("planned attention has no dropout")
    return mask.plan.attend(
        module,
        query,
        key,
        value,
        scale=query.shape[-1] ** -0.5 if scaling is None else scaling,
        softcap=asked.get("softcap"),
        window=asked.get("sliding_window"),
    )


def _check_asked(asked: Mapping[str, Any]) -> None:
    """Refuse what no argument here stands for: keys chosen by an index, sinks, biases."""
    for name, value in asked.items():
        if isinstance(value, Tensor) and name not in HARMLESS:
            raise ValueError(f"attention by {name} is the model's own")


def set_attention(model: PreTrainedModel) -> None:
    """Give `model` the attention function in the place of SDPA or of its eager code.

    A model may do more than the arguments tell: gpt-oss has sinks in its eager code, and
    DeepSeek-V3.2 masks what its index leaves out only where the function is called SDPA or eager.
    So numbers are compared, and the model's own attention stays where they differ, or where the
    function is handed what it does not know.
    """
    own = str(model.config.get_text_config()._attn_implementation)
    new = {"sdpa": ATTENTION, "eager": BY_HAND}.get(own)
    if new is None or not model._supports_attention_backend:
        return
    expected = _some_logprobs(model)
    model.set_attn_implementation(new)
    try:
        gap = float((_some_logprobs(model) - expected).abs().mean())
    except ValueError:
        gap = float("inf")
    if not gap <= (EXACT if model.dtype == torch.float32 else ROUNDED):
        model.set_attn_implementation(own)


@torch.no_grad()
def _some_logprobs(model: PreTrainedModel) -> Tensor:
    """Return log-probabilities after a few tokens, without dropout, [tokens, vocabulary]."""
    vocabulary = int(model.config.get_text_config().vocab_size)
    ids = (torch.arange(PROBE, device=model.device) * 7919 % vocabulary)[None]
    was_training = model.training
    model.eval()
    logits = model(input_ids=ids, use_cache=False).logits
    model.train(was_training)
    return logits[0].float().log_softmax(-1)


AttentionInterface.register(ATTENTION, attend)
AttentionInterface.register(BY_HAND, attend_by_hand)
AttentionMaskInterface.register(ATTENTION, sdpa_mask)
AttentionMaskInterface.register(BY_HAND, sdpa_mask)
