"""The contract of reply formats: how a reply is written, read, divided into parts and asked for.

Provides `ReplyFormat`, `Answer` and `Parts`. Positions are characters; `render.spans` maps them to
tokens. Model text is hostile: a reply of any length is read in linear time to an action or a named
failure, and is never evaluated.
"""

from __future__ import annotations

from abc import ABC, abstractmethod
from collections.abc import Callable, Sequence
from dataclasses import dataclass
from typing import ClassVar

from turnwise.types import Failure

Range = tuple[int, int]
"""Positions [start, end) in a text."""
FindCalls = Callable[[str], list[tuple[Range, Range]]]
"""From a text to the ranges of its calls of tools, with their tags and without."""


@dataclass(frozen=True, kw_only=True, slots=True)
class Answer:
    """The start of a reply's answer, and the range of its action.

    `inner` is None where the answer is never closed. `marked` says whether a marker announces the
    answer; without one, calls of tools in the reply come first.
    """

    start: int
    inner: Range | None
    marked: bool = True


@dataclass(frozen=True, kw_only=True, slots=True)
class Parts:
    """The parts of a reply; None for a part that it lacks.

    `thought` includes its markers. The answer goes from `answer` to the end of the reply. `action`
    is without markers and without blanks at its ends.

    Example:
        >>> Parts(thought=None, answer=0, action=(9, 13)).action
        (9, 13)
    """

    thought: Range | None
    answer: int | None
    action: Range | None


class ReplyFormat(ABC):
    """The format of an agent's replies: a thought and an action.

    Attributes: `name`, its key in `REPLY_FORMATS`; `markers`, words that a nano tokenizer keeps
    whole; `thinks`, whether replies have a place for a thought; `missing`, the failure of a reply
    without an answer.
    """

    name: ClassVar[str]
    markers: ClassVar[tuple[str, ...]]
    thinks: ClassVar[bool] = True
    missing: ClassVar[str]

    def render(self, description: str, action: str, *, called: bool = False) -> str:
        """Return the reply that warm-up teaches: a thought that describes, and an action.

        Args:
            description: what is thought; empty for no thought.
            action: what is done.
            called: whether the action is calls of tools, which stand in a reply as they are.

        Raises:
            ConfigError: if the format cannot hold the action.
        """
        thought = self.write_thought(description) if description and self.thinks else ""
        return thought + (action if called else self.write_answer(action))

    def parse(self, text: str, legal: Sequence[str]) -> str | Failure:
        """Return the action of a reply, or the failure.

        The last answer counts; case and blanks at its ends do not. Without `legal` words any text
        is an action.
        """
        found = self.action_text(text)
        if isinstance(found, Failure) or not legal:
            return found
        word = found.strip()
        folded = word.casefold()
        for action in legal:
            if folded == action.casefold():
                return action
        words = ", ".join(legal)
        return Failure(kind="illegal_action", message=f"{word[:40]!r} is none of {words}")

    def action_text(self, text: str) -> str | Failure:
        """Return the text of the action in a reply, or the failure if it has no answer."""
        found = self.find_answer(text)
        if found is None or found.inner is None:
            return Failure(kind="parse", message=self.missing)
        kept = self.trimmed(text, found.inner)
        return text[slice(*kept)] if kept else ""

    def parts(
        self, text: str, *, inside_thought: bool = False, calls: FindCalls | None = None
    ) -> Parts:
        """Return the parts of a reply.

        A reply that calls tools and has no marked answer has its calls in the answer's place: the
        answer begins with the first of them, and the action goes from the first to the last.

        Args:
            text: the reply.
            inside_thought: whether the prompt already ends with `<think>`.
            calls: finds calls of tools; None where there are none.
        """
        found = self.find_answer(text)
        called = calls(text) if calls and (found is None or not found.marked) else []
        if called:
            (whole, first), (_, last) = called[0], called[-1]
            found = Answer(start=whole[0], inner=(first[0], last[1]))
        start = found.start if found else None
        inner = found.inner if found else None
        return Parts(
            thought=self.find_thought(text, start, inside_thought),
            answer=start,
            action=self.trimmed(text, inner) if inner else None,
        )

    def trimmed(self, text: str, inner: Range) -> Range | None:
        """Return a range without the blanks at its ends; None if nothing is left."""
        part = text[slice(*inner)]
        start = inner[0] + len(part) - len(part.lstrip())
        end = start + len(part.strip())
        return (start, end) if start < end else None

    @abstractmethod
    def write_thought(self, description: str) -> str:
        """Return the beginning of a reply that thinks `description`."""

    @abstractmethod
    def write_answer(self, action: str) -> str:
        """Return the end of a reply that does `action`."""

    @abstractmethod
    def find_answer(self, text: str) -> Answer | None:
        """Return where the answer that counts stands; None if the reply has none."""

    @abstractmethod
    def find_thought(self, text: str, answer: int | None, inside_thought: bool) -> Range | None:
        """Return the range of the thought before the answer, with its markers."""

    @abstractmethod
    def thought(self, text: str) -> str:
        """Return the words of the thought without markers; empty if there is none."""

    @abstractmethod
    def ask(self, what: str, example: str) -> str:
        """Return the sentence that asks a model for `what` in this format, in lower case.

        Args:
            what: what is asked for, such as "one of the legal actions".
            example: an action to show.
        """
