"""What keeps a run from learning: findings, each with its evidence and one setting to change.

Provides `find_findings`, and `find_causes` for runs that go on. A metric that was not logged gives
no finding. The findings of one theme are in one file, with their thresholds.
"""

from __future__ import annotations

from turnwise.report.findings.facts import Facts, Finding
from turnwise.report.findings.learning import (
    entropy_gone,
    equal_groups,
    ignores_state,
    movement_bound,
)
from turnwise.report.findings.prompts import hidden
from turnwise.report.findings.replies import cut, endless, failing, some_capped, some_failed
from turnwise.report.findings.rewards import favours_other
from turnwise.report.findings.scores import (
    below_random,
    broken,
    circling,
    myopic,
    no_better_than_baselines,
    non_finite,
    other_decoding,
    validation_slipped,
)

__all__ = ["Facts", "Finding", "find_causes", "find_findings"]


def find_findings(facts: Facts) -> list[Finding]:
    """Return the findings of a run: its scores, its learning, and what else is worth a look."""
    scores = (broken, below_random, no_better_than_baselines, myopic)
    others = (circling, some_failed, some_capped, other_decoding, validation_slipped)
    return [
        *(finding for check in scores if (finding := check(facts))),
        *find_causes(facts),
        *(finding for check in others if (finding := check(facts))),
    ]


def find_causes(facts: Facts) -> list[Finding]:
    """Return what keeps a run from learning, the most serious first.

    Where episodes do not end or replies fail, nothing else can be told, but that a policy does the
    same everywhere: then it brings no episode to an end.
    """
    first = [finding for check in (endless, failing) if (finding := check(facts))]
    if any(finding.name == "endless" for finding in first):
        same = ignores_state(facts)
        return [*([same] if same else []), *first]
    if any(finding.name == "failing" for finding in first):
        return first
    found = (
        *first,
        non_finite(facts),
        favours_other(facts),
        *hidden(facts),
        ignores_state(facts),
        *entropy_gone(facts),
        equal_groups(facts),
        *movement_bound(facts),
        cut(facts),
    )
    return [finding for finding in found if finding is not None]
