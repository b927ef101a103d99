"""The choice between trees and flat rows, by a measurement at load.

Provides `choose`, which scores one random trie both ways. Trees need a decoder that uses a mask of
four dimensions and position ids in every layer. Many decoders do not: windows are lost silently,
recurrent mixers cannot be masked, and kernels refuse masks.

Shapes: T occurrences of the probe.
"""

from __future__ import annotations

from dataclasses import dataclass, replace
from typing import Any

import numpy as np
import torch
from torch import Tensor, nn

from turnwise.errors import ModelError
from turnwise.forest.batches import MicroBatch, micro_batches, plan_of
from turnwise.forest.config import MOST_TOKENS, ForestConfig, Layout
from turnwise.forest.head import parts_of
from turnwise.forest.leaks import leaked_share
from turnwise.forest.score import FlatScorer, HeadPath, Scorer, TreeScorer
from turnwise.kernels import check_rotary, longest_sequence, reachable_lengths, use
from turnwise.kernels.probe import (
    POWER,
    REFUSALS,
    MaskForm,
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
from turnwise.types import EpisodeId, TrainingSample, TurnId

NOISE, LEAST_NOISE = 10.0, 5e-7
"""A right mask may differ by at most this many times what the same kernels differ on lone rows, or
what rounding changes, whichever is more.

A freshly initialised hybrid is off by 6e-5 only: its recurrence is small, and would grow.
"""
LEAK, LOW_LEAK = 1e-3, 0.1
"""Largest share of a part's output that siblings may change, in float32 and in shorter types."""
LOUD = 100.0
"""Size of the logits at which the LM head is compared: beyond the soft caps in use, 30 and 50."""


def choose(model: Model, config: ForestConfig, seed: int = 0, tokens: int = 0) -> Scorer:
    """Return the scorer that gives this model's own numbers, trees if they do.

    The reference is one row at a time, unpadded, through the model's own forward. Its rows have
    `tokens` tokens or more, up to `config.probe_tokens`. `scorer.reason` says what was measured.
    The model is left in the mode it was in.

    Raises:
        ModelError: if `config.layout = "tree"` and trees do not give the model's numbers, or if not
            even flat rows do.
    """
    base = base_of(model)
    check_rotary(base, longest_sequence(base.config.get_text_config()) or MOST_TOKENS)
    config = config.resolved(bytes_per_token(model))
    was_training = model.training
    model.eval()
    try:
        with torch.no_grad():
            probe = make_probe(model, config, seed, tokens)
            return _choose(model, config, probe)
    finally:
        model.train(was_training)


def bytes_per_token(model: Model) -> int:
    """Estimate what a decoder keeps of one token for the backward pass.

    In each layer about fourteen vectors of the hidden size and four of the feed-forward block's;
    with gradient checkpointing those of one layer, and one vector of each of the others.
    """
    base = base_of(model)
    sizes = base.config.get_text_config()
    hidden, layers = int(sizes.hidden_size), int(sizes.num_hidden_layers)
    inner = sizes.to_dict().get("intermediate_size") or 4 * hidden
    inners = inner if isinstance(inner, list | tuple) else [inner] * layers  # Gemma 3n: one a layer
    each = [14 * hidden + 4 * int(width) for width in inners]
    checkpointed = any(vars(module).get("gradient_checkpointing") for module in base.modules())
    kept = layers * hidden + max(each) if checkpointed else sum(each)
    return kept * base.dtype.itemsize


@dataclass(frozen=True, kw_only=True, slots=True, eq=False)
class Probe:
    """A random trie, the model's own log-probabilities of it, and budgets that hold it whole.

    `rounding` is the distance of float32 numbers at the largest logit, which is that of sums in
    another order: trained weights have larger logits than new ones.
    """

    samples: list[TrainingSample]
    config: ForestConfig
    expected: Tensor
    rounding: float
    low_precision: bool
    reach: Reach


def make_probe(model: Model, config: ForestConfig, seed: int, tokens: int = 0) -> Probe:
    """Draw a trie of four rows and score it row by row: nested turns, siblings, a twin.

    The rows have `tokens` tokens and are longer than what the model's layers look back, if
    `config.probe_tokens` allows it.
    """
    base = base_of(model)
    fields = base.config.get_text_config().to_dict()
    longest = longest_sequence(base.config.get_text_config())
    limit = config.probe_tokens if longest is None else min(config.probe_tokens, longest)
    matter = reachable_lengths(fields, MOST_TOKENS if longest is None else longest)
    length = min(
        limit, max(48, affordable_tokens(model, tokens), max(matter.values(), default=0) + 32)
    )
    reach = reach_of(matter, length - 1, option="forest.probe_tokens")
    samples = _probe_samples(base.config.get_text_config().vocab_size, length, seed)
    whole = ForestConfig(
        token_budget=8 * length,
        mask_budget=64 * length * length,
        head_chunk=config.head_chunk,
        break_even=64 * length,
    )
    logits = [_own_target_logits(model, sample) for sample in samples]
    largest = max(float(each.abs().max()) for each in logits)
    expected = [_own_logprobs(each, s) for each, s in zip(logits, samples, strict=True)]
    return Probe(
        samples=samples,
        config=whole,
        expected=torch.cat(expected),
        rounding=largest * torch.finfo(torch.float32).eps,
        low_precision=is_low_precision(model),
        reach=reach,
    )


def _probe_samples(vocab: int, length: int, seed: int) -> list[TrainingSample]:
    """Return rows of `length` tokens: [prompt, a, b], [prompt, a, c], [prompt, d], the first."""
    rng = generator(seed, "forest probe")

    def draw(count: int) -> list[int]:
        return random_tokens(rng, vocab, count).tolist()

    half, quarter = length // 2, length // 4
    prompt, first = draw(half), draw(quarter)
    rest = length - half - quarter
    rows = [prompt + first + draw(rest), prompt + first + draw(rest), prompt + draw(length - half)]
    turn = TurnId(
        episode=EpisodeId(iteration=0, visit=0, task="probe", member=0), role="player", turn=0
    )
    sampled = np.where(np.arange(length) >= half // 2, 0, -1)
    return [
        TrainingSample.of(policy="probe", turns=(turn,), token_ids=row, turn_index=sampled)
        for row in (*rows, rows[0])
    ]


def _own_target_logits(model: Model, sample: TrainingSample) -> Tensor:
    """Return the logits before a row's targets by the model's own forward, [targets, V]."""
    logits = own_logits(model, torch.from_numpy(sample.token_ids))
    targets = torch.from_numpy(sample.targets).to(logits.device)
    return logits[targets - 1].float()


def _own_logprobs(logits: Tensor, sample: TrainingSample) -> Tensor:
    """Return the log-probabilities of a row's targets, [targets], from the logits before them."""
    targets = torch.from_numpy(sample.token_ids[sample.targets]).to(logits.device)
    return logits.log_softmax(-1).gather(1, targets[:, None])[:, 0]


def _choose(model: Model, config: ForestConfig, probe: Probe) -> Scorer:
    if config.layout == "flat":
        return _flat(model, config, probe, "asked for")
    tried: list[str] = []
    ways = _ways(model)
    if not head_apart_agrees(model, probe.samples[0], low_precision=probe.low_precision):
        ways = []
        tried.append("decoder body and LM head, called apart, give other logits than the forward")
    for layout, form in ways:
        if not probe.reach.measures(form):
            tried.append(f"{layout}, {form} mask{probe.reach.note}")
            continue
        try:
            difference, doubt = _try(model, layout, form, probe)
        except REFUSALS as error:
            tried.append(f"{layout}, {form} mask refused ({first_words(error)})")
            continue
        said = f"{layout}, {form} mask, {_said(difference, probe)}"
        if doubt is None:
            reason = f"tree: {said}{probe.reach.note}"
            return TreeScorer(config=config, form=form, layout=layout, reason=reason)
        tried.append(said + doubt)
    if config.layout == "tree":
        raise ModelError(
            f"forest.layout = 'tree', but trees do not give this model's numbers: "
            f"{'; '.join(tried)}: set forest.layout = 'auto' or 'flat'"
        )
    return _flat(model, config, probe, "; ".join(tried))


def _ways(model: Model) -> list[tuple[Layout, MaskForm]]:
    """Return the layouts and forms of masks worth trying for a model, the fastest first."""
    base = base_of(model)
    fields = base.config.get_text_config().to_dict()
    forms = mask_forms(fields)
    ways: list[tuple[Layout, MaskForm]] = [("padded", form) for form in forms]
    use(base)
    if base.device.type == "cuda":
        ways = [*(("blocked", form) for form in forms), *ways]
    if base.device.type == "cpu" and sliding_window(fields) is None:  # what tree plans can do
        ways = [*(("packed", form) for form in forms), *ways]
    return ways


def _try(model: Model, layout: Layout, form: MaskForm, probe: Probe) -> tuple[Tensor, str | None]:
    """Return the differences of the trie [T], and what speaks against the mask (None: nothing)."""
    low = probe.low_precision
    scorer = TreeScorer(config=probe.config, form=form, layout=layout)
    if layout == "blocked":
        _try_backward(scorer, model, probe)
    tries = micro_batches(probe.samples, probe.config, layout)
    rows = micro_batches(probe.samples, probe.config, "flat")
    difference = _difference(scorer, model, tries, probe)
    if not is_close(difference, low_precision=low):
        return difference, ""
    off = size_of(difference, low_precision=low)
    leaked = _difference(scorer, model, [_leaky(batch) for batch in tries], probe)
    leak = size_of(leaked, low_precision=low)
    if off >= POWER * leak:
        return difference, f", inconclusive: a wrong mask that shows siblings adds {leak:.0e}"
    alone = _difference(scorer, model, rows, probe)
    noise = max(size_of(alone, low_precision=low), probe.rounding, LEAST_NOISE)
    if off > NOISE * noise:
        return difference, f", but only {noise:.0e} without siblings: they are not hidden"
    share = leaked_share(
        parts_of(model).body, lambda batch: scorer.score(model, batch, entropy="none"), tries[0]
    )
    if share > (LOW_LEAK if low else LEAK):
        return difference, f", but siblings change {share:.0%} of what a layer's part puts out"
    return difference, None


def _try_backward(scorer: Scorer, model: Model, probe: Probe) -> None:
    """Take a gradient, as kernels that are compiled may refuse only that.

    Raises:
        RuntimeError: if it is refused, or not finite.
    """
    some = [parameter for parameter in model.parameters() if parameter.requires_grad][:1]
    with torch.enable_grad():
        for batch in scorer.batches(probe.samples) if some else ():
            logprobs = scorer.score(model, batch, entropy="none").logprobs
            (gradient,) = torch.autograd.grad(logprobs.sum(), some)
            if not bool(gradient.isfinite().all()):
                raise RuntimeError("its gradient is not finite")


def _flat(model: Model, config: ForestConfig, probe: Probe, why: str) -> FlatScorer:
    """Return flat rows, with the LM head at targets only if that gives the same numbers."""
    batches = micro_batches(probe.samples, probe.config, "flat")
    head: HeadPath = "hidden" if _rows_agree(model, batches, probe) else "logits"
    difference = _difference(FlatScorer(config=probe.config, head=head), model, batches, probe)
    if not is_close(difference, low_precision=probe.low_precision):
        raise ModelError(
            f"{type(base_of(model)).__name__} gives other log-probabilities in a padded batch than "
            f"alone ({_said(difference, probe)}), so it cannot be trained here: use a causal "
            "decoder, without randomness in eval mode"
        )
    where = "LM head at targets" if head == "hidden" else "the model's own logits"
    reason = f"flat: {why} (rows by {where}: {_said(difference, probe)})"
    return FlatScorer(config=config, head=head, reason=reason)


def _rows_agree(model: Model, batches: list[MicroBatch], probe: Probe) -> bool:
    """Whether rows scored by body and LM head apart have the numbers of the model's forward."""
    sample, low = probe.samples[0], probe.low_precision
    if not head_apart_agrees(model, sample, low_precision=low):
        return False
    scorer = FlatScorer(config=probe.config, head="hidden")
    try:
        return is_close(_difference(scorer, model, batches, probe), low_precision=low)
    except REFUSALS:
        return False


def head_apart_agrees(model: Model, sample: TrainingSample, *, low_precision: bool) -> bool:
    """Whether body and LM head, called apart, give the logits of the model's forward.

    The hidden states of a row are taken as they are, and scaled so that logits come to about
    `LOUD`. A fresh model's logits are small, and would pass through a soft cap unchanged.
    """
    token_ids = torch.from_numpy(sample.token_ids)[None].to(base_of(model).device)
    kept: list[Tensor] = []
    scale = 1.0

    def scaled(module: nn.Module, given: Any, out: Any) -> Any:
        kept[:] = [out[0] * scale]
        if isinstance(out, tuple):
            return (*kept, *out[1:])
        out.last_hidden_state = kept[0]
        return out

    try:
        parts = parts_of(model)
        for _ in range(2):
            with parts.body.register_forward_hook(scaled):
                own = model(input_ids=token_ids, use_cache=False).logits[0]
            apart = parts.logits(kept[0][0])
            gap = (apart.float().log_softmax(-1) - own.float().log_softmax(-1)).abs()
            if not is_close(gap.flatten(), low_precision=low_precision):
                return False
            largest = float(parts.lm_head(kept[0]).abs().max())
            scale = LOUD / max(largest, 1e-3)
    except REFUSALS:
        return False
    return True


def _difference(scorer: Scorer, model: Model, batches: list[MicroBatch], probe: Probe) -> Tensor:
    """Return |scored - expected| of every occurrence, in the order of the samples, [T]."""
    found = torch.full_like(probe.expected, torch.nan)
    begins = np.cumsum([0, *(len(sample.targets) for sample in probe.samples)])
    for batch in batches:
        sample, position = batch.row.numpy(), batch.position.numpy()
        first = np.array([s.targets[0] for s in probe.samples])[sample]
        place = torch.from_numpy(begins[sample] + position - first).to(found.device)
        found[place] = scorer.score(model, batch, entropy="none").logprobs
    return (found - probe.expected).abs().nan_to_num(nan=torch.inf)


def _leaky(batch: MicroBatch) -> MicroBatch:
    """Return the batch with a mask that is wrong: every node sees all nodes before it."""
    end = torch.full_like(batch.end, batch.end.shape[1])
    plan = plan_of(batch.layout, end.numpy(), batch.positions.numpy())
    return replace(batch, end=end, plan=plan)


def _said(difference: Tensor, probe: Probe) -> str:
    """Return the measurement in words."""
    over = f"over {len(difference)} targets"
    if probe.low_precision:
        return f"mean difference {float(difference.mean()):.0e} {over}"
    return f"max difference {float(difference.max()):.0e} {over}"
