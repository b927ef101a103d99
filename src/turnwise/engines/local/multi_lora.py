"""One forward pass for several policies that are adapters on one base.

Provides `Families`. Base weights are read once for all rows, and each row uses the adapter of its
policy. Caches, prompts and draws of policies are separate.

Shapes: N new tokens of all policies, those of a policy side by side; W of a policy after which
logits are wanted, V vocabulary.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field, replace
from itertools import accumulate
from typing import Any, Protocol

import torch
from peft import PeftModel
from peft.tuners.lora.layer import Linear as LoraLinear
from torch import Tensor, nn

from turnwise.engines.local.cache import SlotCache
from turnwise.engines.local.forward import HeadAt, Model, Pass
from turnwise.engines.local.scheduler import RunningBatch
from turnwise.kernels.attention import AttentionPlan


@dataclass(kw_only=True, slots=True, eq=False)
class _Turn:
    """The rows of a pass by policy: slices of the rows, and the number of the policy of each slice.

    `peers` are the layers of all policies, by the identity of the one that computes for them.
    """

    parts: Sequence[tuple[slice, int]] = ()
    peers: dict[int, list[Any]] = field(default_factory=dict)

    def __deepcopy__(self, memo: object) -> _Turn:
        return _Turn()  # a copy of a model is in no family


class _ByRow(nn.Module):
    """A LoRA layer that gives every row its policy's adapter while `_turn` says whose rows come."""

    _turn: _Turn

    def forward(self, x: Tensor, *args: Any, **kwargs: Any) -> Tensor:
        """Return the layer's output, [N, ...]."""
        if not self._turn.parts:
            return super().forward(x, *args, **kwargs)
        layer: Any = self
        found, peers = layer.base_layer(x), self._turn.peers[id(self)]
        for rows, number in self._turn.parts:
            peer = peers[number]
            for name in peer.active_adapters:
                own = x[rows].to(peer.lora_A[name].weight.dtype)
                change = peer.lora_B[name](peer.lora_A[name](own)) * peer.scaling[name]
                found[rows] += change.to(found.dtype)
        return found


class Family:
    """Models that differ in their adapters only; the first one's modules compute for all."""

    def __init__(self, models: Sequence[Model]) -> None:
        self._head, self._turn = HeadAt(models[0]), _Turn()
        layers = [_lora_layers(model) for model in models]
        for name, layer in layers[0].items():
            if not isinstance(layer, _ByRow):
                own = type(layer)
                layer.__class__ = type(own.__name__, (_ByRow, own), {})
            layer._turn = self._turn
            self._turn.peers[id(layer)] = [other[name] for other in layers]

    def run(self, passes: Mapping[int, Pass]) -> dict[int, Tensor]:
        """Compute the passes of some models, by their places; return their logits, [W, V] each.

        Must be called without gradients.
        """
        sizes = [len(one.input_ids) for one in passes.values()]
        slices = [
            slice(end - size, end) for end, size in zip(accumulate(sizes), sizes, strict=True)
        ]
        every = list(passes.values())
        cache = _JointCache([one.cache for one in every], slices)
        joint = replace(
            every[0],
            head=self._head,
            input_ids=torch.cat([one.input_ids for one in every]),
            positions=torch.cat([one.positions for one in every]),
            plan=_JointPlan([one.plan for one in every], slices, cache),
            cache=cache,
            wanted=None,
        )
        self._turn.parts = list(zip(slices, passes, strict=True))
        try:
            logits = joint.run()
        finally:
            self._turn.parts = ()
        found: dict[int, Tensor] = {}
        for (place, one), rows in zip(passes.items(), slices, strict=True):
            found[place] = logits[rows] if one.wanted is None else logits[rows][one.wanted]
        return found


class _JointCache(SlotCache):
    """The caches of several policies, each of which keeps its own rows."""

    def __init__(self, caches: Sequence[SlotCache], slices: Sequence[slice]) -> None:
        super().__init__()
        self._caches, self._slices = caches, slices
        self.place = caches[0].place
        self.found: list[tuple[Tensor, Tensor]] = []

    def update(
        self, key_states: Tensor, value_states: Tensor, layer_idx: int, *args: Any, **kwargs: Any
    ) -> tuple[Tensor, Tensor]:
        """Write every policy's new keys and values; what they see is in `found`."""
        self.found = [
            cache.update(key_states[rows], value_states[rows], layer_idx)
            for cache, rows in zip(self._caches, self._slices, strict=True)
        ]
        return key_states, value_states

    def get_seq_length(self, layer_idx: int = 0) -> int:
        """Return how many positions are visible before this pass, for models that ask."""
        return max(cache.place.seen for cache in self._caches)


class _JointPlan:
    """The plans of several policies, each of which attends for its own rows."""

    def __init__(
        self, plans: Sequence[AttentionPlan], slices: Sequence[slice], cache: _JointCache
    ) -> None:
        self._plans, self._slices, self._cache = plans, slices, cache

    def attend(
        self, module: nn.Module, query: Tensor, key: Tensor, value: Tensor, **asked: Any
    ) -> Tensor:
        """Attend in one layer (see `attention.AttentionPlan`)."""
        parts = zip(self._plans, self._slices, self._cache.found, strict=True)
        return torch.cat(
            [plan.attend(module, query[rows], *seen, **asked) for plan, rows, seen in parts]
        )


class Member(Protocol):
    """A policy's part of the engine."""

    @property
    def model(self) -> Model:
        """Its model."""
        ...

    @property
    def version(self) -> int:
        """The version of its weights."""
        ...

    @property
    def batch(self) -> RunningBatch:
        """Its unfinished completions."""
        ...


class Families:
    """The families among an engine's policies, found anew whenever one has new weights."""

    def __init__(self) -> None:
        self._versions: list[int] = []
        self._found: list[tuple[list[str], Family]] = []
        self._calls = 0

    def compute(self, members: Mapping[str, Member], busy: Sequence[str]) -> dict[str, Tensor]:
        """Run one pass for all rows of each family; return the logits of those who took part.

        Must be called without gradients.

        Args:
            members: all policies.
            busy: the names of those that write or are asked to.
        """
        computed: dict[str, Tensor] = {}
        if len(busy) < 2:
            return computed
        self._find(members)
        for names, family in self._found:
            writing = [n for n in names if n in busy and members[n].batch.rows.count]
            if len(writing) < 2:
                continue
            passes = {names.index(n): members[n].batch.prepare() for n in writing}
            found = family.run(passes)
            self._calls += 1
            computed |= {names[place]: logits for place, logits in found.items()}
        return computed

    def take_calls(self) -> int:
        """Return how many passes were shared since the last call."""
        calls, self._calls = self._calls, 0
        return calls

    def _find(self, members: Mapping[str, Member]) -> None:
        versions = [member.version for member in members.values()]
        if versions == self._versions:
            return
        groups: list[list[str]] = []
        for name, member in members.items():
            if not member.batch.can_prepare:
                continue
            alike = [g for g in groups if _alike(members[g[0]].model, member.model)]
            if alike:
                alike[0].append(name)
            else:
                groups.append([name])
        self._versions = versions
        self._found = [
            (names, Family([members[name].model for name in names]))
            for names in groups
            if len(names) > 1
        ]


def _alike(one: Model, other: Model) -> bool:
    """Whether two models have the same tensors outside plain LoRA layers' own."""
    if one is other or not isinstance(one, PeftModel) or not isinstance(other, PeftModel):
        return False
    layers = _lora_layers(one), _lora_layers(other)
    if not layers[0] or layers[0].keys() != layers[1].keys():
        return False
    if not all(_is_additive(layer) for some in layers for layer in some.values()):
        return False
    mine, theirs = dict(one.named_parameters()), dict(other.named_parameters())
    rest = {name for name in mine | theirs if ".lora_A." not in name and ".lora_B." not in name}
    return all(mine.get(name) is theirs.get(name) for name in rest)


def _is_additive(layer: Any) -> bool:
    """Whether a LoRA layer is the sum of its weights' product and its adapters' products."""
    return not (layer.merged or layer.disable_adapters or layer.lora_variant)


def _lora_layers(model: Model) -> dict[str, Any]:
    return {
        name: module for name, module in model.named_modules() if isinstance(module, LoraLinear)
    }
