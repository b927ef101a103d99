"""The metrics that the report looks for: what they are called in `metrics.jsonl`, in one place.

A run that does not log one of them has a report without it. Costs are totals since the run began.
"""

from __future__ import annotations

PRETRAIN, WARMUP, TRAIN = "pretrain", "warmup", "train"

OPTIMUM = "optimal"
"""What envs call the baseline that no policy can beat; `WARMUP` is the name of another one."""

RANDOM = "random"
"""What `score_baselines` calls play of uniformly drawn actions."""

SEEING = "warmup/seeing"
SCORE = "rollout/score"
VALIDATION = "validation/score"
BY_DECODING = ("validation/greedy", "validation/sampled")
RETURN = "credit/return_mean"
ENTROPY = "policy/entropy"
ZERO_VARIANCE = "credit/zero_variance_share"
MIXED = "credit/mixed_share"
CUT = "rollout/cut_share"
CAPPED = "rollout/capped_share"
FAILED = "rollout/failed_share"
SKIPPED = "optim/skipped"
SECONDS = "time/total"

COSTS = {
    "tokens sampled": ("total/sampled_tokens",),
    "tokens prefilled": ("total/prefilled_tokens",),
    "tokens trained": ("total/trained_tokens",),
    "environment steps": ("total/env_steps",),
    "resets to a state": ("total/state_resets",),
    "optimizer steps": ("total/optimizer_steps", "total/warmup_optimizer_steps"),
    "seconds": (SECONDS,),
}
"""What every comparison prints (docs/math.md 5): row of the table -> metrics that add up to it."""
