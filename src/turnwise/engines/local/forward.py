"""One forward pass in sampling: from tokens to the logits of the next ones.

Shapes: T new tokens, W of them after which logits are wanted, V vocabulary.
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
from turnwise.kernels.cache_name import CACHE
from turnwise.kernels.wrapped import Model, base_of


class HeadAt:
    """The model's own logits at some positions, without the LM head's work at the others."""

    def __init__(self, model: Model) -> None:
        self._model, self._lm_head = model, base_of(model).get_output_embeddings()
        self._keeps = "logits_to_keep" in inspect.signature(base_of(model).forward).parameters

    def __call__(self, at: tuple[Tensor, Tensor] | None, **inputs: Any) -> Tensor:
        """Return the logits at places `at[1]` of rows `at[0]`, [W, V]; None is all rows' last."""
        if at is None and (self._keeps or inputs["input_ids"].shape[1] == 1):
            if self._keeps:
                inputs["logits_to_keep"] = 1
            return self._model(**inputs).logits[:, -1]
        ids = inputs["input_ids"]
        if at is None:
            rows = torch.arange(len(ids), device=ids.device)
            at = rows, torch.full_like(rows, ids.shape[1] - 1)
        rows, places = at
        if self._lm_head is None:
            return self._model(**inputs).logits[rows, places]

        def gather(module: nn.Module, given: tuple[Any, ...]) -> tuple[Any, ...]:
            return given[0][rows, places][:, None], *given[1:]

        with self._lm_head.register_forward_pre_hook(gather):
            logits = self._model(**inputs).logits
        whole = logits.shape[:2] == ids.shape and logits.shape[:2] != (len(rows), 1)
        return logits[rows, places] if whole else logits[:, 0]


@dataclass(frozen=True, kw_only=True, slots=True, eq=False)
class Pass:
    """A step of rows, ready to be computed: their new tokens [T, 1], and how they attend.

    `wanted` [W] are the tokens after which logits are wanted; None is all of them.
    """

    head: HeadAt
    rule: MaskRule
    input_ids: Tensor
    positions: Tensor
    plan: AttentionPlan
    cache: SlotCache
    wanted: Tensor | None

    def run(self) -> Tensor:
        """Return the logits after the tokens, [W, V]."""
        return self.head(
            None if self.wanted is None else (self.wanted, torch.zeros_like(self.wanted)),
            input_ids=self.input_ids,
            position_ids=self.positions,
            attention_mask=self.rule.plan_mask(PlanMask.of(self.plan, self.input_ids.device)),
            use_cache=True,
            **{CACHE: self.cache},
        )
