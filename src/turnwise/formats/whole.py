"""The format `whole`: the whole reply is the action."""

from __future__ import annotations

from typing import ClassVar

from turnwise.formats.base import Answer
from turnwise.formats.tags import END_THINK, Tags


class Whole(Tags):
    """The reply as it stands is the action; a demonstration has no thought.

    Tags in the reply are for the env or the reward functions to read. Its parts are those of
    `Tags`, except that the answer of a reply without `<answer>` goes from the last `</think>`, or
    from the start, to the end.

    Example:
        >>> Whole().render("LEFT edge", "DOWN")
        'DOWN'
        >>> Whole().parse(" x = 1 ", ())
        'x = 1'
    """

    name: ClassVar[str] = "whole"
    thinks: ClassVar[bool] = False

    def write_answer(self, action: str) -> str:
        """Return the action."""
        return action

    def action_text(self, text: str) -> str:
        """Return the reply without the blanks at its ends."""
        return text.strip()

    def find_answer(self, text: str) -> Answer:
        """Return the answer in tags; without any, what follows the thought."""
        tagged = super().find_answer(text)
        if tagged is not None:
            return tagged
        end = text.rfind(END_THINK)
        start = 0 if end < 0 else end + len(END_THINK)
        return Answer(start=start, inner=(start, len(text)), marked=False)

    def ask(self, what: str, example: str) -> str:
        """Ask for the action alone."""
        return f"reply with {what}, and with nothing else."
