"""Detection of sparse attention that selects among keys of equal score.

Provides `check_ties`, which is called when a model is loaded. DeepSeek-V3.2 and related models keep
the keys with the highest scores. A score is a sum of rectified products over the index heads, so
with few heads many scores are exactly 0. Which of equal scores `topk` keeps depends on the number
of keys. Log-probabilities then depend on the padding of a batch and on later tokens. The logits of
a short pass rarely show this; the scores do.
"""

from __future__ import annotations

from collections.abc import Callable, Mapping
from typing import Any

import torch
from torch import Tensor
from torch.overrides import TorchFunctionMode
from transformers import PreTrainedModel

from turnwise.errors import ModelError
from turnwise.kernels.positions import SPARSE, reachable_lengths

PROBE_TOKENS = 256
"""Tokens of the forward pass. All scores are inspected, whatever number of keys is kept."""
MAX_TIED_SHARE = 0.005
"""Largest share of selections with two or more scores of 0. With random weights the share is 0.6
with 2 index heads, 0.02 with 8, and 0 with 16."""


def check_ties(model: PreTrainedModel, context: int) -> None:
    """Refuse sparse attention with many equal scores, if a sequence can exceed the keys it keeps.

    Raises:
        ModelError: if too many selections are made among scores of exactly 0.
    """
    fields = model.config.get_text_config().to_dict()
    kept = {n: s for n, s in reachable_lengths(fields, context).items() if SPARSE.search(n)}
    if not kept:
        return
    positions = torch.arange(min(PROBE_TOKENS, context), device=model.device)
    ids = (positions * 7919 % fields["vocab_size"])[None]
    with torch.no_grad(), _TopKCounter() as choices:
        model(input_ids=ids, use_cache=False)
    if choices.tied > MAX_TIED_SHARE * choices.rows:
        names = ", ".join(f"{name} = {size}" for name, size in kept.items())
        raise ModelError(
            f"the sparse attention of {type(model).__name__} ({names}) scores several keys "
            f"exactly 0 in {choices.tied / choices.rows:.1%} of its choices, and which of them it "
            "keeps depends on the padding of a batch: use a model with more index heads, or set "
            f"the policy's context to {min(kept.values())}, where it keeps all"
        )


class _TopKCounter(TorchFunctionMode):
    """Counts the rows of scores [B, Q, keys] passed to `topk`, and those with ties.

    Routers of experts are ignored: their scores have no dimension of queries.
    """

    def __init__(self) -> None:
        super().__init__()
        self.rows, self.tied = 0, 0

    def __torch_function__(
        self,
        func: Callable[..., Any],
        types: Any,
        args: tuple[Any, ...] = (),
        kwargs: Mapping[str, Any] | None = None,
    ) -> Any:
        """Count the ties in the input of `topk`, then call it."""
        if func in (torch.topk, Tensor.topk) and args and args[0].ndim > 2:
            zeros = (args[0] == 0).sum(-1)
            self.rows += zeros.numel()
            self.tied += int((zeros > 1).sum())
        return func(*args, **(kwargs or {}))
