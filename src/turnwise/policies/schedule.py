"""The settings of an optimizer, and its learning rate by step, without torch."""

from __future__ import annotations

import math
from typing import Annotated, Literal

from pydantic import Field

from turnwise.settings import Settings

Schedule = Literal["constant", "linear", "cosine"]
Decay = Annotated[float, Field(ge=0, lt=1)]


class OptimizerConfig(Settings):
    """AdamW (Loshchilov & Hutter 2017, arXiv:1711.05101) and its schedule."""

    lr: float = Field(default=1e-4, gt=0, allow_inf_nan=False)
    """Peak learning rate."""
    betas: tuple[Decay, Decay] = (0.9, 0.95)
    """Decay of the two running moments (Adam, arXiv:1412.6980, algorithm 1); 0.95 as for GPT-3
    (arXiv:2005.14165, appendix B)."""
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


def learning_rate(config: OptimizerConfig, step: int, total_steps: int) -> float:
    """Return the rate of step number `step`, counted from 0.

    Step k of the warm-up has (k + 1) / warmup_steps of the peak; the last of `total_steps` is the
    last with a rate above 0.

    Example:
        >>> config = OptimizerConfig(lr=1.0, schedule="linear", warmup_steps=2)
        >>> [learning_rate(config, step, 6) for step in range(7)]
        [0.5, 1.0, 1.0, 0.75, 0.5, 0.25, 0.0]
    """
    if step < config.warmup_steps:
        return config.lr * (step + 1) / config.warmup_steps
    done = (step - config.warmup_steps) / max(1, total_steps - config.warmup_steps)
    done = min(1.0, done)
    factors = {
        "constant": 1.0,
        "linear": 1.0 - done,
        "cosine": 0.5 * (1.0 + math.cos(math.pi * done)),
    }
    return config.lr * factors[config.schedule]
