"""Decoder layers of the common kind, for rows that each write one token, in few operations.

Owns the class that takes the place of a decoder layer where it was seen to give its numbers. A step
of sampling is a handful of small products: what it costs in a small model is calling them, so
projections of the same input are one product here, and queries and keys are normed and turned
together. The layers meant are those of Llama, Mistral, Qwen 2 and 3 and their likes: norm,
attention with rotary positions, norm, gated feed-forward block, each added to what came in.

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
from turnwise.kernels.attention import Planned
from turnwise.kernels.decode import DecodePlan
from turnwise.kernels.positions import FAR

TOLERANCE = 1e-5
"""Largest difference from the layer's own output, whose size is about 1."""
Versions: TypeAlias = tuple[tuple[int, int] | float, ...]
"""Where tensors are and how often they were written, and the scales of adapters."""
PROJECTIONS = ("q_proj", "k_proj", "v_proj")
GATES = ("gate_proj", "up_proj")


@dataclass(frozen=True, kw_only=True, slots=True, eq=False)
class Joined:
    """A layer's weights, those of the same input in one matrix, as they were at `versions`.

    `query_key` [H + K, D] are the weights of the norms of queries and keys, or None.
    """

    versions: Versions
    projections: linear.Packed
    query_key: Tensor | None
    epsilon: float
    output: linear.Packed
    gates: linear.Packed
    down: linear.Packed

    def __deepcopy__(self, memo: object) -> Joined:
        return self  # a copied layer has tensors of its own, and finds that these are others'


class Layer(nn.Module):
    """A decoder layer that takes steps of a `DecodePlan` in few operations.

    Everything else is the model's own code, as are rotary angles of other widths than `_widths`,
    those at which the layer's numbers were seen to be the same.
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
            and isinstance(attention_mask, Planned)
            and isinstance(attention_mask.plan, DecodePlan)
            and hidden_states.dtype == torch.float32
            and position_embeddings[0].shape[-1] in self._widths
        ):
            joined = joined_of(self)
            if joined is not None:
                plan, cache = attention_mask.plan, past_key_values
                return step(self, joined, hidden_states, plan, cache, *position_embeddings)
        return super().forward(
            hidden_states,
            attention_mask=attention_mask,
            past_key_values=past_key_values,
            position_embeddings=position_embeddings,
            **kwargs,
        )


def step(
    layer: Any,
    joined: Joined,
    hidden: Tensor,
    plan: DecodePlan,
    cache: Any,
    cos: Tensor,
    sin: Tensor,
) -> Tensor:
    """Return the layer's output after one token of every row, [N, 1, E].

    Args:
        layer: the layer.
        joined: its weights.
        hidden: what comes in, [N, 1, E].
        plan: how the rows attend.
        cache: where their keys and values are kept.
        cos: cosines of their positions, [N, 1, D], or narrower where rotary positions are partial.
        sin: sines of their positions, like `cos`.
    """
    attention = layer.self_attn
    width = int(attention.head_dim)
    found = joined.projections(layer.input_layernorm(hidden))
    heads = found.view(len(hidden), -1, width)
    shared = attention.k_proj.out_features // width
    turned = heads[:, : heads.shape[1] - shared]
    if joined.query_key is not None:
        turned = norm.normed(turned, joined.query_key, joined.epsilon)
    turned = _turn(turned, cos, sin).unsqueeze(2)
    value = heads[:, -shared:].unsqueeze(2)
    query, key = turned[:, :-shared], turned[:, -shared:]
    key, value = cache.update(key, value, attention.layer_idx)
    found = plan.attend(attention, query, key, value, **layer._asked)
    hidden = joined.output(found.flatten(2)).add_(hidden)
    found = joined.gates(layer.post_attention_layernorm(hidden))
    inner = joined.gates.outputs // 2
    found = F.silu(found[..., :inner]).mul_(found[..., inner:])
    return joined.down(found).add_(hidden)


def _turn(heads: Tensor, cos: Tensor, sin: Tensor) -> Tensor:
    """Return vectors [N, heads, D] turned by the angles of their rows' positions.

    Of wider vectors than the angles only the front is turned.
    """
    width = cos.shape[-1]
    half = width // 2
    if width == heads.shape[-1]:
        turned = heads * cos
    else:
        turned = heads.clone()
        turned[..., :width].mul_(cos)
    turned[..., :half].addcmul_(heads[..., half:width], sin[..., :half], value=-1)
    turned[..., half:width].addcmul_(heads[..., :half], sin[..., half:])
    return turned


def joined_of(layer: Any) -> Joined | None:
    """Return the layer's joined weights, made anew if one has changed; None if it has none now.

    So it is where something other than a linear layer, or one with a plain adapter, has taken the
    place of a projection.
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
    joined = vars(layer).get("_joined")
    if joined is None or joined.versions != versions:
        joined = layer._joined = _join(attention, weights, versions)
    return joined


def _join(attention: Any, weights: list[lora.Weights], versions: Versions) -> Joined:
    """Return copies of a layer's weights, side by side."""
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
    return Joined(
        versions=versions,
        projections=_side_by_side(three),
        query_key=query_key,
        epsilon=epsilon,
        output=linear.Packed(output.whole(), output.base.bias),
        gates=_side_by_side(gates),
        down=linear.Packed(down.whole(), down.base.bias),
    )


def _side_by_side(weights: list[lora.Weights]) -> linear.Packed:
    biases: list[Tensor] = [one.base.bias for one in weights if one.base.bias is not None]
    bias = torch.cat(biases) if biases else None
    return linear.Packed(torch.cat([one.whole() for one in weights]), bias)


class _Nothing:
    """A cache that keeps nothing: rows see the token that they write."""

    def update(self, key: Tensor, value: Tensor, layer: int) -> tuple[Tensor, Tensor]:
        return key, value


class _Overheard:
    """A plan that does what another does, and knows what the layer asked of it."""

    def __init__(self, plan: DecodePlan) -> None:
        self._plan = plan
        self.asked: dict[str, Any] = {}

    def attend(
        self, module: nn.Module, query: Tensor, key: Tensor, value: Tensor, **asked: Any
    ) -> Tensor:
        self.asked = asked
        return self._plan.attend(module, query, key, value, **asked)


def use(model: nn.Module, copy_bytes: int, context: int = FAR) -> None:
    """Let the layers of `model` take steps so where that gives their own numbers.

    Nothing is done if copies of all their weights take more than `copy_bytes`. Layers are compared
    at positions up to `context`: besides rotary angles they may have a scale by position.
    """
    fit = [module for module in model.modules() if _may_fit(module)]
    size = sum(p.numel() * p.element_size() for module in fit for p in module.parameters())
    if size <= copy_bytes:
        for module in fit:
            _use(module, context)


def drop_copies(model: nn.Module) -> None:
    """Free the copies of weights; they are made again when they are needed."""
    layers: list[Any] = [module for module in model.modules() if isinstance(module, Layer)]
    for layer in layers:
        layer._joined = None


def _may_fit(module: nn.Module) -> bool:
    """Whether `module` is called a decoder layer, all in float32 on the CPU."""
    named = type(module).__name__.endswith("DecoderLayer")
    return named and all(p.dtype == torch.float32 and not p.is_cuda for p in module.parameters())


def _use(module: Any, context: int) -> None:
    own = type(module)
    if issubclass(own, Layer):
        return
    with torch.no_grad():
        widths = frozenset(w for w in _rotary_widths(module) if _agrees(module, w, context))
        module._joined = None
    if widths:
        module.__class__ = type(own.__name__, (Layer, own), {})
        module._widths = widths


def undo(model: nn.Module) -> bool:
    """Give the layers of `model` their own code back; return whether any had another."""
    layers: list[Any] = [module for module in model.modules() if isinstance(module, Layer)]
    for layer in layers:
        layer._joined = None
        layer.__class__ = type(layer).__mro__[2]
    return bool(layers)


def _rotary_widths(layer: Any) -> tuple[int, ...]:
    """Return the widths of rotary angles worth trying: the whole head, a half and a quarter."""
    try:
        width = int(layer.self_attn.head_dim)
    except (AttributeError, TypeError):  # no layer of the kind meant
        return ()
    return tuple(width // part for part in (1, 2, 4) if width % (2 * part) == 0)


def _agrees(layer: Any, width: int, context: int) -> bool:
    """Whether `step` gives the layer's own numbers for rotary angles of this width."""
    try:
        return _difference(layer, width, context) <= TOLERANCE
    except (AttributeError, IndexError, RuntimeError, TypeError, ValueError):  # of another kind
        return False


def _difference(layer: Any, turned: int, context: int) -> float:
    """Return how far the layer's own output and that of `step` are apart, as a share of it.

    The rows are told positions near and far, up to `context`. What the layer asks of attention is
    noted on the way.
    """
    joined = joined_of(layer)
    if joined is None:
        raise TypeError("not a layer of linear projections")
    attention, draw = layer.self_attn, torch.Generator().manual_seed(0)
    width, rows, length = int(attention.head_dim), 3, 5
    shared = attention.k_proj.out_features // width
    hidden = torch.randn(rows, 1, attention.q_proj.in_features, generator=draw)
    angles = torch.rand(rows, 1, turned // 2, generator=draw).repeat(1, 1, 2)
    kept = torch.randn(2, 1, shared, length, width, generator=draw)
    plan = DecodePlan.of(
        lambda layer: (kept[0], kept[1]),
        np.zeros(rows, dtype=np.int64),
        np.array([length]),
        np.zeros(rows, dtype=np.int64),
        hidden.device,
    )
    overheard = _Overheard(plan)
    expected = layer(
        hidden,
        attention_mask=Planned.of(overheard),
        position_ids=torch.tensor([[length], [context // 2], [max(context - 1, length)]]),
        past_key_values=_Nothing(),
        position_embeddings=(angles.cos(), angles.sin()),
        use_cache=True,
    )
    layer._asked = overheard.asked  # scale, soft-cap and window, wherever the model keeps them
    found = step(layer, joined, hidden, plan, _Nothing(), angles.cos(), angles.sin())
    return float((found - expected).abs().max() / expected.abs().max().clamp(min=1.0))
