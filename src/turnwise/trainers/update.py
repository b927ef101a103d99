"""Optimizer steps from one batch of rows: forest, loss, gradient, step.

Provides `make_batch` and `optimise`, which every loop uses. The caller controls dropout; a policy
gradient needs eval mode with gradients. Values per token are in flat columns [tokens of all
rows].
"""

from __future__ import annotations

from collections.abc import Collection, Mapping, Sequence
from dataclasses import dataclass, replace
from typing import Any

import numpy as np
import torch
from numpy.typing import NDArray
from torch import Tensor

from turnwise.errors import EngineError, NonFiniteGradientError
from turnwise.forest import EntropyUse, MicroBatch, Scorer, forest_metrics
from turnwise.forest.score import Model
from turnwise.losses import LossConfig, LossInputs, combine_metrics, token_weights, total_loss
from turnwise.parallel import ALONE, ProcessGroup, divide_rows
from turnwise.policies import Policy, PolicyOptimizer
from turnwise.trainers.exchange import Share, joined_metrics, sum_gradients
from turnwise.trainers.minibatches import Part
from turnwise.types import FloatArray, IntArray, TrainingSample, TurnId

Column = NDArray[np.floating[Any]]
"""A value for each token of all rows, float32 or float64, [tokens of all rows]."""
SAMPLE_STREAMS = {
    "advantages": "advantages",
    "behaviour_logprobs": "logprobs",
    "sampled": "sampled_mask",
}
"""Columns that are streams of the samples; all columns are named as `LossInputs` names them."""
WEIGHT_STREAMS = ("rl", "ce", "ref_kl", "entropy", "metric")
LOW_PRECISION_K3, LOW_PRECISION_P999 = 1e-3, 0.5
"""Mean k3 of sampler and trainer below float32, and the 99.9th percentile of their difference in
nats (docs/math.md 3)."""
FP32_MEAN, FP32_LARGEST = 1e-5, 1e-2
"""Mean and largest |difference| of sampler and trainer in float32, in nats.

Of 12,000 tokens a sharp model's least likely ones have reached 1.1e-4 by rounding alone, while
weights that are one update old differ by more than 1e-3 in the mean (docs/math.md 3).
"""


@dataclass(frozen=True, kw_only=True, slots=True, eq=False)
class Batch:
    """The rows of one optimizer batch and all their per-token values, denominators included.

    `columns`: name -> [tokens of all rows]; `offsets`: where each row begins, [rows]; `parts`: what
    of the rows stays in one mini-batch (`trainers.minibatches`), [rows].
    """

    samples: Sequence[TrainingSample]
    columns: dict[str, Column]
    offsets: np.ndarray
    parts: Sequence[Part | None]

    def part(self, rows: Sequence[int]) -> Batch:
        """Return some rows: weights keep their denominators, metrics become means over the part."""
        lengths = [len(self.samples[row].token_ids) for row in rows]
        offsets = self.offsets[list(rows)]
        metric = self.columns["metric_weight"]
        spans = zip(offsets, lengths, strict=True)
        total = sum(metric[o : o + n].sum(dtype=np.float64) for o, n in spans)
        columns = self.columns | {"metric_weight": metric / np.float32(total or 1.0)}
        return replace(self.rows(rows), columns=columns)

    def rows(self, rows: Sequence[int]) -> Batch:
        """Return some rows with all their values as they are."""
        return Batch(
            samples=[self.samples[r] for r in rows],
            columns=self.columns,
            offsets=self.offsets[list(rows)],
            parts=[self.parts[r] for r in rows],
        )

    def at(self, batch: MicroBatch) -> dict[str, Tensor]:
        """Return the columns at a micro-batch's occurrences, each [T]."""
        where = self.offsets[batch.row.numpy()] + batch.position.numpy()
        return {name: torch.from_numpy(column[where]) for name, column in self.columns.items()}


def make_batch(
    samples: Sequence[TrainingSample],
    loss: LossConfig,
    *,
    counted: Collection[TurnId] | None = None,
    proximal: Column | None = None,
    reference: Column | None = None,
    parts: Sequence[Part | None] | None = None,
    scale: float = 1.0,
) -> Batch:
    """Fix every token's weight before anything is split (docs/math.md 3 and 4).

    Args:
        samples: all rows of the batch.
        loss: its aggregation decides the denominators.
        counted: the turns that denominators of the policy gradient count; None is all.
        proximal: the trainer's log-probabilities at batch start; None takes the behaviour's.
        reference: the reference policy's log-probabilities, where the loss has a KL part.
        parts: what of the rows stays in one mini-batch; None where there is only one.
        scale: factor of all weights; the number of mini-batches, so that their mean is the batch.
    """
    weights = token_weights(samples, loss, counted=counted)
    columns: dict[str, Column] = {
        name: _joined([getattr(sample, stream) for sample in samples])
        for name, stream in SAMPLE_STREAMS.items()
    }
    for name in WEIGHT_STREAMS:
        found = _joined([getattr(row, name) for row in weights])
        columns[f"{name}_weight"] = found * np.float32(scale)
    columns["proximal_logprobs"] = columns["behaviour_logprobs"] if proximal is None else proximal
    if reference is not None:
        columns["ref_logprobs"] = reference
    return Batch(
        samples=samples,
        columns=columns,
        offsets=row_offsets(samples),
        parts=[None] * len(samples) if parts is None else parts,
    )


def row_offsets(samples: Sequence[TrainingSample]) -> np.ndarray:
    """Return where each row begins in a flat column, [rows]."""
    lengths = [len(sample.token_ids) for sample in samples]
    return np.cumsum([0, *lengths])[:-1].astype(np.int64)


def score_column(
    model: Model,
    scorer: Scorer,
    samples: Sequence[TrainingSample],
    group: ProcessGroup = ALONE,
) -> Column:
    """Return the model's log-probability of every target, without gradient, as a flat column.

    The column is float64 where the model is, so that ratios to it are exactly 1, and else float32.
    `group` are the processes that share the rows; each returns the whole column.
    """
    offsets = row_offsets(samples)
    exact = next(model.parameters()).dtype == torch.float64
    column = np.zeros(
        sum(len(sample.token_ids) for sample in samples), np.float64 if exact else np.float32
    )
    own = np.array(rows_of_process(samples, group), dtype=np.int64)
    with torch.no_grad():
        for batch in scorer.batches([samples[row] for row in own]):
            found = scorer.score(model, batch, entropy="none").logprobs
            row = own[batch.row.numpy()]
            column[offsets[row] + batch.position.numpy()] = found.cpu().numpy()
    group.sum_(torch.from_numpy(column))  # in place; the other processes' rows are 0 here
    return column


def rows_of_process(samples: Sequence[TrainingSample], group: ProcessGroup) -> list[int]:
    """Return the rows that this process computes, ascending."""
    if group.is_alone:
        return list(range(len(samples)))
    return divide_rows([_computed(sample) for sample in samples], group.size)[group.rank]


def _computed(sample: TrainingSample) -> IntArray:
    """Return the tokens of a row that a target depends on."""
    targets = sample.targets
    return sample.token_ids[: targets[-1] if len(targets) else 0]


def optimise(
    policy: Policy,
    optimizer: PolicyOptimizer,
    scorer: Scorer,
    batch: Batch,
    loss: LossConfig,
    *,
    rows: Sequence[int] | None = None,
    group: ProcessGroup = ALONE,
) -> dict[str, float]:
    """Take one optimizer step on `rows` of a batch (all of them by default); return its metrics.

    Gradients add up over micro-batches whose weights were fixed before, so the step does not depend
    on how they were cut. For the same reason they add up over the processes in `group`, which share
    the rows and take the same step.

    Raises:
        NonFiniteGradientError: if gradients were not finite three times in a row.
    """
    part = batch.part(range(len(batch.samples)) if rows is None else rows)
    own = part if group.is_alone else part.rows(rows_of_process(part.samples, group))
    optimizer.zero()
    share = add_gradients(policy, scorer, own, loss)
    if not group.is_alone:
        sum_gradients(policy.trainable_parameters(), group)
    try:
        stepped = optimizer.step()
    except NonFiniteGradientError as error:
        raise NonFiniteGradientError(f"{error}; {_members(part.samples)}") from None
    shares = group.gather(share)
    drawn = np.concatenate([each.drawn for each in shares])
    return joined_metrics(shares) | stepped | _gap_metrics(drawn)


def add_gradients(policy: Policy, scorer: Scorer, batch: Batch, loss: LossConfig) -> Share:
    """Add the gradient of the rows of a batch, and return what was measured of them."""
    micro_batches = scorer.batches(batch.samples) if batch.samples else []
    use: EntropyUse = "trained" if loss.entropy_weight else "measured"
    pieces: list[Mapping[str, Tensor]] = []
    span_entropy = 0.0
    drawn: list[Tensor] = []
    for micro_batch in micro_batches:
        scores = scorer.score(policy.model, micro_batch, entropy=use)
        inputs = _inputs(batch.at(micro_batch), micro_batch, scores.logprobs, scores.entropy)
        output = total_loss(inputs, loss)
        output.loss.backward()
        pieces.append(output.metrics)
        drawn.append(_drawn_ratio(inputs))
        span_entropy += float((inputs.entropy_weight * inputs.entropy.detach()).sum())
    return Share(
        loss=combine_metrics(pieces),
        forest=forest_metrics(micro_batches),
        span_entropy=span_entropy,
        drawn=torch.cat(drawn).double().numpy() if drawn else np.zeros(0),
    )


def _members(samples: Sequence[TrainingSample]) -> str:
    """Name the first rows of a batch."""
    shown = [str(row.turns[0]) if row.turns else "a supervised row" for row in samples[:3]]
    more = f" and {len(samples) - 3} more" if len(samples) > 3 else ""
    return f"its rows are of {', '.join(shown)}{more}"


def check_weights(metrics: Mapping[str, float], policy: Policy, *, low_precision: bool) -> None:
    """Raise if the sampler's log-probabilities are not the trainer's (docs/math.md 3).

    Every first mini-batch scores what was sampled by the same weights, so each batch is a check of
    the last update of weights: float32 by the mean and the largest difference, anything shorter by
    the mean k3 and the 99.9th percentile.

    Raises:
        EngineError: if they differ by more than rounding explains.
    """
    largest, mean = metrics["engine/gap_max"], metrics["engine/gap_mean"]
    if low_precision:
        wrong = (
            metrics["engine/gap_k3"] > LOW_PRECISION_K3
            or metrics["engine/gap_p999"] > LOW_PRECISION_P999
        )
    else:
        wrong = mean > FP32_MEAN or largest > FP32_LARGEST
    if wrong:
        raise EngineError(
            f"policy {policy.name!r}: the engine's log-probabilities differ from the trainer's by "
            f"{mean:.1e} nats in the mean and {largest:.1e} at most: the engine did not sample "
            f"from the weights {policy.digest()[:12]}; set trainer.mismatch = 'ignore' to go on"
        )


def _inputs(
    at: dict[str, Tensor], batch: MicroBatch, logprobs: Tensor, entropy: Tensor
) -> LossInputs:
    device = logprobs.device
    columns: dict[str, Any] = {name: value.to(device) for name, value in at.items()}
    columns["sampled"] = columns["sampled"] != 0
    turn = batch.turn.to(device)
    return LossInputs(logprobs=logprobs, entropy=entropy, turn=turn, **columns)


def _drawn_ratio(inputs: LossInputs) -> Tensor:
    """Return log(current / behaviour) of the tokens that the engine drew, on the CPU, [drawn]."""
    return (inputs.logprobs.detach() - inputs.behaviour_logprobs)[inputs.sampled].cpu()


def _gap_metrics(log_ratio: NDArray[np.float64]) -> dict[str, float]:
    """Return how far current and behaviour log-probabilities are apart, from [drawn]."""
    ratio = log_ratio if len(log_ratio) else np.zeros(1)
    gap = np.abs(ratio)
    return {
        "engine/gap_max": float(gap.max()),
        "engine/gap_mean": float(gap.mean()),
        "engine/gap_p999": float(np.quantile(gap, 0.999)),
        "engine/gap_k3": float((np.exp(ratio) - 1 - ratio).mean()),
    }


def _joined(parts: Sequence[np.ndarray]) -> FloatArray:
    return np.concatenate(parts).astype(np.float32) if parts else np.zeros(0, np.float32)
