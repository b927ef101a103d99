"""The settings of a run that may change when it goes on: `MAY_CHANGE` and `is_among`."""

from __future__ import annotations

from collections.abc import Sequence

MAY_CHANGE = (
    "checkpoint",
    "credit",
    "device",
    "engine",
    "env.timeout",
    "episodes",
    "evaluation",
    "forest",
    "loss",
    "metrics",
    "optimizer.lr",
    "optimizer.lr_start",
    "optimizer.movement",
    "optimizer.max_grad_norm",
    "optimizer.schedule",
    "optimizer.warmup_steps",
    "policies.*.attention",
    "policies.*.device",
    "policies.*.gradient_checkpointing",
    "policies.*.lr",
    "processes",
    "sandbox",
    "threads",
    "trainer",
)
"""Settings that take effect from the next iteration on. The rest decided what is behind the run."""


def is_among(key: str, patterns: Sequence[str]) -> bool:
    """Whether a dotted key is one of `patterns` or below one; `*` stands for any name.

    Example:
        >>> is_among("policies.main.lr", MAY_CHANGE), is_among("warmup.steps", MAY_CHANGE)
        (True, False)
    """
    parts = key.split(".")
    for allowed in (pattern.split(".") for pattern in patterns):
        start = parts[: len(allowed)]
        if len(start) == len(allowed) and all(
            a in ("*", p) for a, p in zip(allowed, start, strict=True)
        ):
            return True
    return False
