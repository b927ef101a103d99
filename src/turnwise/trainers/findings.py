"""What keeps a run from learning, said while there is time to begin again.

Provides `FindingsWatch` and `findings_are_due`. At its end a run says its findings anyway.
"""

from __future__ import annotations

import math

from turnwise.report.findings import Facts, find_causes
from turnwise.trainers.plan import Plan
from turnwise.trainers.session import Session

PART = 0.1
"""The share of the training after which findings are said."""
LEAST = 3
"""The iterations before which nothing is said."""


def findings_are_due(plan: Plan, iteration: int, time_share: float) -> bool:
    """Return whether a tenth of the iterations or of the time is over, and three iterations."""
    enough = iteration >= math.ceil(PART * plan.trainer.iterations) or time_share >= PART
    return iteration >= LEAST and enough


class FindingsWatch:
    """Warns of what keeps a run from learning, once, when it is due."""

    def __init__(self, session: Session, plan: Plan, iteration: int, time_share: float) -> None:
        """Begin after `iteration` iterations, which a resumed run has warned of if it was due."""
        self._session, self._plan = session, plan
        self._told = findings_are_due(plan, iteration, time_share)

    def tell(self, iteration: int, time_share: float) -> None:
        """Warn after an iteration if it is due; process 0 has the files that findings are in."""
        if self._told or not findings_are_due(self._plan, iteration, time_share):
            return
        self._told = True
        if self._session.group.leads:
            for finding in find_causes(Facts.of_run(self._session.run)):
                self._session.warn(f"after {iteration} iterations: {finding}")
