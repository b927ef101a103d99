"""Detection of siblings of a trie that influence each other inside a layer.

Provides `leaked_share`. The logits of a newly initialised hybrid model hardly depend on its
recurrent layers. A mask that these layers ignore then passes a comparison of log-probabilities, and
becomes wrong during training. The outputs of the parts of each layer show the influence at once.
Shapes: B tries of N nodes.
"""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import replace
from typing import Any

import torch
from torch import Tensor, nn
from transformers.modeling_layers import GradientCheckpointingLayer

from turnwise.forest.batches import MicroBatch

ForwardFn = Callable[[MicroBatch], object]


@torch.no_grad()
def leaked_share(body: nn.Module, run: ForwardFn, batch: MicroBatch) -> float:
    """Return the largest relative change of a part's output when a sibling's tokens change.

    All tokens of one branch are exchanged. The outputs at the nodes after the branch are compared.

    Args:
        body: the decoder body.
        run: runs the body on a micro-batch.
        batch: a micro-batch whose first trie has branches.
    """
    nodes = int(batch.sizes[0])
    ends = batch.end[0, :nodes].tolist()
    begin = next((node for node, end in enumerate(ends) if end < nodes), None)
    if begin is None:
        return 0.0
    end, ids = ends[begin], batch.token_ids.clone()
    ids[0, begin:end] = ids[0, begin:end].flip(0).roll(1)
    parts = _parts(body)
    first = _outputs(parts, run, batch, slice(end, nodes))
    second = _outputs(parts, run, replace(batch, token_ids=ids), slice(end, nodes))
    shares = [0.0]
    for one, other in zip(first, second, strict=True):
        size = float(one.abs().max())
        if size > 0:
            shares.append(float((one - other).abs().max()) / size)
    return max(shares)


def _parts(body: nn.Module) -> list[nn.Module]:
    """Return the parts of decoder layers, or all modules of a body without such layers."""
    layers = [m for m in body.modules() if isinstance(m, GradientCheckpointingLayer)]
    return [part for layer in layers for part in layer.children()] or list(body.modules())


def _outputs(
    parts: list[nn.Module], run: ForwardFn, batch: MicroBatch, nodes: slice
) -> list[Tensor]:
    """Return the outputs of parts with one output per node, at some nodes of the first trie."""
    found: list[Tensor] = []

    def keep(module: nn.Module, given: Any, out: Any) -> None:
        first = out[0] if isinstance(out, tuple) and out else out
        if isinstance(first, Tensor) and first.shape[:2] == batch.token_ids.shape:
            found.append(first[0, nodes].float())

    hooks = [part.register_forward_hook(keep) for part in parts]
    try:
        run(batch)
    finally:
        for hook in hooks:
            hook.remove()
    return found
