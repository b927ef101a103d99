"""The attention function of decoders, and the mask that carries an attention plan to it.

Provides `set_attention`, which registers the function with transformers' attention interface, and
`PlanMask`. Decoders pass a 4-D mask on to every layer unchanged, also under gradient checkpointing.
"""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any, Protocol

import torch
from torch import Tensor, nn
from transformers import AttentionInterface, AttentionMaskInterface, PreTrainedModel
from transformers.integrations.sdpa_attention import sdpa_attention_forward
from transformers.masking_utils import sdpa_mask

ATTENTION, EAGER = "turnwise", "turnwise_eager"
"""Names of the functions for a model's `config._attn_implementation`. Without a plan the first runs
SDPA and the second runs the operations of eager attention."""


PROBE_TOKENS = 24
"""Tokens of the forward pass that compares the function with the model's own attention."""
IGNORED_TENSORS = frozenset({"position_ids", "cache_position", "token_type_ids", "input_ids"})
"""Tensors that decoders pass to an attention function and that it ignores."""
FLOAT32_TOLERANCE, HALF_TOLERANCE = 1e-4, 2e-2
"""Largest mean difference of log-probabilities that counts as rounding, in float32 and in shorter
types."""


class AttentionPlan(Protocol):
    """The attention of one forward pass, called in each layer."""

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
        """Return the attention output of one layer.

        Args:
            module: the layer's attention.
            query: [batch, query heads, queries, width].
            key: [batch, key-value heads, keys, width].
            value: like `key`.
            scale: factor of the scores.
            softcap: bound of the scores (`softcap * tanh(score / softcap)`), or None.
            window: number of positions that a query sees, its own included, or None for all.

        Returns:
            [batch, queries, query heads, width].

        Raises:
            ValueError: if the plan does not support one of these arguments.
        """
        ...


class PlanMask(Tensor):
    """A 4-D attention mask that carries an attention plan."""

    plan: AttentionPlan

    @classmethod
    def of(cls, plan: AttentionPlan, device: torch.device | None = None) -> PlanMask:
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
    """Attend by the plan of `attention_mask` if it has one, else by SDPA.

    The signature is that of transformers' attention functions.

    Raises:
        ValueError: if a plan is combined with dropout, or an argument is not supported.
    """
    _check_arguments(kwargs)
    if isinstance(attention_mask, PlanMask):
        return _run_plan(module, query, key, value, attention_mask, scaling, dropout, kwargs), None
    return sdpa_attention_forward(
        module, query, key, value, attention_mask, dropout=dropout, scaling=scaling, **kwargs
    )


def attend_eager(
    module: nn.Module,
    query: Tensor,
    key: Tensor,
    value: Tensor,
    attention_mask: Tensor | None,
    scaling: float | None = None,
    dropout: float = 0.0,
    **kwargs: Any,
) -> tuple[Tensor, None]:
    """Attend by the plan of `attention_mask`, else by eager operations, with soft-caps (Gemma 2).

    Raises:
        ValueError: if a plan is combined with dropout, or an argument is not supported.
    """
    _check_arguments(kwargs)
    if isinstance(attention_mask, PlanMask):
        return _run_plan(module, query, key, value, attention_mask, scaling, dropout, kwargs), None
    scale = query.shape[-1] ** -0.5 if scaling is None else scaling
    softcap = kwargs.get("softcap")
    copies = query.shape[1] // key.shape[1]
    key, value = (t.repeat_interleave(copies, 1) for t in (key, value))
    scores = torch.matmul(query, key.transpose(-1, -2)) * scale
    if softcap is not None:
        scores = torch.tanh(scores / softcap) * softcap
    if attention_mask is None:  # transformers passes no mask where attention is causal
        ones = torch.ones(scores.shape[-2:], dtype=torch.bool, device=scores.device)
        attention_mask = ones.tril(scores.shape[-1] - scores.shape[-2])
    if attention_mask.dtype == torch.bool:
        scores = scores.masked_fill(~attention_mask, torch.finfo(scores.dtype).min)
    else:
        scores = scores + attention_mask
    shares = scores.softmax(-1, dtype=torch.float32).to(query.dtype)
    shares = torch.nn.functional.dropout(shares, dropout)
    return torch.matmul(shares, value).transpose(1, 2), None


def _run_plan(
    module: nn.Module,
    query: Tensor,
    key: Tensor,
    value: Tensor,
    mask: PlanMask,
    scaling: float | None,
    dropout: float,
    kwargs: Mapping[str, Any],
) -> Tensor:
    """Attend by the plan of `mask`, with the scale, soft-cap and window that the decoder passes."""
    if dropout:
        raise ValueError("attention by a plan supports no dropout: call model.eval()")
    return mask.plan.attend(
        module,
        query,
        key,
        value,
        scale=query.shape[-1] ** -0.5 if scaling is None else scaling,
        softcap=kwargs.get("softcap"),
        window=kwargs.get("sliding_window"),
    )


def _check_arguments(kwargs: Mapping[str, Any]) -> None:
    """Refuse tensor arguments that change attention: selected keys, sinks, biases."""
    for name, value in kwargs.items():
        if isinstance(value, Tensor) and name not in IGNORED_TENSORS:
            raise ValueError(
                f"the attention function of turnwise does not support the argument {name}: "
                "use the model's own attention"
            )


def set_attention(model: PreTrainedModel) -> None:
    """Replace SDPA or eager attention of `model` by the attention function of turnwise.

    The arguments of the function do not describe all models: gpt-oss has sinks in its eager code,
    and DeepSeek-V3.2 masks the keys outside its index only if the function is named SDPA or eager.
    Log-probabilities are therefore compared. The model keeps its own attention if they differ or
    if the function gets an argument that it does not support.
    """
    own = str(model.config.get_text_config()._attn_implementation)
    new = {"sdpa": ATTENTION, "eager": EAGER}.get(own)
    if new is None or not model._supports_attention_backend:
        return
    expected = _probe_logprobs(model)
    model.set_attn_implementation(new)
    try:
        gap = float((_probe_logprobs(model) - expected).abs().mean())
    except ValueError:
        gap = float("inf")
    if not gap <= (FLOAT32_TOLERANCE if model.dtype == torch.float32 else HALF_TOLERANCE):
        model.set_attn_implementation(own)


@torch.no_grad()
def _probe_logprobs(model: PreTrainedModel) -> Tensor:
    """Return log-probabilities of a few fixed tokens, without dropout, [tokens, vocabulary]."""
    vocabulary = int(model.config.get_text_config().vocab_size)
    ids = (torch.arange(PROBE_TOKENS, device=model.device) * 7919 % vocabulary)[None]
    was_training = model.training
    model.eval()
    logits = model(input_ids=ids, use_cache=False).logits
    model.train(was_training)
    return logits[0].float().log_softmax(-1)


AttentionInterface.register(ATTENTION, attend)
AttentionInterface.register(EAGER, attend_eager)
AttentionMaskInterface.register(ATTENTION, sdpa_mask)
AttentionMaskInterface.register(EAGER, sdpa_mask)
