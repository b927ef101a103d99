"""The choice between cached and recomputed rows, by a measurement at load.

Provides `choose_rows`, which generates a few random rows both ways. A model is not assumed to
support a cache: windows may be lost silently, recurrent mixers have no keys, kernels refuse masks,
and layers may depend on positions by more than rotary angles.

Shapes: R rows of the probe, T tokens per row, V vocabulary.
"""

from __future__ import annotations

from collections.abc import Callable, Mapping
from dataclasses import dataclass, replace
from functools import partial

import numpy as np
import torch
from torch import Tensor

from turnwise.engines.base import PromptKey
from turnwise.engines.config import EngineConfig
from turnwise.engines.local.masks import MaskRule
from turnwise.engines.local.model_runner import CachedRows
from turnwise.engines.local.recomputed import RecomputedRows
from turnwise.engines.local.row_store import Ids, NewTokens, RowStore
from turnwise.errors import EngineError
from turnwise.kernels import (
    check_rotary,
    reachable_lengths,
    use,
)
from turnwise.kernels.positions import MAX_POSITION
from turnwise.kernels.probe import (
    POWER,
    REFUSALS,
    Reach,
    affordable_tokens,
    first_words,
    is_close,
    is_low_precision,
    mask_forms,
    own_logits,
    random_tokens,
    reach_of,
    size_of,
    sliding_window,
)
from turnwise.kernels.wrapped import Model, base_of
from turnwise.seeding import generator

STEPS = 6
"""Tokens written one by one."""
SHORT = 48
"""Shortest length of the probe."""
FAR_PROMPT = 10
"""Length of the prompts of the probe at the context's end."""


@dataclass(frozen=True, kw_only=True, slots=True, eq=False)
class EngineProbe:
    """Random rows, and the model's own log-probabilities of everything after their prompts."""

    prompts: list[tuple[int, ...]]
    replies: np.ndarray
    expected: list[Tensor]
    low_precision: bool
    reach: Reach


def choose_rows(
    model: Model, context: int, config: EngineConfig, seed: int, tokens: int = 0
) -> tuple[Callable[[], RowStore], str]:
    """Return what makes rows for this model, and why.

    The reference is one row at a time, unpadded and without a cache, through the model's forward.
    The rows have `tokens` tokens or more, up to `config.probe_tokens`.

    Raises:
        EngineError: if `config.cache = "slots"` and the cache does not give the model's numbers, or
            if nothing does.
        ModelError: if what a row computes depends on the lengths of others.
    """
    check_rotary(base_of(model), context)
    use(base_of(model))
    with torch.inference_mode():
        probe = _make_probe(model, context, config, seed, tokens)
        low = probe.low_precision
        tried = ["asked for"] if config.cache == "none" else []
        if config.cache != "none":
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
                f"({first_words(error)}): it cannot be sampled here; is it a causal decoder?"
            ) from error
        if not is_close(difference, low_precision=low):
            raise EngineError(
                f"the model gives other numbers in a padded batch than alone "
                f"({_said(difference)}): it cannot be sampled here; is it a causal decoder?"
            )
        why = f"no cache: {'; '.join(tried)} (whole sequences: {_said(difference)})"
        return partial(RecomputedRows, model), why


def _cached(
    model: Model, context: int, config: EngineConfig, probe: EngineProbe, tried: list[str]
) -> tuple[Callable[[], RowStore], str] | None:
    """Try the forms of masks; return the first that gives the model's numbers."""
    base = base_of(model)
    fields = base.config.get_text_config().to_dict()
    window, prefix_bytes = sliding_window(fields), config.prefix_megabytes << 20
    low = probe.low_precision
    for form in mask_forms(fields):
        if not probe.reach.measures(form):
            tried.append(f"{form} mask{probe.reach.note}")
            continue
        rule = MaskRule(form=form, window=window, dtype=base.dtype)
        blind = MaskRule(form=form, window=window, dtype=base.dtype, blind=True)
        try:
            difference = _difference(CachedRows(model, rule, 1 << 30), probe)
            changed = _difference(CachedRows(model, blind, 1 << 30), probe)
            wrong = size_of(changed, low_precision=low)
            apart = _difference_far(model, rule, probe, context)
        except REFUSALS as error:
            tried.append(f"{form} mask refused ({first_words(error)})")
            continue
        if not is_close(difference, low_precision=low):
            tried.append(f"{form} mask, {_said(difference)}")
        elif size_of(difference, low_precision=low) > POWER * wrong:
            tried.append(
                f"{form} mask, {_said(difference)}, inconclusive: a wrong mask that hides "
                f"the past changes only {float(changed.max()):.0e}"
            )
        elif not is_close(apart, low_precision=low):
            tried.append(f"{form} mask, {_said(apart)} at the context's last positions")
        else:
            why = f"cache: {form} mask, {_said(difference)}{probe.reach.note}"
            return partial(CachedRows, model, rule, prefix_bytes), why
    return None


def _make_probe(
    model: Model, context: int, config: EngineConfig, seed: int, tokens: int = 0
) -> EngineProbe:
    """Draw rows of `tokens` and longer than what the model's layers look back.

    They are shorter if `config.probe_tokens` or the context is, or if `tokens` would take seconds.

    Two share half of their prompts, so that remembered prompts are measured too.
    """
    base = base_of(model)
    fields = base.config.get_text_config().to_dict()
    matter = reachable_lengths(fields, context)
    farthest = max(matter.values(), default=0)
    length = min(
        max(SHORT, affordable_tokens(model, tokens), farthest + STEPS + 8),
        config.probe_tokens,
        context,
    )
    vocab = int(fields["vocab_size"])
    rng = generator(seed, "engine probe")
    steps = min(STEPS, length - 3)
    rows = random_tokens(rng, vocab, (3, length))
    half = (length - steps) // 2
    rows[1, :half] = rows[0, :half]
    prompts = [tuple(row[: length - steps].tolist()) for row in rows]
    prompts[2] = prompts[2][: max(half, 1)]
    replies = rows[:, length - steps :]
    expected = [
        _own_logprobs(model, prompt, reply)
        for prompt, reply in zip(prompts, replies.tolist(), strict=True)
    ]
    return EngineProbe(
        prompts=prompts,
        replies=replies,
        expected=expected,
        low_precision=is_low_precision(model),
        reach=reach_of(matter, length - STEPS, option="engine.probe_tokens"),
    )


def _own_logprobs(model: Model, prompt: Ids, reply: list[int], shift: int = 0) -> Tensor:
    """Return the log-probabilities of all tokens after the prompt and after each of `reply`."""
    logits = own_logits(model, torch.tensor([*prompt, *reply]), shift=shift)
    return logits[len(prompt) - 1 :].float().log_softmax(-1)


def _difference_far(model: Model, rule: MaskRule, probe: EngineProbe, context: int) -> Tensor:
    """Return the differences of short rows that are told the last positions of the context.

    What layers do at far positions alone, such as a scale of the queries (Ministral 3), is seen so
    without rows of that length.
    """
    steps = probe.replies.shape[1]
    shift = max(0, min(context, MAX_POSITION) - FAR_PROMPT - steps)
    prompts = [prompt[:FAR_PROMPT] for prompt in probe.prompts]
    prompts[2] = prompts[2][: FAR_PROMPT // 2]
    expected = [
        _own_logprobs(model, prompt, reply, shift)
        for prompt, reply in zip(prompts, probe.replies.tolist(), strict=True)
    ]
    far = replace(probe, prompts=prompts, expected=expected)
    return _difference(CachedRows(model, rule, 1 << 30, shift=shift), far)


def _difference(rows: RowStore, probe: EngineProbe) -> Tensor:
    """Return |written - expected| for every row, step and token of the vocabulary, flat.

    The second prompt comes when the others are being written, as it does in use. Rows go on by one
    token and by several, and a wrong token is taken back, as drafts are.
    """
    steps = probe.replies.shape[1]
    writing = _Writing(rows, probe)
    writing.add(0, 2)
    writing.go_on({0: 0, 2: 0})
    writing.add(1)
    writing.go_on({0: 3, 1: 0, 2: 1}, wrong=True)
    writing.go_on({0: 1, 1: 1, 2: 1})
    writing.go_on({0: steps, 1: steps, 2: steps})
    written = torch.cat([torch.stack(writing.found[place]) for place in range(3)])
    written = written.float().log_softmax(-1)
    return (written - torch.cat(probe.expected)).abs().nan_to_num(nan=torch.inf).flatten()


class _Writing:
    """The rows of a probe that are being written; `found` are the logits of each, by its place."""

    def __init__(self, rows: RowStore, probe: EngineProbe) -> None:
        self.found: dict[int, list[Tensor]] = {}
        self._rows, self._probe = rows, probe
        self._places: list[int] = []
        self._begins: list[Ids] = []
        self._held: list[int] = []

    def add(self, *places: int) -> None:
        """Add the prompts at some places of the probe."""
        order, rests = self._rows.prefill([PromptKey((), self._probe.prompts[p]) for p in places])
        self._places += [places[index] for index in order]
        self._begins += rests
        self._held += [0] * len(places)
        self.found |= {place: [] for place in places}

    def go_on(self, counts: Mapping[int, int], *, wrong: bool = False) -> None:
        """Run a pass that appends the next tokens of the replies, as many as are left.

        Where `wrong`, or where nothing else is left, a wrong token follows and is taken back.
        """
        begins, self._begins = self._begins, []
        begins = [()] * (len(self._places) - len(begins)) + begins
        tokens: list[int] = []
        sizes, wanted, false = [], [], []
        for place, begin in zip(self._places, begins, strict=True):
            done = max(len(self.found[place]) - 1, 0)
            part = [*begin, *self._probe.replies[place, done : done + counts[place]].tolist()]
            false.append(wrong or not part)
            part += [self._probe.prompts[place][0]] * false[-1]
            tokens += part
            sizes.append(len(part))
            wanted.append(len(part) - len(begin) + bool(begin))
        new = NewTokens(
            tokens=np.array(tokens),
            sizes=np.array(sizes),
            wanted=np.array(wanted),
            prompt=np.zeros(len(sizes), dtype=np.int64),
        )
        for row, logits in enumerate(self._rows.decode(new).split(wanted)):
            self.found[self._places[row]] += list(logits[: len(logits) - false[row]])
            self._held[row] += sizes[row] - false[row]
        self._rows.remember([])
        nothing = np.zeros(0, dtype=np.int64)
        self._rows.rearrange(nothing, nothing, np.array(self._held))


def _said(difference: Tensor) -> str:
    """Return the measurement in words."""
    mean, most = float(difference.mean()), float(difference.max())
    return f"difference {mean:.0e} in the mean, {most:.0e} at most"
