"""Did it learn? One sentence from a run's scores, for those who have two minutes."""

from __future__ import annotations

from turnwise.runs import RunScores

SURE = 2.0
"""Standard errors of a paired difference that count as shown."""


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
    start = "warmup" if "warmup" in scores.paired else "random"
    if start not in scores.paired:
        return "no verdict: neither the start of training nor random play was scored"
    gain = scores.paired[start]
    what = f"{gain.difference:.2f} above {start} (± {gain.stderr:.2f}, paired)"
    if gain.difference <= SURE * gain.stderr:
        return f"not shown to have learned: {what}; see docs/why-is-it-not-learning.md"
    beaten = [
        name
        for name, lead in scores.paired.items()
        if lead.difference > SURE * lead.stderr and name not in (start, "random")
    ]
    others = [name for name in beaten if not name.startswith("always-")]
    return f"learned: {what}" + (f"; beats {', '.join(others)}" if others else "")
