"""Rotary frequencies that depend on a sequence's length, and how far a decoder's layers look back.

Provides `fix_rotary`, which makes the frequencies of Long-RoPE and dynamic NTK models the same in
every pass, and `lengths_that_matter`, the sizes in a config that a measurement must exceed to see
them. Knows nothing of samples, requests or policies.

transformers chooses such frequencies by the longest position of a pass. The log-probabilities of a
row then depend on the rows beside it, and those of a token on what is written after it. So they are
chosen once, by the longest sequence that a run can have.
"""

from __future__ import annotations

import itertools
import re
from collections.abc import Iterator, Mapping
from typing import Any

import torch
from torch import Tensor, nn
from transformers.modeling_rope_utils import ROPE_INIT_FUNCTIONS

from turnwise.errors import ModelError

FIXED = "fixed"
"""The `rope_type` of a module whose frequencies no longer change."""
FAR = 1 << 20
"""Largest position that is tried."""
NEAR = 8
"""Positions whose angles are compared."""
LENGTH = re.compile(
    r"window|chunk|floor|local_attention|topk|budget|extent|distance|compress|block_size|mem_len"
)
"""Names of config fields that hold lengths beyond which layers compute something else: sliding
windows, chunks of attention (Llama 4) and of scans (Mamba), the floor of a temperature by position
(Llama 4, Inkling), keys that sparse attention keeps (DeepSeek-V3.2, Doge), relative biases."""
NO_LENGTH = re.compile(r"layer|expert|group|pattern|moe_|vision|image|audio|inference_chunksize")
"""Names that match `LENGTH` and hold something else, and parts that see no text."""
SPARSE = re.compile(r"index\w*topk|indexer_budget")
BLOCKS = re.compile(r"index_block_size|compress_ra")
"""Fields that count the keys, or the blocks of keys, that sparse attention keeps, and fields that
hold the sizes of such blocks."""


def fix_rotary(model: nn.Module, context: int) -> None:
    """Choose length-dependent rotary frequencies for sequences of up to `context` tokens.

    Long-RoPE takes its long factors if `context` exceeds the original length, else the short ones;
    dynamic NTK takes the base for `context` tokens. This is what vLLM does by `max_model_len`.
    A module whose own code looks at the longest position (PhiMoE's scale does) is shown the last
    position of `context` in every pass, so its angles are those of a sequence of that length.

    Raises:
        ModelError: if angles still depend on the longest position of a pass.
    """
    for module in model.modules():
        kinds = vars(module).get("rope_type")
        if isinstance(kinds, dict):
            for layer_type, kind in kinds.items():
                if _changes(kind):
                    _fix(module, kind, context, layer_type)
                    kinds[layer_type] = FIXED
        elif _changes(kinds):
            _fix(module, str(kinds), context, None)
            module.rope_type = FIXED  # pyright: ignore[reportArgumentType]
    last = min(context, FAR) - 1
    for module in model.modules():
        if _moves(module, FAR - 1) and not isinstance(module, Pinned):
            module.__class__ = type(type(module).__name__, (Pinned, type(module)), {})
            vars(module)["_last"] = last
            if _moves(module, last):
                raise ModelError(
                    f"the rotary positions of {type(model).__name__} depend on the longest "
                    f"sequence of a batch within its context of {context} tokens, and cannot be "
                    "fixed: set the policy's context to the length that the model was first "
                    "trained at, or use another model"
                )


class Pinned(nn.Module):
    """A rotary module that sees position `_last` in every pass, beside those that are asked."""

    _last: int

    def forward(self, x: Tensor, position_ids: Tensor, *args: Any, **kwargs: Any) -> Any:
        """Return the module's angles of `position_ids`, [..., positions, width]."""
        last = position_ids.new_full((*position_ids.shape[:-1], 1), self._last)
        found = super().forward(x, torch.cat([position_ids, last], -1), *args, **kwargs)
        if isinstance(found, tuple):
            return tuple(part[..., :-1, :] for part in found)
        return found[..., :-1, :]


def check_rotary(model: nn.Module, context: int) -> None:
    """Refuse a model whose rotary angles depend on the longest position of a pass.

    The angles of the first positions are computed alone, and beside the last one of `context`, or
    of the shorter context that `fix_rotary` was given.

    Raises:
        ModelError: if they differ.
    """
    last = min(context, FAR) - 1
    for name, module in model.named_modules():
        if _moves(module, min(last, module._last) if isinstance(module, Pinned) else last):
            raise ModelError(
                f"the rotary positions of {type(model).__name__} ({name}) depend on the longest "
                f"sequence of a batch within its context of {context} tokens: load it as a policy, "
                "or call turnwise.kernels.fix_rotary(model, context) before"
            )


def lengths_that_matter(config: Mapping[str, Any], context: int) -> dict[str, int]:
    """Return the lengths beyond which layers compute something else, if a sequence can exceed them.

    Example:
        >>> lengths_that_matter({"sliding_window": 4096, "window_size": 256}, 1024)
        {'window_size': 256}
    """
    found = dict(_lengths(config))
    kept = [(name, size) for name, size in found.items() if SPARSE.search(name)]
    blocks = [(name, size) for name, size in found.items() if BLOCKS.search(name)]
    for (name, size), (other, width) in itertools.product(kept, blocks):
        found[f"{name} x {other}"] = size * width
    return {name: size for name, size in found.items() if size < context}


def _lengths(config: Mapping[str, Any], within: str = "") -> Iterator[tuple[str, int]]:
    """Yield the lengths in a config and in the parts of it, under names like `part.field`."""
    for key, value in config.items():
        name = f"{within}{key}"
        if NO_LENGTH.search(name):
            continue
        if isinstance(value, dict):
            yield from _lengths(value, f"{name}.")
        elif LENGTH.search(name) and type(value) is int and value > 0:
            yield name, value


def longest_sequence(config: Any) -> int | None:
    """Return the longest sequence that a decoder's config allows, or None if it names none."""
    for name in ("max_position_embeddings", "n_positions", "max_seq_len", "context_length"):
        size = vars(config).get(config.attribute_map.get(name, name))
        if isinstance(size, int):
            return size
    return None


def _changes(kind: object) -> bool:
    return isinstance(kind, str) and (kind == "longrope" or "dynamic" in kind)


def _fix(module: Any, kind: str, context: int, layer_type: str | None) -> None:
    """Write the frequencies for `context` tokens into a rotary module."""
    prefix = "" if layer_type is None else f"{layer_type}_"
    frequencies = getattr(module, f"{prefix}inv_freq")
    given = {} if layer_type is None else {"layer_type": layer_type}
    chosen, scale = ROPE_INIT_FUNCTIONS[kind](
        module.config, frequencies.device, seq_len=min(context, FAR), **given
    )
    with torch.no_grad():
        frequencies.copy_(chosen)
    setattr(module, f"{prefix}attention_scaling", scale)


def _moves(module: nn.Module, last: int) -> bool:
    """Whether a module has angles whose first ones change when position `last` is in the pass."""
    if "Rotary" not in type(module).__name__ or last < NEAR:
        return False
    kinds = vars(module).get("rope_type")
    asked = [{"layer_type": kind} for kind in kinds] if isinstance(kinds, dict) else [{}]
    device = next(module.buffers(), torch.zeros(0)).device
    near = torch.arange(NEAR, device=device)[None]
    far = torch.cat([near, torch.tensor([[last]], device=device)], 1)
    for given in asked:
        try:
            with torch.no_grad():
                alone, beside, again = (
                    _angles(module, places, given) for places in (near, far, near)
                )
        except (TypeError, ValueError, RuntimeError, IndexError, AttributeError):
            continue  # not called like transformers' own
        if not (torch.equal(alone, beside) and torch.equal(alone, again)):
            return True
    return False


def _angles(module: nn.Module, places: Tensor, given: dict[str, str]) -> Tensor:
    """Return what a rotary module makes of the first positions."""
    found = module(torch.zeros(1, device=places.device), places, **given)
    parts = found if isinstance(found, tuple) else (found,)
    return torch.cat([torch.view_as_real(p) if p.is_complex() else p for p in parts], -1)[:, :NEAR]
