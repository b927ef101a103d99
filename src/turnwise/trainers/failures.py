"""Iterations from which nothing can be learned: all episodes broken, or hardly a reply readable.

Provides `stop_if_broken` and `stop_if_unreadable`, which record the episodes and raise.
"""

from __future__ import annotations

from collections.abc import Sequence

from turnwise.agents import AgentConfig
from turnwise.errors import TrainingError
from turnwise.rollout import FailedReplies, failed_replies
from turnwise.trainers.session import Session
from turnwise.types import Episode


def stop_if_broken(session: Session, iteration: int, episodes: Sequence[Episode]) -> None:
    """Record an iteration of which nothing can be learnt because all of it broke, and raise."""
    problem = session.health.problem(episodes, f"iteration {iteration}")
    if problem is not None:
        session.episodes.write(iteration, episodes)
        raise problem


def stop_if_unreadable(
    session: Session, limit: float | None, iteration: int, episodes: Sequence[Episode]
) -> None:
    """Record a first iteration in which hardly a reply was an action, and raise.

    Raises:
        TrainingError: if a role's share of failed replies is above `limit`; it quotes two.
    """
    if iteration or limit is None:
        return
    for role, agent in session.agents.items():
        found = failed_replies(episodes, role)
        if found.share > limit:
            session.episodes.write(0, episodes)
            raise TrainingError(
                f"{found.failed} of {found.replies} replies of the first iteration are not "
                "actions. "
                f"{found.examples()}. {cure_of(found, agent)}; trainer.stop_if_failed = "
                "'never' trains nevertheless"
            )


def cure_of(found: FailedReplies, agent: AgentConfig) -> str:
    """Return what helps against replies that are not actions."""
    where = f"agents.{agent.role}"
    if 2 * found.cut > found.failed:
        return (
            f"{found.cut} of them were cut: raise {where}.max_tokens = {agent.max_tokens}, or ask "
            f"for short replies in {where}.system"
        )
    asked = agent.reply_format.ask("the action", "ACTION")
    said = asked[0].upper() + asked[1:]
    if agent.system:
        return (
            f"Show in {where}.system by an example how a reply ends ({asked}), or teach the format "
            "by a [warmup]"
        )
    return f'Write in {where}.system "{said}", or teach the format by a [warmup]'
