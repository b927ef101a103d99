"""The common part of measurements of a model at load: rows, the model's own numbers, the verdict.

A model computes faster with shared prefixes (`forest/choose.py`) and with a cache
(`engines/local/probe.py`) where masks, positions and plans give the numbers of its own forward.
Both are measured on random rows, which `reach_of` makes longer than what the model's layers look
back, against `own_logits`, one row at a time, unpadded and without a cache. Knows nothing of tries,
caches or requests.

Shapes: T tokens of a row, V vocabulary.
"""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass
from typing import Any, Literal

import numpy as np
import torch
from torch import Tensor

from turnwise.kernels.wrapped import Model, base_of

MaskForm = Literal["by layer type", "windowed", "full"]
"""The form in which a decoder gets its attention mask: one mask for each type of layers, one mask
within the window for all layers, or one full mask for all."""
TOLERANCE = 1e-3
"""Largest difference of a log-probability, in nats, between two ways in float32."""
LOW_MEAN, LOW_TAIL = 2e-2, 0.2
"""The same for bfloat16 and float16: mean and 99th percentile."""
CPU_WORK, WORK = 2e11, 5e12
"""Most parameters times tokens of a measured row, on CPUs and elsewhere: about a second a row."""
POWER = 0.05
"""A right mask may differ by at most this share of what a wrong mask changes."""
REFUSALS = (
    TypeError, ValueError, RuntimeError, IndexError, AttributeError, KeyError, AssertionError,
)  # fmt: skip
"""The errors of models that do not take a 4-D mask, position ids or a given cache."""


@dataclass(frozen=True, kw_only=True, slots=True)
class Reach:
    """A comparison of the rows of a measurement with the lengths that a model's layers look back.

    `crossed`: whether the rows are longer than all of them; if not, `unnamed` says whether other
    lengths matter than the window, which masks are made for, and `note` names them.

    Example:
        >>> reach_of({"sliding_window": 4096}, 512, option="forest.probe_tokens").note
        '; sliding_window = 4096 was not crossed (forest.probe_tokens)'
    """

    crossed: bool
    unnamed: bool
    note: str

    def measures(self, form: MaskForm) -> bool:
        """Whether a right mask of this form can be told from a wrong one."""
        return self.crossed or not (form == "full" or self.unnamed)


def reach_of(lengths: Mapping[str, int], reached: int, *, option: str) -> Reach:
    """Compare the lengths that matter to a model with the rows of a measurement.

    Args:
        lengths: name -> length, as `reachable_lengths` returns them.
        reached: how many tokens the tokens that are compared have before them.
        option: the option that bounds the rows, for the note.
    """
    uncrossed = [f"{name} = {size}" for name, size in lengths.items() if reached <= size]
    return Reach(
        crossed=not uncrossed,
        unnamed=any(not name.startswith("sliding_window =") for name in uncrossed),
        note=f"; {', '.join(uncrossed)} was not crossed ({option})" if uncrossed else "",
    )


def sliding_window(config: Mapping[str, Any]) -> int | None:
    """Return the sliding window of a decoder's config, as a mapping, or None."""
    window = config.get("sliding_window")
    return window if isinstance(window, int) else None


def mask_forms(config: Mapping[str, Any]) -> tuple[MaskForm, ...]:
    """Return the forms worth trying for a decoder's config, the likeliest first.

    Models with a window either name the types of their layers (Gemma 2) or use the window
    everywhere (Mistral). Which form a model obeys is found by measurement.

    Example:
        >>> mask_forms({"sliding_window": 4096, "layer_types": None})
        ('windowed', 'full')
    """
    forms: list[MaskForm] = []
    if config.get("layer_types") is not None:
        forms.append("by layer type")
    if sliding_window(config) is not None:
        forms.append("windowed")
    return (*forms, "full")


def affordable_tokens(model: Model, tokens: int) -> int:
    """Return `tokens`, or fewer if a row of so many would take seconds with a model of this size.

    The bound depends on the size and the device, and never on a measured time.
    """
    base = base_of(model)
    work = CPU_WORK if base.device.type == "cpu" else WORK
    return min(tokens, int(work / max(1, base.num_parameters())))


def random_tokens(rng: np.random.Generator, vocabulary: int, shape: Any) -> np.ndarray:
    """Return random token ids; the first four, where special tokens often are, do not occur."""
    return rng.integers(min(4, vocabulary - 1), vocabulary, shape)


def own_logits(model: Model, tokens_T: Tensor, *, shift: int = 0) -> Tensor:
    """Return the logits of one row by the model's own forward, [T, V].

    Args:
        model: the model; it is put in no mode here.
        tokens_T: the row's ids.
        shift: the position of the first token.
    """
    tokens = tokens_T[None].to(base_of(model).device)
    told = {"position_ids": shift + torch.arange(tokens.shape[1], device=tokens.device)[None]}
    found = model(input_ids=tokens, use_cache=False, **(told if shift else {}))
    return found.logits[0, -tokens.shape[1] :]


def is_low_precision(model: Model) -> bool:
    """Return whether a model computes in fewer bits than float32."""
    return base_of(model).dtype != torch.float32


def is_close(difference: Tensor, *, low_precision: bool) -> bool:
    """Return whether differences of log-probabilities, flat, are those of rounding."""
    if low_precision:  # torch.quantile takes at most 2**24 values
        tail = float(np.quantile(difference.cpu().numpy(), 0.99))
        return float(difference.mean()) <= LOW_MEAN and tail <= LOW_TAIL
    return float(difference.max()) <= TOLERANCE


def size_of(difference: Tensor, *, low_precision: bool) -> float:
    """Return the number by which differences are compared: the mean or, in float32, the largest."""
    return float(difference.mean() if low_precision else difference.max())


def first_words(error: Exception) -> str:
    """Return the kind and the beginning of what a model raised."""
    return f"{type(error).__name__}: {str(error)[:120]}"
