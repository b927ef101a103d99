"""With a cache or without? Measured at load: a few random rows are written both ways.

Owns `choose_rows`. Nothing is believed about a model that was not measured: windows may be lost
silently, recurrent mixers keep no keys, kernels refuse masks, and layers may depend on positions
by more than rotary angles. Knows nothing of requests.

Shapes: R rows of the probe, T tokens a row, V vocabulary.
"""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass, replace
from functools import partial

import numpy as np
import torch
from torch import Tensor

from turnwise.engines.config import EngineConfig
from turnwise.engines.masks import MaskRule, mask_forms, sliding_window
from turnwise.engines.rows import CachedRows, Prompt, RecomputedRows, Rows
from turnwise.errors import EngineError
from turnwise.kernels import check_rotary, lengths_that_matter, undo_steps, use, use_steps
from turnwise.kernels.positions import FAR
from turnwise.kernels.wrapped import Model, base_of
from turnwise.noise import generator

TOLERANCE = 1e-3
"""Largest difference of a log-probability, in nats, between two ways in float32."""
LOW_MEAN, LOW_TAIL = 2e-2, 0.2
"""The same for bfloat16 and float16: mean and 99th percentile."""
POWER = 0.05
"""A right mask may differ by at most this share of what a mask that hides the past changes."""
STEPS = 6
"""Tokens written one by one."""
SHORT = 48
"""Length of the probe where there is no window to cross."""
FAR_PROMPT = 10
"""Length of the prompts of the probe at the context's end."""
REFUSALS = (
    TypeError, ValueError, RuntimeError, IndexError, AttributeError, KeyError, AssertionError,
)  # fmt: skip
"""What models raise that do not take a mask of four dimensions, position ids or this cache."""


@dataclass(frozen=True, kw_only=True, slots=True, eq=False)
class Probe:
    """Random rows, and the model's own log-probabilities of everything after their prompts.

    `crossed`: whether they are longer than all that layers look back; if not, `unnamed` says
    whether other lengths matter than the window, which masks are made for.
    """

    prompts: list[tuple[int, ...]]
    replies: np.ndarray
    expected: list[Tensor]
    low_precision: bool
    crossed: bool
    unnamed: bool
    note: str


def choose_rows(
    model: Model, context: int, config: EngineConfig, seed: int
) -> tuple[Callable[[], Rows], str]:
    """Return what makes rows for this model, and why.

    The reference is one row at a time, unpadded and without a cache, through the model's forward.

    Raises:
        EngineError: if `config.cache = "slots"` and the cache does not give the model's numbers, or
            if nothing does.
        ModelError: if what a row computes depends on the lengths of others.
    """
    check_rotary(base_of(model), context)
    use(base_of(model))
    use_steps(base_of(model), config.copy_megabytes << 20, context)
    with torch.inference_mode():
        probe = _make_probe(model, context, config, seed)
        tried = ["asked for"] if config.cache == "none" else []
        if config.cache != "none":
            found = _cached(model, context, config, probe, tried)
            if found is None and undo_steps(base_of(model)):
                tried.append("without fused decoder layers")
                found = _cached(model, context, config, probe, tried)
            if found is not None:
                return found
        if config.cache == "slots":
            raise EngineError(
                "engine.cache = 'slots', but the cache does not give this model's numbers: "
                f"{'; '.join(tried)}: set engine.cache = 'auto' or 'none'"
            )
        try:
            difference = _difference(RecomputedRows(model), probe)
        except REFUSALS as error:
            raise EngineError(
                f"{type(base_of(model)).__name__} cannot take whole sequences side by side "
                f"({type(error).__name__}: {str(error)[:120]}): it cannot be sampled here; is it a "
                "causal decoder?"
            ) from error
        if not _close(difference, probe.low_precision):
            raise EngineError(
                f"the model gives other numbers in a padded batch than alone "
                f"({_said(difference)}): it cannot be sampled here; is it a causal decoder?"
            )
        why = f"no cache: {'; '.join(tried)} (whole sequences: {_said(difference)})"
        return partial(RecomputedRows, model), why


def _cached(
    model: Model, context: int, config: EngineConfig, probe: Probe, tried: list[str]
) -> tuple[Callable[[], Rows], str] | None:
    """Try the forms of masks; return the first that gives the model's numbers."""
    base = base_of(model)
    fields = base.config.get_text_config().to_dict()
    window, prefix_bytes = sliding_window(fields), config.prefix_megabytes << 20
    for form in mask_forms(fields):
        if not probe.crossed and (form == "full" or probe.unnamed):
            tried.append(f"{form} mask{probe.note}")
            continue
        rule = MaskRule(form=form, window=window, dtype=base.dtype)
        blind = MaskRule(form=form, window=window, dtype=base.dtype, blind=True)
        try:
            difference = _difference(CachedRows(model, rule, 1 << 30), probe)
            changed = _difference(CachedRows(model, blind, 1 << 30), probe)
            apart = _difference_far(model, rule, probe, context)
        except REFUSALS as error:
            tried.append(f"{form} mask refused ({type(error).__name__}: {str(error)[:120]})")
            continue
        if not _close(difference, probe.low_precision):
            tried.append(f"{form} mask, {_said(difference)}")
        elif _size(difference, probe) > POWER * _size(changed, probe):
            tried.append(
                f"{form} mask, {_said(difference)}, which proves nothing: a mask that hides "
                f"the past changes only {float(changed.max()):.0e}"
            )
        elif not _close(apart, probe.low_precision):
            tried.append(f"{form} mask, {_said(apart)} at the context's last positions")
        else:
            why = f"cache: {form} mask, {_said(difference)}{probe.note}"
            return partial(CachedRows, model, rule, prefix_bytes), why
    return None


def _make_probe(model: Model, context: int, config: EngineConfig, seed: int) -> Probe:
    """Draw rows longer than what the model's layers look back, if `config.probe_tokens` allows it.

    Two share half of their prompts, so that remembered prompts are measured too.
    """
    base = base_of(model)
    fields = base.config.get_text_config().to_dict()
    matter = lengths_that_matter(fields, context)
    farthest = max(matter.values(), default=0)
    length = min(max(SHORT, farthest + STEPS + 8), config.probe_tokens, context)
    uncrossed = [f"{n} = {size}" for n, size in matter.items() if length <= size + STEPS]
    note = ""
    if uncrossed:
        note = f"; {', '.join(uncrossed)} was not crossed (engine.probe_tokens)"
    vocab = int(fields["vocab_size"])
    rng = generator(seed, "engine probe")
    steps = min(STEPS, length - 3)
    tokens = rng.integers(min(4, vocab - 1), vocab, (3, length))
    half = (length - steps) // 2
    tokens[1, :half] = tokens[0, :half]
    prompts = [tuple(row[: length - steps].tolist()) for row in tokens]
    prompts[2] = prompts[2][: max(half, 1)]
    replies = tokens[:, length - steps :]
    expected = [
        _own_logprobs(model, prompt, reply)
        for prompt, reply in zip(prompts, replies.tolist(), strict=True)
    ]
    low = base.dtype != torch.float32
    return Probe(
        prompts=prompts,
        replies=replies,
        expected=expected,
        low_precision=low,
        crossed=not uncrossed,
        unnamed=any(not name.startswith("sliding_window =") for name in uncrossed),
        note=note,
    )


def _own_logprobs(model: Model, prompt: Prompt, reply: list[int], shift: int = 0) -> Tensor:
    """Return the log-probabilities of all tokens after the prompt and after each of `reply`."""
    tokens = torch.tensor([[*prompt, *reply]], device=base_of(model).device)
    told = {"position_ids": shift + torch.arange(tokens.shape[1], device=tokens.device)[None]}
    found = model(input_ids=tokens, use_cache=False, **(told if shift else {}))
    return found.logits[0, len(prompt) - 1 :].float().log_softmax(-1)


def _difference_far(model: Model, rule: MaskRule, probe: Probe, context: int) -> Tensor:
    """Return the differences of short rows that are told the last positions of the context.

    What layers do at far positions alone, such as a scale of the queries (Ministral 3), is seen so
    without rows of that length.
    """
    steps = probe.replies.shape[1]
    shift = max(0, min(context, FAR) - FAR_PROMPT - steps)
    prompts = [prompt[:FAR_PROMPT] for prompt in probe.prompts]
    prompts[2] = prompts[2][: FAR_PROMPT // 2]
    expected = [
        _own_logprobs(model, prompt, reply, shift)
        for prompt, reply in zip(prompts, probe.replies.tolist(), strict=True)
    ]
    far = replace(probe, prompts=prompts, expected=expected)
    return _difference(CachedRows(model, rule, 1 << 30, shift=shift), far)


def _difference(rows: Rows, probe: Probe) -> Tensor:
    """Return |written - expected| for every row, step and token of the vocabulary, flat.

    The second prompt comes when the others are being written, as it does in use.
    """
    order, first = rows.prefill([probe.prompts[0], probe.prompts[2]])
    places = [(0, 2)[index] for index in order]
    found = [[first[places.index(0)]], [], [first[places.index(2)]]]
    _, second = rows.prefill([probe.prompts[1]])
    found[1].append(second[0])
    places.append(1)
    for step in range(probe.replies.shape[1]):
        logits = rows.decode(probe.replies[places, step])
        for place, row in enumerate(places):
            found[row].append(logits[place])
    written = torch.cat([torch.stack(row) for row in found]).float().log_softmax(-1)
    return (written - torch.cat(probe.expected)).abs().nan_to_num(nan=torch.inf).flatten()


def _close(difference: Tensor, low_precision: bool) -> bool:
    if low_precision:
        tail = float(np.quantile(difference.cpu().numpy(), 0.99))
        return float(difference.mean()) <= LOW_MEAN and tail <= LOW_TAIL
    return float(difference.max()) <= TOLERANCE


def _size(difference: Tensor, probe: Probe) -> float:
    return float(difference.mean() if probe.low_precision else difference.max())


def _said(difference: Tensor) -> str:
    """Return the measurement in words."""
    mean, most = float(difference.mean()), float(difference.max())
    return f"difference {mean:.0e} in the mean, {most:.0e} at most"
