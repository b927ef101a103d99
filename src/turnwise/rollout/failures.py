"""What is said of episodes that an env or a workflow broke, and checks of a workflow's calls.

Provides `env_failure`, `check_question`, `no_seat`, `not_acting`, `NotRepeated`, `OthersRewarded`,
`GOES_ON` and `UNFINISHED`.
"""

from __future__ import annotations

from collections.abc import Iterable, Sequence

from turnwise.envs.user_calls import LONGEST
from turnwise.errors import BrokenEnvError, EnvError
from turnwise.types import Failure, Message

MOST_ASKED = 1000
"""The most questions (`ask`) of an episode between two of its turns."""
GOES_ON = (
    "the workflow lets an agent act after the cap on turns has cut the episode: return the step "
    "whose `truncated` is true"
)
UNFINISHED = (
    "the workflow returned a step that does not end the episode: go on until a step's `terminated` "
    "or `truncated` is true, or set `truncated` with `dataclasses.replace`"
)


class NotRepeated(EnvError):
    """A workflow that was called anew, and got the same results, made other calls than before."""

    def __init__(self, seat: str) -> None:
        super().__init__(
            f"the workflow, called anew with the same results, calls {seat!r} otherwise than "
            "before, so that no sibling can be played on: let it depend on nothing but what its "
            "agents return, or use topology.kind = 'independent'"
        )


class OthersRewarded(EnvError):
    """A step rewards other seats (`Step.others`) where turns have siblings."""

    def __init__(self, seat: str, others: Iterable[str]) -> None:
        super().__init__(
            f"the step of {seat!r} rewards {', '.join(others)} (`Step.others`), and siblings are "
            "judged by what their own seat and its team earn: set topology.kind = 'independent'"
        )


def no_seat(given: str, known: Iterable[str]) -> str:
    """Return the message for a seat that is none of `known`."""
    return (
        f"the workflow asked for the seat {given!r}, expected one of {', '.join(known)}: take the "
        "seats of `agents.acting(state)`"
    )


def not_acting(given: str, acting: Iterable[str]) -> str:
    """Return the message for a seat that acts out of turn."""
    return (
        f"the workflow let {given!r} act where `acting` names {', '.join(acting)}: take the seats "
        "of `agents.acting(state)`"
    )


def check_question(messages: Sequence[Message], asked: int) -> None:
    """Raise unless a question is a sequence of messages, and not one of too many.

    Args:
        messages: the question.
        asked: how many were asked since the last turn.

    Raises:
        EnvError: if it is something else, such as text, or the workflow asks without end.
    """
    if asked >= MOST_ASKED:
        raise EnvError(
            f"the workflow asked {MOST_ASKED} questions and let no agent act between them: end "
            "its loop"
        )
    whole = isinstance(messages, Sequence) and all(isinstance(one, Message) for one in messages)
    if not whole or not messages:
        raise EnvError(
            f"the workflow asks {messages!r:.80}, expected messages: write ask([Message("
            "role='user', content=...)]), of turnwise.types"
        )


def env_failure(cause: BaseException) -> Failure:
    """Return the failure of an env that raised; one under guard has said all in one sentence."""
    if isinstance(cause, BrokenEnvError):
        return Failure(kind="env", message=str(cause))
    said = " ".join(str(cause).split())[:LONGEST]
    kind = type(cause).__name__
    return Failure(kind="env", message=f"{kind}: {said}" if said else kind)
