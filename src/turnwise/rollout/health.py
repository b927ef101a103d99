"""Whether episodes are still decided by the policy: when so many break that a run must stop.

Owns that one judgement. A broken episode is data, counted and left out of its group; but where the
world breaks them all, nothing is learnt, and the user wants to know after one iteration.
"""

from __future__ import annotations

from collections import Counter
from collections.abc import Sequence

from turnwise.errors import EngineError, EnvError, TurnwiseError
from turnwise.types import Episode

PLAYED = 2
"""Task visits of training of which every episode broke, none unbroken between, that stop a run."""
JUDGED = 8
"""The same of an evaluation, whose visits are one episode each."""


class Health:
    """Watches the episodes of a run, iteration by iteration.

    One unbroken episode in an iteration is enough to go on. One visit alone may be a single bad
    task, so that an iteration of one visit stops a run only together with the next.

    Example:
        >>> from turnwise.types import Failure, Task
        >>> def episode(visit, error):
        ...     return Episode(task=Task(id="t", env="e", seed=0, data={}), iteration=0,
        ...                    visit=visit, sample=0, trajectories=(), terminated=False,
        ...                    truncated=False, score=0.0, error=error)
        >>> bad = Failure(kind="env", message="Lake.step raised KeyError (lake.py:7): mend it")
        >>> Health().problem([episode(0, bad), episode(1, None)], "x") is None
        True
        >>> Health().problem([episode(0, bad), episode(1, bad)], "x")
        EnvError('all 2 episodes of x broke: Lake.step raised KeyError (lake.py:7): mend it')
    """

    def __init__(self, least: int = PLAYED) -> None:
        self._least, self._visits = least, 0

    def problem(self, episodes: Sequence[Episode], what: str) -> TurnwiseError | None:
        """Take note of the episodes of an iteration; return why the run must stop, if it must.

        Args:
            episodes: all that were played of it.
            what: the iteration or the evaluation, for the message.

        Returns:
            An `EnvError` if every episode broke, most of them by the env, with the commonest cause;
            an `EngineError` for the same by the engine; else None.
        """
        if not episodes or not all(episode.broken for episode in episodes):
            self._visits = 0
            return None
        self._visits += len({episode.visit for episode in episodes})
        if self._visits < self._least:
            return None
        failures = Counter(episode.error for episode in episodes if episode.error)
        (failure, _), *others = failures.most_common()
        more = f"; {len(others)} other causes are in `episodes/`" if others else ""
        kind = EnvError if failure.kind == "env" else EngineError
        return kind(f"all {len(episodes)} episodes of {what} broke: {failure.message}{more}")
