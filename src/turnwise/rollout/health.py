"""Whether episodes are still decided by actions of the policy: broken ones, and failed replies.

A broken episode is data, counted and left out of its group; but where the env breaks them all,
nothing is learned, and the user wants to know after one iteration (`Health`). The same holds of
replies that are not actions (`failed_replies`, `ReplyWatch`).
"""

from __future__ import annotations

from collections import Counter
from collections.abc import Sequence
from dataclasses import dataclass

from turnwise.errors import EngineError, EnvError, TurnwiseError
from turnwise.types import Episode, Turn

PLAYED = 2
"""Task visits of training of which every episode broke, none unbroken between, that stop a run."""
JUDGED = 8
"""The same of an evaluation, whose visits are one episode each."""

MANY_FAILED = 0.5
"""Share of episodes that ended in a failed reply above which a run is warned of."""
MANY_CAPPED = 0.1
"""Share of episodes cut at the cap on turns from which on the env is to blame before the policy."""
QUOTED = 160
"""Characters of a reply that are quoted."""


class Health:
    """Watches the episodes of a run, iteration by iteration.

    One unbroken episode in an iteration is enough to go on. One visit alone may be a single bad
    task, so that an iteration of one visit stops a run only together with the next.

    Example:
        >>> from turnwise.types import EpisodeId, Failure, Task
        >>> def episode(visit, error):
        ...     task = Task(id="t", env="e", seed=0, data={})
        ...     one = EpisodeId(iteration=0, visit=visit, task="t", member=0)
        ...     return Episode(id=one, task=task, trajectories=(), terminated=False,
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
        self._visits += len({episode.id.visit for episode in episodes})
        if self._visits < self._least:
            return None
        failures = Counter(episode.error for episode in episodes if episode.error)
        (failure, _), *others = failures.most_common()
        more = f"; {len(others)} other causes are in `episodes/`" if others else ""
        kind = EnvError if failure.kind == "env" else EngineError
        return kind(f"all {len(episodes)} episodes of {what} broke: {failure.message}{more}")


@dataclass(frozen=True, kw_only=True, slots=True)
class FailedReplies:
    """The counts of replies: all, not actions, and cut among those. `turns` are examples."""

    replies: int
    failed: int
    cut: int
    turns: tuple[Turn, ...]

    @property
    def share(self) -> float:
        """Return the share of replies that failed, 0 where nothing was said."""
        return self.failed / max(self.replies, 1)

    def examples(self, count: int = 2) -> str:
        """Quote up to `count` different replies, each with the reason why it failed."""
        found = {turn.text: turn for turn in self.turns}
        return "; ".join(
            f"The model said {_quoted(turn.text)} ({turn.error.message if turn.error else ''})"
            for turn in list(found.values())[:count]
        )


def failed_replies(episodes: Sequence[Episode], role: str | None = None) -> FailedReplies:
    """Count the replies of a role that were no action; broken episodes are left out.

    Args:
        episodes: what was played.
        role: whose replies; None counts those of all roles.

    Example:
        >>> failed_replies([]).share
        0.0
    """
    turns = [
        turn
        for episode in episodes
        if not episode.broken
        for trajectory in episode.trajectories
        if not trajectory.player and (role is None or trajectory.role == role)
        for turn in trajectory.turns
    ]
    failed = [turn for turn in turns if turn.error is not None]
    cut = sum(turn.finish_reason != "stop" for turn in failed)
    return FailedReplies(replies=len(turns), failed=len(failed), cut=cut, turns=tuple(failed))


def commonest_break(episodes: Sequence[Episode]) -> str:
    """Return what broke most of the broken episodes, "" where none is broken."""
    causes = Counter(e.error.message for e in episodes if e.broken and e.error is not None)
    return causes.most_common(1)[0][0] if causes else ""


class ReplyWatch:
    """Says when more than half of the episodes end in a failed reply, once until they recover.

    It also says when the first episodes are broken. `failing` tells whether replies failed in the
    latest iteration.

    Example:
        >>> watch = ReplyWatch()
        >>> watch.warning([], 1), watch.failing
        ('', False)
    """

    def __init__(self) -> None:
        self.failing = self._told = False

    def warning(self, episodes: Sequence[Episode], iteration: int, capped: float = 0.0) -> str:
        """Return what is to be said of the episodes of an iteration; empty for nothing.

        Args:
            episodes: all that were played of it.
            iteration: its number.
            capped: the share of episodes that were cut at the cap on turns. Where it is large, the
                env is named before the replies.
        """
        whole = [episode for episode in episodes if not episode.broken]
        ended = [e for e in whole if e.error is not None or _last_failed(e)]
        share, before = len(ended) / max(len(whole), 1), self.failing
        self.failing = share > MANY_FAILED
        if not self.failing or before:
            return self._of_broken(episodes, iteration)
        return (
            f"iteration {iteration}: {share:.0%} of the episodes ended in a reply "
            f"that is not a legal action. {failed_replies(episodes).examples(1)}. If it stays so, "
            f"nothing is learned: {_cures(whole, capped)}"
        )

    def _of_broken(self, episodes: Sequence[Episode], iteration: int) -> str:
        cause = commonest_break(episodes)
        if not cause or self._told:
            return ""
        self._told = True
        return (
            f"iteration {iteration}: {sum(e.broken for e in episodes)} of {len(episodes)} episodes "
            f"broke and are left out. Most often: {cause}"
        )


def _last_failed(episode: Episode) -> bool:
    """Whether the last reply was no action, in an episode that goes on after such replies."""
    last = max(episode.own_turns, key=lambda turn: turn.order, default=None)
    return last is not None and last.error is not None


CURES = (
    'lower optimizer.movement (or optimizer.lr, where it is not "auto"), lengthen the warm-up, or, '
    "where the recipe does not do so, add its rows to every update ([sft_mix]) or set "
    "credit.invalid_below_worst = true in place of credit.rewards.invalid "
    "(`turnwise docs why-is-it-not-learning`)"
)


def _cures(episodes: Sequence[Episode], capped: float) -> str:
    if not episodes or capped <= MANY_CAPPED:
        return CURES
    return (
        f"{episodes[0].task.env} does not end its episodes ({capped:.0%} of them were cut at the "
        "cap on turns), and long episodes fail easily: let step end them, or set env.max_turns"
    )


def _quoted(text: str) -> str:
    said = " ".join(text.split())
    return repr(said if len(said) <= QUOTED else f"{said[:QUOTED]}...")
