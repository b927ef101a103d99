"""Sparse attention that must choose among keys of equal score.

Provides `check_ties`, called when a model is loaded. DeepSeek-V3.2 and its relatives keep the keys
with the highest scores, and a score is a sum of rectified products, one an index head: with few
heads many scores are exactly 0. Which of equal ones `topk` keeps depends on how many keys there
are, so log-probabilities then depend on the padding of a batch and on what is written after a
token. Logits of a short pass seldom show it; the scores do. Knows nothing of policies.
"""

from __future__ import annotations

from collections.abc import Callable, Mapping
from typing import Any

import torch
from torch import Tensor
from torch.overrides import TorchFunctionMode
from transformers import PreTrainedModel

from turnwise.errors import ModelError
from turnwise.kernels.positions import SPARSE, lengths_that_matter

PROBE = 256
"""Tokens of the pass; all its scores are seen, whatever the number of keys that are kept."""
MOST = 0.005
"""Share of choices among two scores of 0 or more beyond which a model is refused. With random
weights it is 0.6 with 2 index heads, 0.02 with 8, and 0 with 16."""


def check_ties(model: PreTrainedModel, context: int) -> None:
    """Refuse sparse attention whose scores are often equal, if a sequence can exceed what it keeps.

    Raises:
        ModelError: if many choices of keys are among scores of exactly 0.
    """
    fields = model.config.get_text_config().to_dict()
    kept = {n: s for n, s in lengths_that_matter(fields, context).items() if SPARSE.search(n)}
    if not kept:
        return
    places = torch.arange(min(PROBE, context), device=model.device)
    ids = (places * 7919 % fields["vocab_size"])[None]
    with torch.no_grad(), _Choices() as choices:
        model(input_ids=ids, use_cache=False)
    if choices.tied > MOST * choices.rows:
        names = ", ".join(f"{name} = {size}" for name, size in kept.items())
        raise ModelError(
            f"the sparse attention of {type(model).__name__} ({names}) scores several keys "
            f"exactly 0 in {choices.tied / choices.rows:.1%} of its choices, and which of them it "
            "keeps depends on the padding of a batch: use a model with more index heads, or set "
            f"the policy's context to {min(kept.values())}, where it keeps all"
        )


class _Choices(TorchFunctionMode):
    """Counts the rows of [B, Q, keys] that `topk` chooses from, and those with ties.

    Routers of experts have no dimension of queries.
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
        """Look at what `topk` is given, and call it."""
        if func in (torch.topk, Tensor.topk) and args and args[0].ndim > 2:
            zeros = (args[0] == 0).sum(-1)
            self.rows += zeros.numel()
            self.tied += int((zeros > 1).sum())
        return func(*args, **(kwargs or {}))
