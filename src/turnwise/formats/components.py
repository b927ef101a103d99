"""Reward components of replies: what every turn is rewarded for, whatever the env.

Provides `REPLY_COMPONENTS`, one entry for each component with its level and its value, and
`reply_rewards`, which computes them. Their names are reserved: envs and reward functions have
others. To add one, write an entry.
"""

from __future__ import annotations

from collections.abc import Callable, Mapping
from dataclasses import dataclass

from turnwise.formats.base import ReplyFormat
from turnwise.types import Level


@dataclass(frozen=True, kw_only=True, slots=True)
class Reply:
    """A reply, as its components see it.

    `description` is the env's true description of the observation, empty where it has none; `valid`
    says whether the reply was an action.
    """

    text: str
    reply_format: ReplyFormat
    description: str
    valid: bool


@dataclass(frozen=True, kw_only=True, slots=True)
class ReplyComponent:
    """A reward component of replies: whom it rewards, and its value, None where it has none."""

    level: Level
    value: Callable[[Reply], float | None]


def _invalid(reply: Reply) -> float:
    """Return 1 for a reply that is no action."""
    return float(not reply.valid)


def _perception(reply: Reply) -> float | None:
    """Return 1 for a thought that is the description to the letter."""
    if not reply.description:
        return None
    return float(reply.reply_format.thought(reply.text) == reply.description)


REPLY_COMPONENTS: dict[str, ReplyComponent] = {
    "invalid": ReplyComponent(level="process", value=_invalid),
    "perception": ReplyComponent(level="process", value=_perception),
}


def reply_rewards(reply: Reply) -> dict[str, float]:
    """Return component -> value of a reply, without the components that have none.

    Example:
        >>> from turnwise.formats import Tags
        >>> said = "<think> ice </think> <answer> UP </answer>"
        >>> reply_rewards(Reply(text=said, reply_format=Tags(), description="ice", valid=True))
        {'invalid': 0.0, 'perception': 1.0}
    """
    values = {name: each.value(reply) for name, each in REPLY_COMPONENTS.items()}
    return {name: value for name, value in values.items() if value is not None}


def with_reply_components(components: Mapping[str, Level]) -> dict[str, Level]:
    """Return an env's reward components and those of replies, each with its level.

    Example:
        >>> with_reply_components({"goal": "agent"})
        {'goal': 'agent', 'invalid': 'process', 'perception': 'process'}
    """
    return {**components, **{name: each.level for name, each in REPLY_COMPONENTS.items()}}
