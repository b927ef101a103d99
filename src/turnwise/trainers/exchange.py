"""What the processes of a run exchange in an optimizer step: gradients, and what they measured.

Provides `sum_gradients`, `Share` and `joined_metrics`. In a run of one process nothing is exchanged
and no number changes.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass

import numpy as np
import torch
from numpy.typing import NDArray

from turnwise.losses.total import MAX_SUFFIX
from turnwise.parallel import ProcessGroup

SHARING, FLAT, DISTINCT = "forest/sharing", "forest/tokens_flat", "forest/tokens_distinct"


@dataclass(frozen=True, kw_only=True, slots=True, eq=False)
class Share:
    """What a process measured of the rows that it computed.

    `loss` are the metrics of the loss and `forest` the cost of the pass; `span_entropy` is a sum
    over tokens. `drawn` is log(current / behaviour) of the tokens that the engine drew, [drawn].
    """

    loss: dict[str, float]
    forest: dict[str, float]
    span_entropy: float
    drawn: NDArray[np.float64]


def joined_metrics(shares: Sequence[Share]) -> dict[str, float]:
    """Return the metrics of all rows from those of each process, which add up or are maxima."""
    names = dict.fromkeys(name for share in shares for name in share.loss)
    loss = {
        name: (max if name.endswith(MAX_SUFFIX) else sum)(
            share.loss[name] for share in shares if name in share.loss
        )
        for name in names
    }
    forest = {name: sum(share.forest[name] for share in shares) for name in shares[0].forest}
    forest[SHARING] = forest[FLAT] / max(forest[DISTINCT], 1)
    return {**loss, **forest, "policy/span_entropy": sum(each.span_entropy for each in shares)}


def sum_gradients(parameters: Sequence[torch.nn.Parameter], group: ProcessGroup) -> None:
    """Replace the gradient of each parameter by its sum over the processes.

    A parameter without a gradient in every process keeps none, so that no optimizer moves it.
    """
    by_type: dict[torch.dtype, list[torch.nn.Parameter]] = {}
    for parameter in parameters:
        by_type.setdefault(parameter.dtype, []).append(parameter)
    for alike in by_type.values():
        _sum_gradients(alike, group)


def _sum_gradients(parameters: Sequence[torch.nn.Parameter], group: ProcessGroup) -> None:
    """Sum the gradients of parameters of one type, and how many processes have each, at once."""
    has = torch.tensor([parameter.grad is not None for parameter in parameters])
    parts = [
        torch.zeros_like(each).flatten() if each.grad is None else each.grad.flatten()
        for each in parameters
    ]
    flat = torch.cat([has.to(parts[0]), *parts])
    group.sum_(flat)
    sizes = [each.numel() for each in parameters]
    present, *sums = flat.split([len(parameters), *sizes])
    for parameter, found, total in zip(parameters, present.tolist(), sums, strict=True):
        parameter.grad = total.view_as(parameter) if found else None
