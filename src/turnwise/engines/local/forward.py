"""One forward pass in sampling: from tokens to the logits of the next ones.

Shapes: N rows, Q new tokens per row, V vocabulary.
"""

from __future__ import annotations

import inspect
from dataclasses import dataclass
from typing import Any

import torch
from torch import Tensor, nn

from turnwise.engines.local.cache import SlotCache
from turnwise.engines.local.masks import MaskRule
from turnwise.kernels import PlanMask
from turnwise.kernels.attention import AttentionPlan
from turnwise.kernels.wrapped import Model, base_of


class HeadAtLast:
    """The model's own logits, at one position a row, without the LM head's work at the others."""

    def __init__(self, model: Model) -> None:
        self._model, self._lm_head = model, base_of(model).get_output_embeddings()
        self._keeps = "logits_to_keep" in inspect.signature(base_of(model).forward).parameters

    def __call__(self, ends: list[int] | None, **inputs: Any) -> Tensor:
        """Return the logits at position `ends[n]` of every row n, or at all rows' last, [N, V]."""
        if ends is None:
            if self._keeps:
                inputs["logits_to_keep"] = 1
            return self._model(**inputs).logits[:, -1]
        places = torch.tensor(ends, device=inputs["input_ids"].device)
        rows = torch.arange(len(ends), device=places.device)
        if self._keeps and len(set(ends)) == 1:
            inputs["logits_to_keep"] = places[:1]
            return self._model(**inputs).logits[:, 0]
        if self._lm_head is None:
            return self._model(**inputs).logits[rows, places]

        def gather(module: nn.Module, given: tuple[Any, ...]) -> tuple[Any, ...]:
            return given[0][rows, places][:, None], *given[1:]

        with self._lm_head.register_forward_pre_hook(gather):
            logits = self._model(**inputs).logits
        return logits[:, 0] if logits.shape[1] == 1 else logits[rows, places]


@dataclass(frozen=True, kw_only=True, slots=True, eq=False)
class Pass:
    """A step of rows, ready to be computed: one token of each [N, 1], and how they attend."""

    head: HeadAtLast
    rule: MaskRule
    input_ids: Tensor
    positions: Tensor
    plan: AttentionPlan
    cache: SlotCache

    def run(self) -> Tensor:
        """Return the logits after the tokens, [N, V]."""
        return self.head(
            None,
            input_ids=self.input_ids,
            position_ids=self.positions,
            attention_mask=self.rule.plan_mask(PlanMask.of(self.plan, self.input_ids.device)),
            past_key_values=self.cache,
            use_cache=True,
        )
