"""Rotary frequencies that depend on the sequence length, and lengths that change attention.

Provides `fix_rotary`, which fixes the frequencies of Long-RoPE and dynamic NTK models, and
`reachable_lengths`, the lengths in a config that a sequence must exceed to change the computation.

transformers chooses such frequencies by the longest position of a forward pass. The
log-probabilities of a row then depend on the other rows of its batch, and those of a token on the
tokens after it. turnwise chooses them once, for the longest sequence of a run.
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
"""The `rope_type` of a module with fixed frequencies."""
MAX_POSITION = 1 << 20
"""Largest position that is tested."""
PROBE_POSITIONS = 8
"""Number of first positions whose angles are compared."""
LENGTH = re.compile(
    r"window|chunk|floor|local_attention|topk|budget|extent|distance|compress|block_size|mem_len"
)
"""Names of config fields that hold lengths beyond which layers compute something else: sliding
windows, chunks of attention (Llama 4) and of scans (Mamba), the floor of a position-dependent
temperature (Llama 4, Inkling), the number of keys in sparse attention (DeepSeek-V3.2, Doge),
relative biases."""
NO_LENGTH = re.compile(r"layer|expert|group|pattern|moe_|vision|image|audio|inference_chunksize")
"""Names that match `LENGTH` but hold something else, or belong to parts that see no text."""
SPARSE = re.compile(r"index\w*topk|indexer_budget")
BLOCKS = re.compile(r"index_block_size|compress_ra")
"""Fields with the number of keys, or of blocks of keys, that sparse attention keeps; and fields
with the size of such blocks."""


def fix_rotary(model: nn.Module, context: int) -> None:
    """Choose length-dependent rotary frequencies for sequences of up to `context` tokens.

    Long-RoPE uses its long factors if `context` exceeds the original length, else its short ones.
    Dynamic NTK uses the base for `context` tokens. vLLM does the same by `max_model_len`. A module
    whose own code reads the longest position (the scale of PhiMoE) gets the last position of
    `context` in every pass, so its angles are those of a sequence of that length.

    Raises:
        ModelError: if angles still depend on the longest position of a pass.
    """
    for module in model.modules():
        kinds = vars(module).get("rope_type")
        if isinstance(kinds, dict):
            for layer_type, kind in kinds.items():
                if _is_length_dependent(kind):
                    _fix(module, kind, context, layer_type)
                    kinds[layer_type] = FIXED
        elif _is_length_dependent(kinds):
            _fix(module, str(kinds), context, None)
            module.rope_type = FIXED  # pyright: ignore[reportArgumentType]
    last = min(context, MAX_POSITION) - 1
    for module in model.modules():
        if _depends_on_length(module, MAX_POSITION - 1) and not isinstance(
            module, FixedLengthRotary
        ):
            module.__class__ = type(type(module).__name__, (FixedLengthRotary, type(module)), {})
            vars(module)["_last"] = last
            if _depends_on_length(module, last):
                raise ModelError(
                    f"the rotary positions of {type(model).__name__} depend on the longest "
                    f"sequence of a batch within its context of {context} tokens, and cannot be "
                    "fixed: set the policy's context to the length that the model was first "
                    "trained at, or use another model"
                )


class FixedLengthRotary(nn.Module):
    """A rotary module that always also computes position `_last`, so its angles do not change."""

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

    The angles of the first positions are computed alone and again together with the last position
    of `context`, or of the shorter context given to `fix_rotary`.

    Raises:
        ModelError: if the angles differ.
    """
    last = min(context, MAX_POSITION) - 1
    for name, module in model.named_modules():
        if _depends_on_length(
            module, min(last, module._last) if isinstance(module, FixedLengthRotary) else last
        ):
            raise ModelError(
                f"the rotary positions of {type(model).__name__} ({name}) depend on the longest "
                f"sequence of a batch within its context of {context} tokens: load it as a policy, "
                "or call turnwise.kernels.fix_rotary(model, context) before"
            )


def reachable_lengths(config: Mapping[str, Any], context: int) -> dict[str, int]:
    """Return the lengths below `context` beyond which layers compute something else.

    Example:
        >>> reachable_lengths({"sliding_window": 4096, "window_size": 256}, 1024)
        {'window_size': 256}
    """
    found = dict(_lengths(config))
    kept = [(name, size) for name, size in found.items() if SPARSE.search(name)]
    blocks = [(name, size) for name, size in found.items() if BLOCKS.search(name)]
    for (name, size), (other, width) in itertools.product(kept, blocks):
        found[f"{name} x {other}"] = size * width
    return {name: size for name, size in found.items() if size < context}


def _lengths(config: Mapping[str, Any], within: str = "") -> Iterator[tuple[str, int]]:
    """Yield the lengths of a config and of its sub-configs, under names like `part.field`."""
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


def _is_length_dependent(kind: object) -> bool:
    return isinstance(kind, str) and (kind == "longrope" or "dynamic" in kind)


def _fix(module: Any, kind: str, context: int, layer_type: str | None) -> None:
    """Write the frequencies for `context` tokens into a rotary module."""
    prefix = "" if layer_type is None else f"{layer_type}_"
    frequencies = getattr(module, f"{prefix}inv_freq")
    given = {} if layer_type is None else {"layer_type": layer_type}
    chosen, scale = ROPE_INIT_FUNCTIONS[kind](
        module.config, frequencies.device, seq_len=min(context, MAX_POSITION), **given
    )
    with torch.no_grad():
        frequencies.copy_(chosen)
    setattr(module, f"{prefix}attention_scaling", scale)


def _depends_on_length(module: nn.Module, last: int) -> bool:
    """Whether the angles of the first positions change if position `last` is in the pass."""
    if "Rotary" not in type(module).__name__ or last < PROBE_POSITIONS:
        return False
    kinds = vars(module).get("rope_type")
    asked = [{"layer_type": kind} for kind in kinds] if isinstance(kinds, dict) else [{}]
    device = next(module.buffers(), torch.zeros(0)).device
    near = torch.arange(PROBE_POSITIONS, device=device)[None]
    far = torch.cat([near, torch.tensor([[last]], device=device)], 1)
    for given in asked:
        try:
            with torch.no_grad():
                alone, beside, again = (
                    _angles(module, positions, given) for positions in (near, far, near)
                )
        except (TypeError, ValueError, RuntimeError, IndexError, AttributeError):
            continue  # its signature differs from that of transformers' modules
        if not (torch.equal(alone, beside) and torch.equal(alone, again)):
            return True
    return False


def _angles(module: nn.Module, positions: Tensor, given: dict[str, str]) -> Tensor:
    """Return a rotary module's angles of the first positions, as one tensor."""
    found = module(torch.zeros(1, device=positions.device), positions, **given)
    parts = found if isinstance(found, tuple) else (found,)
    return torch.cat([torch.view_as_real(p) if p.is_complex() else p for p in parts], -1)[
        :, :PROBE_POSITIONS
    ]
