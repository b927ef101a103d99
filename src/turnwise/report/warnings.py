"""Warnings about the metrics and scores of a run, each with the number and a cure.

Provides `find_warnings` and its thresholds. A metric that was not logged gives no warning.
"""

from __future__ import annotations

import math
import re
from collections.abc import Sequence

from turnwise.report.policies import policy_names
from turnwise.report.series import series
from turnwise.runs import metric_names
from turnwise.runs.metrics import Record
from turnwise.runs.results import RunScores

ENTROPY_GONE = 0.02
"""Entropy per token, in nats, below which a policy hardly explores."""
FEW_MIXED = 0.1
"""Share of groups with different returns below which batches have little gradient."""
MANY_CUT = 0.1
"""Share of completions cut at the token limit that gives a warning."""
MANY_FAILED = 0.1
"""Share of failed episodes that gives a warning."""
MANY_CAPPED = 0.1
"""Share of episodes cut at the turn limit from which the env is the first cause to check."""
MOSTLY_FAILED = 0.5
"""Share of failed episodes from which hardly anything can be learned."""
BELOW = 3.0
"""Standard errors below random play from which the weights are called worse than none."""
SLIPPED = 3.0
"""Standard errors between the best and the last validation that give a warning."""


def find_warnings(records: Sequence[Record], scores: RunScores | None) -> list[str]:
    """Return the warnings of a run as sentences, the most serious first."""
    checks = (
        _mostly_capped(records, scores),
        _mostly_failed(records),
        _broken(scores),
        _below_random(scores),
        _no_better_than_baselines(scores),
        _non_finite(records),
        *([] if _solved(scores) else [*_entropy_gone(records), _few_mixed(records)]),
        _many(records, metric_names.CUT, MANY_CUT, "completions were cut at the token limit",
              "raise agents.<role>.max_tokens or teach shorter answers"),
        _some_failed(records),
        _some_capped(records),
        _validation_slipped(records, scores),
    )  # fmt: skip
    return [sentence for sentence in checks if sentence]


def without_markup(sentence: str) -> str:
    """Return a sentence without the marks of bold text, for a terminal.

    Example:
        >>> without_markup("**All failed.** Run `turnwise check`.")
        'All failed. Run `turnwise check`.'
    """
    return re.sub(r"\*\*(?! )(.+?)\*\*", r"\1", sentence)


def _no_better_than_baselines(scores: RunScores | None) -> str:
    """Compare with the best policy below the optimum, the warm-up included."""
    if scores is None:
        return ""
    optimum = scores.baselines.get(metric_names.OPTIMUM, float("inf"))
    rivals = {name: level for name, level in scores.baselines.items() if level < optimum}
    if not rivals or _solved(scores):
        return ""
    name, level = max(rivals.items(), key=lambda item: item[1])
    lead = scores.lead_over(name)
    if lead.difference - 2 * lead.stderr > 0:
        return ""
    return (
        f"The score {scores.score:.3f} is not clearly above the baseline {name!r} at {level:.3f}: "
        f"its lead is {lead.difference:.3f} {scores.error_text(lead.stderr)}."
    )


def _below_random(scores: RunScores | None) -> str:
    """Say that the policy is clearly worse than random play in one or both decodings."""
    if scores is None or metric_names.RANDOM not in scores.baselines:
        return ""
    level, error = (
        scores.baselines[metric_names.RANDOM],
        scores.baselines_stderr[metric_names.RANDOM],
    )
    below = {
        name: score
        for name, (score, own) in scores.by_decoding.items()
        if score < level - BELOW * math.hypot(own, error)
    }
    if scores.decoding in below:
        return (
            f"**The score {scores.score:.3f} is below random play's {level:.3f}**: these weights "
            "are worse than none. See `turnwise docs why-is-it-not-learning`."
        )
    if "greedy" in below:
        return (
            f"Played greedily the policy scores {below['greedy']:.3f}, below random play's "
            f"{level:.3f}: the most probable action of a nearly uniform policy is the same almost "
            "everywhere. Sample from it, as the score does, or train it further."
        )
    if "sampled" in below:
        return (
            f"Sampled at the training temperature the policy scores {below['sampled']:.3f}, below "
            f"random play's {level:.3f}: play it greedily, as the score does."
        )
    return ""


def _broken(scores: RunScores | None) -> str:
    if scores is None or not scores.broken:
        return ""
    return (
        f"{scores.broken} test episodes were ended by the env or the engine and count 0, "
        "those of baselines too: scores are too low. `turnwise check` finds what an env does wrong."
    )


def _does_not_end(records: Sequence[Record]) -> bool:
    """Whether many of the last episodes ended at the turn limit."""
    found = series(records, metric_names.TRAIN, metric_names.CAPPED)
    return len(found) > 0 and found.end() > MANY_CAPPED


def _mostly_capped(records: Sequence[Record], scores: RunScores | None) -> str:
    if not _does_not_end(records):
        return ""
    share = series(records, metric_names.TRAIN, metric_names.CAPPED).end()
    env = f"the env {scores.env!r}" if scores is not None else "the env"
    return (
        f"**{share:.0%} of the episodes were cut at the cap on turns at the end: {env} does not "
        "end them.** Let step return terminated = True where an episode is over, or truncated = "
        "True at a limit of its own; or set env.max_turns. Do this first: a long episode is "
        "more likely to fail, and rewards at the end of an episode are never given."
    )


def _some_capped(records: Sequence[Record]) -> str:
    if _does_not_end(records):
        return ""
    cure = "let the env end them, or set env.max_turns"
    return _many(records, metric_names.CAPPED, 0.0, "episodes were cut at the cap on turns", cure)


def _mostly_failed(records: Sequence[Record]) -> str:
    """Say that most episodes failed, at the end or at one time, unless the env does not end."""
    if _does_not_end(records):
        return ""
    found = series(records, metric_names.TRAIN, metric_names.FAILED)
    if not len(found) or found.values.max() <= MOSTLY_FAILED:
        return ""
    first = int(found.steps[int((found.values > MOSTLY_FAILED).argmax())])
    if found.end() <= MOSTLY_FAILED:
        return f"**More than half of the episodes of iteration {first} failed**; fewer later on."
    return (
        f"**{found.end():.0%} of the episodes failed at the end, more than half since iteration "
        f"{first}: the policy does not keep the reply format.** Lower optimizer.lr, "
        "lengthen the warm-up, or rehearse it; read the replies in `episodes/`."
    )


def _some_failed(records: Sequence[Record]) -> str:
    if _mostly_failed(records):
        return ""
    if _does_not_end(records):
        cure = "end the episodes earlier, and then read the errors of the others in `episodes/`"
        return _many(records, metric_names.FAILED, MANY_FAILED, "episodes failed", cure)
    cure = "read their errors in `episodes/`"
    return _many(records, metric_names.FAILED, MANY_FAILED, "episodes failed", cure)


def _reached(scores: RunScores) -> bool:
    """Whether the optimum is within two standard errors."""
    lead = scores.lead_over(metric_names.OPTIMUM)
    return lead.difference + 2 * lead.stderr >= 0


def _solved(scores: RunScores | None) -> bool:
    """Whether the score reached the optimum: no exploration is needed any more."""
    if scores is None or metric_names.OPTIMUM not in scores.baselines:
        return False
    return _reached(scores)


def _non_finite(records: Sequence[Record]) -> str:
    found = series(records, metric_names.TRAIN, metric_names.SKIPPED)
    count = int(found.values.sum())
    if not count:
        return ""
    return (
        f"{count} optimizer steps were skipped for gradients that were not finite: lower "
        "optimizer.lr."
    )


def _entropy_gone(records: Sequence[Record]) -> list[str]:
    """Return a sentence for each policy that hardly explores; the mean over policies hides one."""
    names = policy_names(records)
    if not names:
        return [_gone(records, metric_names.ENTROPY, "The entropy")]
    return [
        _gone(records, f"{name}/{metric_names.ENTROPY}", f"The entropy of policy {name!r}")
        for name in names
    ]


def _gone(records: Sequence[Record], metric: str, what: str) -> str:
    found = series(records, metric_names.TRAIN, metric)
    if not len(found) or found.end() >= ENTROPY_GONE:
        return ""
    return (
        f"{what} collapsed: {found.end():.3f} nats a token at the end, {found.start():.3f} at "
        "the start. If the score stopped rising with it, lower optimizer.lr or add "
        "loss.entropy_weight."
    )


def _few_mixed(records: Sequence[Record]) -> str:
    found = series(records, metric_names.TRAIN, metric_names.MIXED)
    if not len(found) or found.end() >= FEW_MIXED:
        return ""
    return (
        f"At the end only {found.end():.0%} of the groups had different returns, and the others "
        "gave no gradient: the tasks are solved or too hard. Raise trainer.group_size, change the "
        "tasks, or set trainer.dynamic_sampling."
    )


def _many(records: Sequence[Record], name: str, limit: float, what: str, cure: str) -> str:
    found = series(records, metric_names.TRAIN, name)
    if not len(found) or found.end() <= limit:
        return ""
    return f"{found.end():.0%} of the {what} at the end: {cure}."


def _validation_slipped(records: Sequence[Record], scores: RunScores | None) -> str:
    found = series(records, metric_names.TRAIN, metric_names.VALIDATION)
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
