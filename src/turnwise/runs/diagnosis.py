"""What in a run's numbers deserves a warning, each with the number and what to try.

Owns the thresholds. Knows the metrics only by name: a metric that was not logged warns of nothing.
"""

from __future__ import annotations

from collections.abc import Sequence

from turnwise.runs import names
from turnwise.runs.metrics import Record
from turnwise.runs.results import RunScores
from turnwise.runs.series import series

ENTROPY_GONE = 0.02
"""Nats a token below which a policy hardly explores."""
FEW_MIXED = 0.1
"""Share of groups with a difference in them below which batches teach little."""
MANY_CUT = 0.1
"""Share of completions cut at the token limit that is worth a look."""
MANY_FAILED = 0.1
"""Share of episodes that failed that is worth a look."""
SLIPPED = 3.0
"""Standard errors between the best and the last validation."""


def warnings(records: Sequence[Record], scores: RunScores | None) -> list[str]:
    """Return the warnings of a run as sentences, the gravest first."""
    checks = (
        _broken(scores),
        _no_better_than_baselines(scores),
        _non_finite(records),
        _entropy_gone(records),
        _few_mixed(records),
        _many(records, names.CUT, MANY_CUT, "completions were cut at the token limit",
              "raise agents.<role>.max_tokens or teach shorter answers"),
        _many(records, names.FAILED, MANY_FAILED, "episodes failed",
              "read their errors in `episodes/`"),
        _validation_slipped(records, scores),
    )  # fmt: skip
    return [sentence for sentence in checks if sentence]


def _no_better_than_baselines(scores: RunScores | None) -> str:
    """Compare with the best policy that falls short of the optimum, the warm-up among them."""
    if scores is None:
        return ""
    optimum = scores.baselines.get(names.OPTIMUM, float("inf"))
    rivals = {name: level for name, level in scores.baselines.items() if level < optimum}
    if not rivals or (names.OPTIMUM in scores.baselines and _reached(scores)):
        return ""
    name, level = max(rivals.items(), key=lambda item: item[1])
    lead = scores.lead_over(name)
    if lead.difference - 2 * lead.stderr > 0:
        return ""
    return (
        f"The score {scores.score:.3f} is not clearly above the baseline {name!r} at {level:.3f}: "
        f"its lead is {lead.difference:.3f} ± {lead.stderr:.3f}."
    )


def _broken(scores: RunScores | None) -> str:
    if scores is None or not scores.broken:
        return ""
    return (
        f"{scores.broken} test episodes were ended by the env or the engine and count 0, "
        "a baseline's too: scores are too low. `turnwise check` finds what an env does wrong."
    )


def _reached(scores: RunScores) -> bool:
    """Whether the optimum is within two standard errors."""
    lead = scores.lead_over(names.OPTIMUM)
    return lead.difference + 2 * lead.stderr >= 0


def _non_finite(records: Sequence[Record]) -> str:
    found = series(records, names.TRAIN, names.SKIPPED)
    count = int(found.values.sum())
    if not count:
        return ""
    return (
        f"{count} optimizer steps were skipped for gradients that were not finite: lower "
        "optimizer.lr."
    )


def _entropy_gone(records: Sequence[Record]) -> str:
    found = series(records, names.TRAIN, names.ENTROPY)
    if not len(found) or found.end() >= ENTROPY_GONE:
        return ""
    return (
        f"Entropy is gone: {found.end():.3f} nats a token at the end, {found.start():.3f} at the "
        "start. If the score stopped rising with it, lower optimizer.lr or add "
        "loss.entropy_weight."
    )


def _few_mixed(records: Sequence[Record]) -> str:
    found = series(records, names.TRAIN, names.MIXED)
    if not len(found) or found.end() >= FEW_MIXED:
        return ""
    return (
        f"Only {found.end():.0%} of the groups held any difference at the end, the others taught "
        "nothing: the tasks are solved, or out of reach. Raise trainer.group_size, change the "
        "tasks, or set trainer.dynamic_sampling."
    )


def _many(records: Sequence[Record], name: str, limit: float, what: str, cure: str) -> str:
    found = series(records, names.TRAIN, name)
    if not len(found) or found.end() <= limit:
        return ""
    return f"{found.end():.0%} of the {what} at the end: {cure}."


def _validation_slipped(records: Sequence[Record], scores: RunScores | None) -> str:
    found = series(records, names.TRAIN, names.VALIDATION)
    if scores is None or len(found) < 2 or scores.stderr == 0:
        return ""
    best = int(found.values.argmax())
    fall = float(found.values[best] - found.values[-1])
    if fall <= SLIPPED * scores.stderr:
        return ""
    return (
        f"Validation fell by {fall:.3f} after its best at iteration {found.steps[best]}: the best "
        "checkpoint is reported, not the last."
    )
