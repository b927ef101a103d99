"""Scorers: the log-probability and the entropy of every occurrence, from trees or flat rows.

Provides the protocol `Scorer` and its implementations `TreeScorer` and `FlatScorer`. Results are
differentiable. The model stays in its mode, and no key-value cache is made.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass, replace
from typing import Literal, Protocol

import torch
from torch import Tensor

from turnwise.errors import ModelError
from turnwise.forest.batches import MicroBatch, micro_batches
from turnwise.forest.config import ForestConfig, Layout
from turnwise.forest.head import EntropyUse, Logits, parts_of, score_heads
from turnwise.forest.masks import tree_masks
from turnwise.kernels.probe import MaskForm, sliding_window
from turnwise.kernels.wrapped import Model, base_of
from turnwise.types import TrainingSample

HeadPath = Literal["hidden", "logits"]
"""The place of the LM head for flat rows: at targets only, or in the model's own forward pass."""


@dataclass(frozen=True, kw_only=True, slots=True, eq=False)
class Scores:
    """The output of a scorer, both [T], aligned with the batch's occurrences.

    They are float64 for models in float64, and else float32.
    `entropy` is that of softmax(logits / temperature) at the parent of each occurrence. It is empty
    if it is not requested, and has no gradient if it is only measured.
    """

    logprobs: Tensor
    entropy: Tensor


class Scorer(Protocol):
    """Scores micro-batches of one layout with any model of the architecture it was chosen for."""

    @property
    def config(self) -> ForestConfig:
        """The budgets of packing and scoring."""
        ...

    @property
    def layout(self) -> Layout:
        """The layout of its micro-batches."""
        ...

    @property
    def reason(self) -> str:
        """The measurement that led to the choice, in one sentence."""
        ...

    def batches(self, samples: Sequence[TrainingSample]) -> list[MicroBatch]:
        """Pack samples for this scorer."""
        ...

    def score(self, model: Model, batch: MicroBatch, *, entropy: EntropyUse = "trained") -> Scores:
        """Return one log-probability and one entropy for each occurrence."""
        ...


@dataclass(frozen=True, kw_only=True, slots=True)
class TreeScorer:
    """Scores tries, so that every distinct prefix is computed once.

    Concatenated tries attend by their plan, padded tries by an ancestor mask. `form` is the form in
    which the model takes the plan or the mask.
    """

    config: ForestConfig
    form: MaskForm = "by layer type"
    reason: str = "tree: not measured"
    layout: Layout = "packed"

    def batches(self, samples: Sequence[TrainingSample]) -> list[MicroBatch]:
        """Pack samples as tries."""
        return micro_batches(samples, self.config, self.layout)

    def score(self, model: Model, batch: MicroBatch, *, entropy: EntropyUse = "trained") -> Scores:
        """Return one log-probability and one entropy for each occurrence."""
        parts = parts_of(model)
        device = parts.body.device
        batch = replace(batch, end=batch.end.to(device), positions=batch.positions.to(device))
        window = sliding_window(parts.config)
        hidden = parts.body(
            input_ids=batch.token_ids.to(device),
            attention_mask=tree_masks(batch, self.form, window, parts.attention, parts.body.dtype),
            position_ids=batch.positions,
            use_cache=False,
        ).last_hidden_state
        chunk_rows = max(1, self.config.head_chunk // parts.vocab)
        frozen = parts.frozen_head
        return _at_occurrences(hidden, parts.logits, batch, chunk_rows, entropy, frozen=frozen)


@dataclass(frozen=True, kw_only=True, slots=True)
class FlatScorer:
    """Scores right-padded rows of any causal model; padding after a token does not change it."""

    config: ForestConfig
    head: HeadPath = "logits"
    reason: str = "flat: not measured"
    layout: Layout = "flat"

    def batches(self, samples: Sequence[TrainingSample]) -> list[MicroBatch]:
        """Pack samples as rows."""
        return micro_batches(samples, self.config, self.layout)

    def score(self, model: Model, batch: MicroBatch, *, entropy: EntropyUse = "trained") -> Scores:
        """Return one log-probability and one entropy for each occurrence.

        Raises:
            ModelError: if the model returns another number of positions than it was given.
        """
        device = base_of(model).device
        taken = torch.arange(batch.token_ids.shape[1]) < batch.sizes[:, None]
        inputs = {
            "input_ids": batch.token_ids.to(device),
            "attention_mask": taken.long().to(device),
            "use_cache": False,
        }
        if self.head == "hidden":
            parts = parts_of(model)
            states, logits = parts.body(**inputs).last_hidden_state, parts.logits
            frozen = parts.frozen_head
            chunk_rows = max(1, self.config.head_chunk // parts.vocab)
        else:
            states, logits, frozen = model(**inputs).logits, _identity, False
            chunk_rows = max(1, self.config.head_chunk // states.shape[-1])
        if states.shape[:2] != batch.token_ids.shape:
            raise ModelError(
                f"the model returned {tuple(states.shape[:2])} positions for rows of "
                f"{tuple(batch.token_ids.shape)}: adapters that add virtual tokens (prompt "
                "tuning) cannot be scored, use LoRA"
            )
        return _at_occurrences(states, logits, batch, chunk_rows, entropy, frozen=frozen)


def _identity(logits: Tensor) -> Tensor:
    return logits


def _at_occurrences(
    states_BND: Tensor,
    logits: Logits,
    batch: MicroBatch,
    chunk_rows: int,
    entropy: EntropyUse,
    *,
    frozen: bool,
) -> Scores:
    """Compute logits at the heads and gather the results at the occurrences."""
    device = states_BND.device
    needed = states_BND.flatten(0, 1)[batch.head_node.to(device)]
    logprobs, entropies = score_heads(needed, logits, batch, chunk_rows, entropy, frozen=frozen)
    edge = batch.edge.to(device)
    if entropy == "none":
        return Scores(logprobs=logprobs[edge], entropy=entropies)
    return Scores(logprobs=logprobs[edge], entropy=entropies[batch.edge_head.to(device)[edge]])
