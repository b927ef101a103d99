"""Keys and values of the rows that are being generated, one slot per row.

Provides the memory, and the class through which transformers' models read and write it. Rows start
at the left, so a token's position is its index. Models see `[first:end, :, :length]` of the slots,
a view without a copy.

Shapes: S slots, C positions, H key-value heads, D width of a head, N rows, Q new tokens per row.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass, field
from typing import Any

import torch
from torch import Tensor
from transformers.cache_utils import Cache, CacheLayerMixin

LENGTH_STEP, SLOT_STEP = 64, 16
"""Memory grows in these steps."""


@dataclass(kw_only=True, slots=True)
class Place:
    """The cache positions that the next forward pass writes and attends to; shared by all layers.

    It writes at `positions_NQ` of the slots `slots_N1`, which may name a slot several times, and
    sees the first `length` positions of the slots `first` to `end`.
    """

    first: int = 0
    end: int = 0
    length: int = 0
    positions_NQ: Tensor = field(default_factory=lambda: torch.zeros(0, 0, dtype=torch.long))
    slots_N1: Tensor = field(default_factory=lambda: torch.zeros(0, 1, dtype=torch.long))

    @property
    def seen(self) -> int:
        """The positions that were there before this pass."""
        return self.length - self.positions_NQ.shape[1]


class SlotLayer(CacheLayerMixin):
    """One layer's keys and values, [S, H, C, D] each."""

    is_sliding = False

    def __init__(self, place: Place, slots: int, positions: int) -> None:
        super().__init__()
        self._place, self._slots, self._positions = place, slots, positions

    def lazy_initialization(self, key_states: Tensor, value_states: Tensor) -> None:
        """Take the memory, in the shape of the first keys and values that are written."""
        # Zeros: what is masked has weight 0, and 0 times whatever was in memory may be nan.
        sizes = (self._slots, key_states.shape[1], self._positions)
        self.keys = key_states.new_zeros(*sizes, key_states.shape[-1])
        self.values = value_states.new_zeros(*sizes, value_states.shape[-1])
        self.is_initialized = True

    def grow(self, slots: int, positions: int) -> None:
        """Make room, keeping what is there."""
        self._slots, self._positions = slots, positions
        if self.keys is not None and self.values is not None:
            self.keys = _grown(self.keys, slots, positions)
            self.values = _grown(self.values, slots, positions)

    def update(
        self, key_states: Tensor, value_states: Tensor, *args: Any, **kwargs: Any
    ) -> tuple[Tensor, Tensor]:
        """Write new keys and values [N, H, Q, D]; return all that the rows see, [N, H, L, D]."""
        if not self.is_initialized:
            self.lazy_initialization(key_states, value_states)
        assert self.keys is not None and self.values is not None
        place = self._place
        where = (place.slots_N1, slice(None), place.positions_NQ)
        self.keys[where] = key_states.transpose(1, 2)
        self.values[where] = value_states.transpose(1, 2)
        seen = (slice(place.first, place.end), slice(None), slice(place.length))
        return self.keys[seen], self.values[seen]

    def copy(self, source: Tensor, target: Tensor, length: int) -> None:
        """Copy the first `length` positions of the slots `source` to the slots `target`."""
        for tensor in (self.keys, self.values):
            if tensor is not None:
                tensor[target, :, :length] = tensor[source, :, :length]

    def wipe(self) -> None:
        """Overwrite everything with zeros."""
        for tensor in (self.keys, self.values):
            if tensor is not None:
                tensor.zero_()

    def clean(self) -> None:
        """Overwrite what is not finite with zeros."""
        for tensor in (self.keys, self.values):
            if tensor is not None:
                tensor.nan_to_num_(0.0, 0.0, 0.0)

    def get_mask_sizes(self, query_length: int) -> tuple[int, int]:
        """Return the visible length and offset, for models that ask."""
        return self._place.length, 0

    def get_seq_length(self) -> int:
        """Return how many positions are visible before this pass, for models that ask."""
        return self._place.seen

    def get_max_length(self) -> int:
        """Return that there is no fixed maximum."""
        return -1


class SlotCache(Cache):
    """The layers of one policy, made as the model asks for them.

    `copied` counts the bytes that were moved from slot to slot.
    """

    def __init__(self) -> None:
        super().__init__(layers=[])
        self.place = Place()
        self.slots = self.positions = self.copied = 0

    def __bool__(self) -> bool:
        """Return true: an empty cache is still a cache to models that test for one."""
        return True

    def update(
        self, key_states: Tensor, value_states: Tensor, layer_idx: int, *args: Any, **kwargs: Any
    ) -> tuple[Tensor, Tensor]:
        """Write one layer's new keys and values and return what its rows see."""
        while len(self.layers) <= layer_idx:
            self.layers.append(SlotLayer(self.place, self.slots, self.positions))
        layer = self.layers[layer_idx]
        assert isinstance(layer, SlotLayer)
        return layer.update(key_states, value_states)

    @property
    def slot_layers(self) -> list[SlotLayer]:
        """The layers that hold keys and values; layers that share another's hold none."""
        return [
            layer
            for layer in self.layers
            if isinstance(layer, SlotLayer) and layer.keys is not None
        ]

    def reserve(self, slots: int, positions: int) -> None:
        """Make room for that many slots and positions."""
        if slots <= self.slots and positions <= self.positions:
            return
        self.slots = max(self.slots, -(-slots // SLOT_STEP) * SLOT_STEP)
        self.positions = max(self.positions, -(-positions // LENGTH_STEP) * LENGTH_STEP)
        for layer in self.layers:
            assert isinstance(layer, SlotLayer)
            layer.grow(self.slots, self.positions)

    def take_shapes(self, other: SlotCache) -> None:
        """Make the layers that `other` has and this cache has not, without contents."""
        for number, layer in enumerate(other.layers):
            if number == len(self.layers):
                self.layers.append(SlotLayer(self.place, self.slots, self.positions))
            own = self.layers[number]
            assert isinstance(own, SlotLayer) and isinstance(layer, SlotLayer)
            if not own.is_initialized and layer.keys is not None and layer.values is not None:
                own.lazy_initialization(layer.keys, layer.values)

    def seen(self, layer: int, slots: int, length: int, like: Tensor) -> tuple[Tensor, Tensor]:
        """Return the first positions of a layer's first slots, a view: [slots, H, length, D].

        Nothing may have been written yet if `length` is 0: `like` [.., H, .., D] has the shape.
        """
        if not length:
            nothing = like.new_zeros(slots, like.shape[1], 0, like.shape[3])
            return nothing, nothing
        kept = self.layers[layer]
        assert isinstance(kept, SlotLayer)
        assert kept.keys is not None and kept.values is not None
        return kept.keys[:slots, :, :length], kept.values[:slots, :, :length]

    def aim(
        self, first: int, positions_NQ: Tensor, length: int, slots_N: Tensor | None = None
    ) -> None:
        """Set where the next pass writes and what it sees.

        Args:
            first: the first slot that is seen.
            positions_NQ: where each row of the pass writes.
            length: how many positions are seen.
            slots_N: the slot of each row, ascending from 0; None is one slot a row from `first` on.
        """
        place, rows = self.place, len(positions_NQ)
        place.positions_NQ = positions_NQ
        if slots_N is None:
            slots_N = torch.arange(first, first + rows, device=positions_NQ.device)
            place.end = first + rows
        else:
            place.end = int(slots_N[-1]) + 1
        place.first, place.length, place.slots_N1 = first, length, slots_N[:, None]

    def copy(self, source: Tensor, target: Tensor, length: int) -> None:
        """Copy the first `length` positions of some slots to others, in all layers."""
        for layer in self.slot_layers:
            layer.copy(source, target, length)
        self.copied += len(source) * length * self.position_bytes

    @property
    def position_bytes(self) -> int:
        """Bytes of the keys and values of one position of one slot, in all layers."""
        return position_bytes(self.slot_layers)

    def wipe(self, *, keep_bytes: int) -> None:
        """Forget all contents, and give the memory back if it is more than `keep_bytes`."""
        if self.slots * self.positions * self.position_bytes <= keep_bytes:
            for layer in self.slot_layers:
                layer.wipe()
        else:
            self.layers.clear()
            self.slots = self.positions = 0


def position_bytes(layers: Sequence[SlotLayer]) -> int:
    """Return the bytes of the keys and values of one position of one slot, in all `layers`."""
    kept = [tensor for layer in layers for tensor in (layer.keys, layer.values)]
    return sum(t.shape[1] * t.shape[3] * t.element_size() for t in kept if t is not None)


def _grown(tensor: Tensor, slots: int, positions: int) -> Tensor:
    """Return a larger tensor that begins with `tensor`, [S, H, C, D]."""
    grown = tensor.new_zeros(slots, tensor.shape[1], positions, tensor.shape[3])
    grown[: tensor.shape[0], :, : tensor.shape[2]] = tensor
    return grown
