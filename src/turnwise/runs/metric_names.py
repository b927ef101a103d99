"""The names in `metrics.jsonl` of the metrics that the report uses.

The report omits metrics that a run does not log. Costs are totals since the start of the run.
"""

from __future__ import annotations

PRETRAIN, WARMUP, TRAIN = "pretrain", "warmup", "train"

OPTIMUM = "optimal"
"""The name of the baseline that no policy can exceed; `WARMUP` is another baseline's name."""

RANDOM = "random"
"""The name that `score_baselines` gives to play by uniformly drawn actions."""

CONSTANT, ALWAYS = "constant", "always-"
"""The name of the best constant reply, and the beginning of the names of constant policies."""

SEEING, READABLE = "warmup/perception", "warmup/readable"
SCORE = "rollout/score"
EPISODES, TURNS = "rollout/episodes", "rollout/turns"
RESTARTED = "rollout/restarted_share"
VALIDATION = "validation/score"
BY_DECODING = ("validation/greedy", "validation/sampled")
RETURN, RETURN_STD = "credit/return_mean", "credit/return_std"
ENTROPY = "policy/entropy"
ZERO_VARIANCE = "credit/zero_variance_share"
MIXED = "credit/mixed_share"
CUT = "rollout/cut_share"
CAPPED = "rollout/capped_share"
FAILED = "rollout/failed_share"
INVALID = "reward/invalid"
SKIPPED = "optim/skipped"
TIER = "curriculum/tier"
STATE_DEPENDENCE = "rollout/state_dependence"
SCORE_CORRELATION = "credit/score_correlation"
BEST_TURNS, OTHER_TURNS = "credit/best_turns", "credit/other_turns"
RATE, UNDONE, AT_CAP = "optim/lr", "optim/undone", "optim/lr_at_cap"
MOVEMENT, WANTED = "policy/movement", "policy/movement_wanted"
SECONDS = "time/total"
MEMORY = "mem/peak_mb"
"""The most memory of process 0; of process 2 and so on it is this name with `_process_2`."""

COSTS = {
    "tokens sampled": ("total/sampled_tokens",),
    "tokens prefilled": ("total/prefilled_tokens",),
    "tokens trained": ("total/trained_tokens",),
    "environment steps": ("total/env_steps", "total/explored_steps"),
    "resets to a state": ("total/state_resets",),
    "optimizer steps": ("total/optimizer_steps", "total/warmup_optimizer_steps"),
    "seconds": (SECONDS,),
}
"""The costs in every comparison (docs/math.md 5): row of the table -> metrics that it sums."""
