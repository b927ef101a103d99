"""Gradient checkpointing that does not depend on a module's training flag.

Provides `enable_checkpointing`, called when a model is loaded, and `checkpointed`, which makes
every decoder layer compute its activations again in the backward pass. transformers checkpoints a
layer only while `layer.training` is true, and many layers pass that flag to `F.dropout` (OPT, XGLM,
BioGPT, DBRX, Falcon). RL needs checkpointing without dropout (docs/math.md 3), so here the layers
stay in eval mode.
"""

from __future__ import annotations

from collections.abc import Iterator
from contextlib import contextmanager
from functools import partial
from typing import Any

import torch
from torch import Tensor, nn
from torch.utils.checkpoint import checkpoint
from transformers import PreTrainedModel
from transformers.modeling_layers import GradientCheckpointingLayer

from turnwise.errors import ModelError

PROBE = 24
"""Tokens of the passes that are compared at load."""
TOLERANCE = {torch.float32: 1e-3}
"""Largest difference of a log-probability, in nats, that is rounding; 0.2 in shorter types."""


def enable_checkpointing(model: PreTrainedModel, source: str) -> None:
    """Switch gradient checkpointing on in `model`; it acts inside `Policy.dropout` blocks.

    Raises:
        ModelError: if the model has no layer that can be checkpointed.
    """
    if not model.supports_gradient_checkpointing or not _layers(model):
        raise ModelError(
            f"gradient_checkpointing = true, but {source} does not support it: set it to false"
        )
    model.gradient_checkpointing_enable({"use_reentrant": False})


@contextmanager
def checkpointed(model: nn.Module) -> Iterator[None]:
    """Checkpoint every decoder layer inside the block, whatever mode the model is in.

    Only for models in eval mode: in training mode transformers' own checkpointing acts.
    """
    layers = _layers(model)
    own = [vars(layer).get("forward") for layer in layers]
    for layer in layers:
        layer.forward = partial(_checkpointed_forward, layer, layer.forward)
    try:
        yield
    finally:
        for layer, forward in zip(layers, own, strict=True):
            del layer.forward
            if forward is not None:
                layer.forward = forward


def check_repeatable(model: nn.Module, base: PreTrainedModel, source: str) -> None:
    """Compare two checkpointed passes with a plain pass in eval mode.

    Raises:
        ModelError: if they differ by more than rounding: some dropout acts in eval mode, or a layer
            computes something else when it is checkpointed.
    """
    vocabulary = int(base.config.get_text_config().vocab_size)
    ids = (torch.arange(PROBE, device=base.device) * 7919 % vocabulary)[None]

    def logprobs() -> Tensor:
        logits = model(input_ids=ids, use_cache=False).logits
        return logits.detach()[0].float().log_softmax(-1)

    with torch.no_grad():
        plain = logprobs()
    with checkpointed(model), torch.enable_grad():
        gap = max(float((logprobs() - plain).abs().max()) for _ in range(2))
    if not gap <= TOLERANCE.get(base.dtype, 0.2):
        raise ModelError(
            f"gradient_checkpointing = true, but log-probabilities of {source} in eval mode then "
            f"differ by {gap:.2g} nats from those without it: set it to false"
        )


def _checkpointed_forward(layer: nn.Module, forward: Any, *args: Any, **kwargs: Any) -> Any:
    """Call `forward`, and call it again in the backward pass instead of keeping activations."""
    if layer.training or not torch.is_grad_enabled():
        return forward(*args, **kwargs)
    return checkpoint(partial(forward, **kwargs), *args, use_reentrant=False)


def _layers(model: nn.Module) -> list[Any]:
    return [m for m in model.modules() if isinstance(m, GradientCheckpointingLayer)]
