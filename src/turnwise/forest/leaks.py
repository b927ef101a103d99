"""Do siblings of a trie see each other inside a layer? Measured module by module.

Provides `leaked_share`. The logits of a freshly initialised hybrid hardly depend on its
recurrences, so a mask that they do not obey passes a comparison of log-probabilities, and is wrong
once they have grown. The output of each part of a layer shows it whatever its size.

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

Run = Callable[[MicroBatch], object]


@torch.no_grad()
def leaked_share(body: nn.Module, run: Run, batch: MicroBatch) -> float:
    """Return how much of a part's output a sibling's tokens change, at most, as a share of it.

    All tokens of one branch are exchanged, and the outputs at the nodes after it are compared.

    Args:
        body: the decoder body.
        run: passes a micro-batch through it.
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


def _outputs(parts: list[nn.Module], run: Run, batch: MicroBatch, nodes: slice) -> list[Tensor]:
    """Return what parts that map nodes to nodes put out at some nodes of the first trie."""
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
