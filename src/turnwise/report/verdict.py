"""The verdict of a run: one sentence from its scores that says whether it learned."""

from __future__ import annotations

from turnwise.report.findings import Facts
from turnwise.runs import metric_names
from turnwise.runs.results import Difference, RunScores, is_trivial

START = f"{metric_names.TRAIN} 0"
"""The checkpoint of the initial weights of training."""
SEE = "see `turnwise docs why-is-it-not-learning`"
VISIBLE = 0.005
"""Smaller errors would be printed as 0.00."""


def verdict(scores: RunScores, facts: Facts | None = None) -> str:
    """Return whether training is shown to have raised the score, and which baselines it beats.

    It has learned if the score is clearly above that of the start, random play and constants.

    Args:
        scores: those of the test.
        facts: of the run, which tell why the weights of the start were tested.

    Example:
        >>> scores = RunScores(env="frozen-lake", tasks=100, seed=0, score=0.9, stderr=0.02,
        ...     score_sampled=0.9, score_sampled_stderr=0.02, baselines={"random": 0.0},
        ...     baselines_stderr={"random": 0.0},
        ...     paired={"random": {"difference": 0.9, "stderr": 0.02}})
        >>> verdict(scores)
        'learned: 0.90 above random (± 0.02, paired)'
    """
    if scores.checkpoint == START:
        return f"not learned: {_why_the_start(facts)}"
    start = metric_names.WARMUP
    start = start if start in scores.paired else metric_names.RANDOM
    if start not in scores.paired:
        return "no verdict: neither the start of training nor random play was scored"
    gain = scores.paired[start]
    what = f"{gain.difference:.2f} above {start} ({_error(gain)}, paired)"
    if gain.stderr == 0:
        what = f"{gain.difference:.2f} above {start} in each of {scores.tasks} episodes"
    if scores.tasks == 1:
        return f"no verdict from one episode, {what}: play more tasks"
    if not gain.is_sure:
        return f"not shown to have learned: {what}; {SEE}"
    if rival := scores.unbeaten:
        level = f"{rival} ({scores.baselines[rival]:.3f})"
        return f"not shown to have learned: {what}, but not clearly above {level}; {SEE}"
    others = [
        name
        for name, lead in scores.paired.items()
        if lead.is_sure and name != start and not is_trivial(name)
    ]
    beaten = f"; beats {', '.join(others)}" if others else ""
    unknown = "" if metric_names.RANDOM in scores.paired else "; random play was not scored"
    return f"learned: {what}{beaten}{unknown}"


def _why_the_start(facts: Facts | None) -> str:
    """Say why the weights that training began with are those that are tested."""
    records = () if facts is None else facts.records
    trained = [record for record in records if record["phase"] == metric_names.TRAIN]
    if facts is None or not trained or trained[-1]["step"] > 0:
        return f"no iteration had a better validation score than the start, which is tested; {SEE}"
    minutes = facts.at("trainer.minutes")
    if minutes is not None and (trained[-1].get(metric_names.SECONDS) or 0.0) >= 60 * minutes:
        return (
            f"no iteration was made, as trainer.minutes = {minutes:g} were over before the first: "
            "raise them, or lower warmup.steps"
        )
    if facts.at("evaluation.target") is not None:
        return "no iteration was made, as the start had reached evaluation.target"
    return "no iteration was made: raise trainer.iterations"


def _error(gain: Difference) -> str:
    return f"± {gain.stderr:.2f}" if gain.stderr >= VISIBLE else f"± {gain.stderr:.1g}"
