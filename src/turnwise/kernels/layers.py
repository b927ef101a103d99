"""Decoder layers that decode one token per row in few operations.

Provides `FusedLayer`, which replaces a decoder layer if it gives the same numbers. A decoding step
consists of many small products, and in a small model most of its time is the overhead of calls. The
fused layer therefore computes projections of the same input in one product, and normalises and
rotates queries and keys together. It applies to layers of the form of Llama, Mistral, Qwen 2 and
Qwen 3: norm, attention with rotary positions, norm, gated feed-forward block, with two residual
connections.

Shapes: N rows, H query heads, K key-value heads, D width of a head; E width of the layer.
"""

from __future__ import annotations

from dataclasses import dataclass
from typing import Any, TypeAlias

import numpy as np
import torch
import torch.nn.functional as F
from torch import Tensor, nn

from turnwise.kernels import linear, lora, norm
from turnwise.kernels.attention import PlanMask
from turnwise.kernels.decode import DecodePlan
from turnwise.kernels.positions import MAX_POSITION

TOLERANCE = 1e-5
"""Largest difference from the layer's own output, as a share of its largest value."""
Versions: TypeAlias = tuple[tuple[int, int] | float, ...]
"""The addresses and version counters of tensors, and the scales of adapters."""
PROJECTIONS = ("q_proj", "k_proj", "v_proj")
GATES = ("gate_proj", "up_proj")


@dataclass(frozen=True, kw_only=True, slots=True, eq=False)
class FusedWeights:
    """Copies of a layer's weights as they were at `versions`; those of the same input are joined.

    `query_key` [H + K, D] are the weights of the query and key norms, or None.
    """

    versions: Versions
    projections: linear.PackedLinear
    query_key: Tensor | None
    epsilon: float
    output: linear.PackedLinear
    gates: linear.PackedLinear
    down: linear.PackedLinear

    def __deepcopy__(self, memo: object) -> FusedWeights:
        return self  # a copied layer has other tensors and fuses them at its next call


class FusedLayer(nn.Module):
    """A decoder layer that runs steps of a `DecodePlan` in few operations.

    Other inputs use the model's own code. So do rotary angles of widths that are not in `_widths`,
    for which the numbers have not been compared.
    """

    _widths: frozenset[int]

    def forward(
        self,
        hidden_states: Tensor,
        attention_mask: Tensor | None = None,
        past_key_values: Any = None,
        position_embeddings: tuple[Tensor, Tensor] | None = None,
        **kwargs: Any,
    ) -> Any:
        """Return the layer's output, [..., E]."""
        if (
            position_embeddings is not None
            and not torch.is_grad_enabled()
            and isinstance(attention_mask, PlanMask)
            and isinstance(attention_mask.plan, DecodePlan)
            and hidden_states.dtype == torch.float32
            and position_embeddings[0].shape[-1] in self._widths
        ):
            fused = fused_weights(self)
            if fused is not None:
                plan, cache = attention_mask.plan, past_key_values
                return decode_step(self, fused, hidden_states, plan, cache, *position_embeddings)
        return super().forward(
            hidden_states,
            attention_mask=attention_mask,
            past_key_values=past_key_values,
            position_embeddings=position_embeddings,
            **kwargs,
        )


def decode_step(
    layer: Any,
    fused: FusedWeights,
    hidden: Tensor,
    plan: DecodePlan,
    cache: Any,
    cos: Tensor,
    sin: Tensor,
) -> Tensor:
    """Return the layer's output for one token of every row, [N, 1, E].

    Args:
        layer: the layer.
        fused: its fused weights.
        hidden: the layer's input, [N, 1, E].
        plan: the attention of the rows.
        cache: the cache of the rows' keys and values.
        cos: cosines of their positions, [N, 1, D], or narrower where rotary positions are partial.
        sin: sines of their positions, like `cos`.
    """
    attention = layer.self_attn
    width = int(attention.head_dim)
    output = fused.projections(layer.input_layernorm(hidden))
    heads = output.view(len(hidden), -1, width)
    kv_heads = attention.k_proj.out_features // width
    rotated = heads[:, : heads.shape[1] - kv_heads]
    if fused.query_key is not None:
        rotated = norm.rms_norm(rotated, fused.query_key, fused.epsilon)
    rotated = _rotate(rotated, cos, sin).unsqueeze(2)
    value = heads[:, -kv_heads:].unsqueeze(2)
    query, key = rotated[:, :-kv_heads], rotated[:, -kv_heads:]
    key, value = cache.update(key, value, attention.layer_idx)
    output = plan.attend(attention, query, key, value, **layer._attention_arguments)
    hidden = fused.output(output.flatten(2)).add_(hidden)
    output = fused.gates(layer.post_attention_layernorm(hidden))
    inner = fused.gates.outputs // 2
    output = F.silu(output[..., :inner]).mul_(output[..., inner:])
    return fused.down(output).add_(hidden)


def _rotate(heads: Tensor, cos: Tensor, sin: Tensor) -> Tensor:
    """Return vectors [N, heads, D] rotated by the angles of their rows' positions.

    If the vectors are wider than the angles, only their first components are rotated.
    """
    width = cos.shape[-1]
    half = width // 2
    if width == heads.shape[-1]:
        rotated = heads * cos
    else:
        rotated = heads.clone()
        rotated[..., :width].mul_(cos)
    rotated[..., :half].addcmul_(heads[..., half:width], sin[..., :half], value=-1)
    rotated[..., half:width].addcmul_(heads[..., :half], sin[..., half:])
    return rotated


def fused_weights(layer: Any) -> FusedWeights | None:
    """Return the layer's fused weights, rebuilt if a weight changed, or None if it has none.

    A layer has none if a projection is neither a plain linear layer nor one with a plain adapter.
    """
    attention, block = layer.self_attn, layer.mlp
    modules = [getattr(attention, name) for name in PROJECTIONS]
    modules += [getattr(block, name) for name in GATES]
    modules += [attention.o_proj, block.down_proj]
    found = [lora.weights_of(module) for module in modules]
    weights = [one for one in found if one is not None]
    if len(weights) < len(modules):
        return None
    parts = [part for one in weights for part in one.parts]
    if hasattr(attention, "q_norm"):
        parts += [attention.q_norm.weight, attention.k_norm.weight]
    versions = (
        *((part.data_ptr(), part._version) for part in parts),
        *(one.scale for one in weights),
    )
    fused = vars(layer).get("_fused")
    if fused is None or fused.versions != versions:
        fused = layer._fused = _fuse(attention, weights, versions)
    return fused


def _fuse(attention: Any, weights: list[lora.LayerWeights], versions: Versions) -> FusedWeights:
    """Return copies of a layer's weights, joined by their inputs."""
    three, gates, (output, down) = weights[:3], weights[3:5], weights[5:]
    query_key, epsilon = None, 0.0
    if hasattr(attention, "q_norm"):
        width, norms = attention.head_dim, (attention.q_norm, attention.k_norm)
        scales = [one.weight + norm.offset_of(one) for one in norms]
        counts = [one.base.out_features // width for one in three[:2]]
        query_key = torch.cat(
            [scale.expand(count, width) for scale, count in zip(scales, counts, strict=True)]
        ).detach()
        epsilon = norm.epsilon_of(attention.q_norm)
    return FusedWeights(
        versions=versions,
        projections=_concatenate(three),
        query_key=query_key,
        epsilon=epsilon,
        output=linear.PackedLinear(output.merged(), output.base.bias),
        gates=_concatenate(gates),
        down=linear.PackedLinear(down.merged(), down.base.bias),
    )


def _concatenate(weights: list[lora.LayerWeights]) -> linear.PackedLinear:
    biases: list[Tensor] = [one.base.bias for one in weights if one.base.bias is not None]
    bias = torch.cat(biases) if biases else None
    return linear.PackedLinear(torch.cat([one.merged() for one in weights]), bias)


class _NoCache:
    """A cache that stores nothing: each row attends to its new token and the prompt."""

    def update(self, key: Tensor, value: Tensor, layer: int) -> tuple[Tensor, Tensor]:
        return key, value


class _RecordingPlan:
    """A plan that delegates to another plan and records the arguments of the layer."""

    def __init__(self, plan: DecodePlan) -> None:
        self._plan = plan
        self.arguments: dict[str, Any] = {}

    def attend(
        self, module: nn.Module, query: Tensor, key: Tensor, value: Tensor, **arguments: Any
    ) -> Tensor:
        self.arguments = arguments
        return self._plan.attend(module, query, key, value, **arguments)


def use_fused_layers(model: nn.Module, copy_bytes: int, context: int = MAX_POSITION) -> None:
    """Replace the layers of `model` by fused layers where these give the same numbers.

    Nothing is replaced if copies of all weights take more than `copy_bytes`. Layers are compared at
    positions up to `context`, because a layer may have a position-dependent scale.
    """
    fit = [module for module in model.modules() if _is_candidate(module)]
    size = sum(p.numel() * p.element_size() for module in fit for p in module.parameters())
    if size <= copy_bytes:
        for module in fit:
            _fuse_layer(module, context)


def drop_copies(model: nn.Module) -> None:
    """Free the copies of weights; they are made again when needed."""
    layers: list[Any] = [module for module in model.modules() if isinstance(module, FusedLayer)]
    for layer in layers:
        layer._fused = None


def _is_candidate(module: nn.Module) -> bool:
    """Whether the class name of `module` ends in `DecoderLayer` and its weights are CPU float32."""
    named = type(module).__name__.endswith("DecoderLayer")
    return named and all(p.dtype == torch.float32 and not p.is_cuda for p in module.parameters())


def _fuse_layer(module: Any, context: int) -> None:
    own = type(module)
    if issubclass(own, FusedLayer):
        return
    with torch.no_grad():
        widths = frozenset(w for w in _rotary_widths(module) if _matches(module, w, context))
        module._fused = None
    if widths:
        module.__class__ = type(own.__name__, (FusedLayer, own), {})
        module._widths = widths


def undo_fused_layers(model: nn.Module) -> bool:
    """Restore the layers' own code; return whether any layer was fused."""
    layers: list[Any] = [module for module in model.modules() if isinstance(module, FusedLayer)]
    for layer in layers:
        layer._fused = None
        layer.__class__ = type(layer).__mro__[2]
    return bool(layers)


def _rotary_widths(layer: Any) -> tuple[int, ...]:
    """Return the widths of rotary angles to compare: the whole head, a half and a quarter."""
    try:
        width = int(layer.self_attn.head_dim)
    except (AttributeError, TypeError):  # another kind of layer
        return ()
    return tuple(width // part for part in (1, 2, 4) if width % (2 * part) == 0)


def _matches(layer: Any, width: int, context: int) -> bool:
    """Whether `decode_step` gives the layer's own numbers for rotary angles of this width."""
    try:
        return _difference(layer, width, context) <= TOLERANCE
    except (AttributeError, IndexError, RuntimeError, TypeError, ValueError):  # another kind
        return False


def _difference(layer: Any, rotated: int, context: int) -> float:
    """Return the relative difference between the layer's own output and that of `decode_step`.

    The rows have small and large positions, up to `context`. The arguments that the layer passes to
    attention are recorded in `layer._attention_arguments`.
    """
    fused = fused_weights(layer)
    if fused is None:
        raise TypeError("not a layer of linear projections")
    attention, draw = layer.self_attn, torch.Generator().manual_seed(0)
    width, rows, length = int(attention.head_dim), 3, 5
    kv_heads = attention.k_proj.out_features // width
    hidden = torch.randn(rows, 1, attention.q_proj.in_features, generator=draw)
    angles = torch.rand(rows, 1, rotated // 2, generator=draw).repeat(1, 1, 2)
    prompt_kv = torch.randn(2, 1, kv_heads, length, width, generator=draw)
    plan = DecodePlan.of(
        lambda layer: (prompt_kv[0], prompt_kv[1]),
        np.zeros(rows, dtype=np.int64),
        np.array([length]),
        np.zeros(rows, dtype=np.int64),
        hidden.device,
    )
    recording = _RecordingPlan(plan)
    expected = layer(
        hidden,
        attention_mask=PlanMask.of(recording),
        position_ids=torch.tensor([[length], [context // 2], [max(context - 1, length)]]),
        past_key_values=_NoCache(),
        position_embeddings=(angles.cos(), angles.sin()),
        use_cache=True,
    )
    layer._attention_arguments = recording.arguments  # scale, soft-cap and window
    output = decode_step(layer, fused, hidden, plan, _NoCache(), angles.cos(), angles.sin())
    return float((output - expected).abs().max() / expected.abs().max().clamp(min=1.0))
