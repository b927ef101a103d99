"""The verdict of a run: one sentence from its scores that says whether it learned."""

from __future__ import annotations

from turnwise.runs import metric_names
from turnwise.runs.results import Difference, RunScores

SURE = 2.0
"""A paired difference of this many standard errors counts as shown."""
START = f"{metric_names.TRAIN} 0"
"""The checkpoint of the initial weights of training."""
SEE = "see `turnwise docs why-is-it-not-learning`"
VISIBLE = 0.005
"""Smaller errors would be printed as 0.00."""


def verdict(scores: RunScores) -> str:
    """Return whether training is shown to have raised the score, and which baselines it beats.

    Example:
        >>> scores = RunScores(env="frozen-lake", tasks=100, seed=0, score=0.9, stderr=0.02,
        ...     score_sampled=0.9, score_sampled_stderr=0.02, baselines={"random": 0.0},
        ...     baselines_stderr={"random": 0.0},
        ...     paired={"random": {"difference": 0.9, "stderr": 0.02}})
        >>> verdict(scores)
        'learned: 0.90 above random (± 0.02, paired)'
    """
    if scores.checkpoint == START:
        return (
            "not learned: no iteration had a better validation score than the start, which is "
            f"tested; {SEE}"
        )
    start = "warmup" if "warmup" in scores.paired else "random"
    if start not in scores.paired:
        return "no verdict: neither the start of training nor random play was scored"
    gain = scores.paired[start]
    what = f"{gain.difference:.2f} above {start} ({_error(gain)}, paired)"
    if gain.stderr == 0:
        what = f"{gain.difference:.2f} above {start} in each of {scores.tasks} episodes"
    if scores.tasks == 1:
        return f"no verdict from one episode, {what}: play more tasks"
    if gain.difference <= SURE * gain.stderr:
        return f"not shown to have learned: {what}; {SEE}"
    beaten = [
        name
        for name, lead in scores.paired.items()
        if lead.difference > SURE * lead.stderr and name not in (start, "random")
    ]
    others = [name for name in beaten if not name.startswith("always-")]
    return f"learned: {what}" + (f"; beats {', '.join(others)}" if others else "")


def _error(gain: Difference) -> str:
    return f"± {gain.stderr:.2f}" if gain.stderr >= VISIBLE else f"± {gain.stderr:.1g}"
