"""The settings of an optimizer, and its learning rate by step, without torch.

Provides `OptimizerConfig`, `SftOptimizerConfig`, `learning_rate`, `first_peak` and `scheduled`.
"""

from __future__ import annotations

import math
from typing import Annotated, Literal, TypeAlias

from pydantic import Field

from turnwise.policies.auto_rate import LEAST_MOVEMENT
from turnwise.settings import Settings

Schedule = Literal["constant", "linear", "cosine"]
Decay = Annotated[float, Field(ge=0, lt=1)]
Rate = Annotated[float, Field(gt=0, le=1e6, allow_inf_nan=False)]
Movement = Annotated[float, Field(ge=LEAST_MOVEMENT, le=1e6, allow_inf_nan=False)]
FirstRate = Annotated[float, Field(ge=1e-12, le=1e3, allow_inf_nan=False)]


AUTO: Literal["auto"] = "auto"
START = 1e-4
"""The rate at which "auto" begins."""
MOVEMENT, LEAST_PEAK, MOST_PEAK = 15.0, 0.005, 0.1
"""The movements that "auto" wants at the peak of the schedule, in nats per decision: the sum over
all updates, and the bounds of that of one update. So the sum is less than 15 in fewer than 150
iterations, and more in over 3,000."""
RISE = 0.2
"""The share of the training over which the wanted movement rises to its peak. Large updates on the
rare rewards of the first iterations leave a policy certain of one answer before it has tried the
others (docs/results.md)."""


class StepConfig(Settings):
    """The rule of a step, and the schedule of its rate."""

    kind: Literal["adamw", "muon"] = "adamw"
    """AdamW (Loshchilov & Hutter 2017, arXiv:1711.05101); or Muon, which makes the momentum of each
    matrix of a linear layer orthogonal (Jordan et al. 2024, kellerjordan.github.io/posts/muon),
    with steps as long as AdamW's at the same rate (arXiv:2502.16982, eq. 4), and none without a
    gradient. The embeddings, the output layer and all other weights are AdamW's with both. "muon"
    needs torch 2.9."""
    betas: tuple[Decay, Decay] = (0.9, 0.95)
    """Decay of AdamW's two running moments (Adam, arXiv:1412.6980, algorithm 1), for the weights
    that it updates; 0.95 as for GPT-3 (arXiv:2005.14165, appendix B). That of Muon's is 0.95."""
    eps: float = Field(default=1e-8, gt=0, allow_inf_nan=False)
    """Added to the root of the second moment (Adam, arXiv:1412.6980, algorithm 1; 1e-8 there)."""
    weight_decay: float = Field(default=0.0, ge=0, allow_inf_nan=False)
    """Decoupled decay of matrices; norms, embeddings and biases are never decayed."""
    max_grad_norm: float = Field(default=1.0, gt=0)
    """The gradient is scaled down to this norm if it is longer (arXiv:1211.5063, algorithm 1);
    infinity for never. 1.0 as for GPT-3 (arXiv:2005.14165, appendix B)."""
    schedule: Schedule = "constant"
    """The learning rate after warm-up: constant, or a fall to 0 just after the last step, linear or
    along half a cosine (SGDR, arXiv:1608.03983, eq. 5)."""
    warmup_steps: int = Field(default=0, ge=0)
    """Steps over which the rate rises linearly to its peak."""


class SftOptimizerConfig(StepConfig):
    """A fixed rate: imitation is meant to move the policy."""

    lr: Rate = 1e-3
    """Peak learning rate."""


class OptimizerConfig(StepConfig):
    """A rate that may follow how far the updates move the policy."""

    lr: Rate | Literal["auto"] = AUTO
    """Peak learning rate; "auto" follows how far the updates move the policy (docs/math.md 6)."""
    lr_start: FirstRate | None = None
    """The first rate that "auto" tries. The first update is repeated with other rates until its
    movement is near the wanted one (docs/math.md 6). None is 1e-4. `turnwise.train` sets 1e-6 for
    pretrained models, and 3e-3 for nano models that are trained on rows."""
    movement: Movement | None = None
    """The movement that "auto" wants of an iteration's update at the peak of the schedule: the KL
    divergence of the policies before and after it, in nats per decision (docs/math.md 6). None is
    15 divided by the number of iterations, within 0.005 and 0.1. What is above 0.005 is reached by
    a rise over the first fifth of the training."""

    def peak_movement(self, part: float) -> float:
        """Return the largest wanted movement of updates that are the share `part` of training."""
        if self.movement is not None:
            return self.movement
        return min(max(MOVEMENT * part, LEAST_PEAK), MOST_PEAK)

    def wanted_movement(self, part: float, done: float) -> float:
        """Return the wanted movement of an update, without the schedule's share.

        Its root, which the rate follows, rises linearly.

        Args:
            part: the update's share of the training.
            done: the share of the training that is over before it.
        """
        largest = math.sqrt(self.peak_movement(part))
        first = min(math.sqrt(LEAST_PEAK), largest)
        return (first + (largest - first) * min(1.0, done / RISE)) ** 2


AnyOptimizerConfig: TypeAlias = SftOptimizerConfig | OptimizerConfig


def learning_rate(config: AnyOptimizerConfig, step: int, total_steps: int) -> float:
    """Return the rate of step number `step`, counted from 0; that of "auto" begins so.

    Example:
        >>> config = OptimizerConfig(lr=1.0, schedule="linear", warmup_steps=2)
        >>> [learning_rate(config, step, 6) for step in range(7)]
        [0.5, 1.0, 1.0, 0.75, 0.5, 0.25, 0.0]
    """
    return scheduled(first_peak(config), config, step, total_steps)


def first_peak(config: AnyOptimizerConfig) -> float:
    """Return the peak rate that a schedule begins with."""
    if isinstance(config, SftOptimizerConfig):
        return config.lr
    start = START if config.lr_start is None else config.lr_start
    return start if config.lr == AUTO else config.lr


def scheduled(
    peak: float, config: StepConfig, step: int, total_steps: int, least_done: float = 0.0
) -> float:
    """Return the rate of step number `step`, counted from 0, for a peak rate.

    Step k of the warm-up has (k + 1) / warmup_steps of the peak; the last of `total_steps` is the
    last with a rate above 0. After the warm-up at least the share `least_done` of the schedule is
    over.
    """
    if step < config.warmup_steps:
        return peak * (step + 1) / config.warmup_steps
    done = (step - config.warmup_steps) / max(1, total_steps - config.warmup_steps)
    done = min(1.0, max(done, least_done))
    factors = {
        "constant": 1.0,
        "linear": 1.0 - done,
        "cosine": 0.5 * (1.0 + math.cos(math.pi * done)),
    }
    return peak * factors[config.schedule]
