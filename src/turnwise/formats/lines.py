"""The format `lines`: a line `THINK: THOUGHT`, and one or more lines `ACT: ACTION`."""

from __future__ import annotations

import re
from collections.abc import Sequence
from typing import ClassVar

from turnwise.formats.base import Answer, Range, ReplyFormat
from turnwise.types import Failure

THINK, ACT = "THINK:", "ACT:"
_THINK = re.compile(r"^[ \t]*THINK[ \t]*:", re.MULTILINE | re.IGNORECASE | re.ASCII)
_ACT = re.compile(r"^[ \t]*ACT[ \t]*:", re.MULTILINE | re.IGNORECASE | re.ASCII)


class Lines(ReplyFormat):
    r"""A thought and an action, each line of which begins with a word.

    - The thought goes from the first `THINK:` to the line of the answer, and may have more lines.
    - The answer goes from the last group of lines that begin with `ACT:` to the end of the reply.
      Between the lines of a group are only blank ones. The action is the lines of the group without
      the word. Where one of the legal words is to be chosen, the last line alone is the action.

    The case of the two words does not count.

    Example:
        >>> Lines().render("LEFT edge", "DOWN")
        'THINK: LEFT edge\nACT: DOWN'
        >>> Lines().parse("Think: an edge\nAct: down\nThat is all.", ("LEFT", "DOWN"))
        'DOWN'
        >>> Lines().parse("THINK: food\nACT: PICK_UP\nACT: SIGNAL FOOD", ())
        'PICK_UP\nSIGNAL FOOD'
        >>> Lines().parse("DOWN", ("DOWN",)).message
        'no line in the reply begins with ACT:'
    """

    name: ClassVar[str] = "lines"
    markers: ClassVar[tuple[str, ...]] = (THINK, ACT)
    missing: ClassVar[str] = f"no line in the reply begins with {ACT}"

    def write_thought(self, description: str) -> str:
        """Return the line of the thought."""
        return f"{THINK} {description}\n"

    def write_answer(self, action: str) -> str:
        """Return a line for each line of the action."""
        return "\n".join(f"{ACT} {line}" for line in action.split("\n"))

    def parse(self, text: str, legal: Sequence[str]) -> str | Failure:
        """Return the action of a reply, or the failure; of legal words the last line's counts."""
        found = self.action_text(text)
        if isinstance(found, Failure) or not legal:
            return found
        return super().parse(self.write_answer(found.rpartition("\n")[2]), legal)

    def action_text(self, text: str) -> str | Failure:
        """Return the lines of the action without the words that begin them, or the failure."""
        found = super().action_text(text)
        if isinstance(found, Failure):
            return found
        lines = _ACT.sub("", found).split("\n")
        return "\n".join([line.strip() for line in lines if line.strip()])

    def find_answer(self, text: str) -> Answer | None:
        """Return the last group of lines of an action."""
        start, first, end = -1, 0, 0
        for found in _ACT.finditer(text):
            if start < 0 or text[end : found.start()].strip():
                start, first = found.start(), found.end()
            line_break = text.find("\n", found.end())
            end = len(text) if line_break < 0 else line_break
        return None if start < 0 else Answer(start=start, inner=(first, end))

    def find_thought(self, text: str, answer: int | None, inside_thought: bool) -> Range | None:
        """Return the thought before the answer, with its first word and its last line break."""
        end = len(text) if answer is None else answer
        found = _THINK.search(text, 0, end)
        if inside_thought:
            return (0, end) if end else None
        return (found.start(), end) if found else None

    def thought(self, text: str) -> str:
        """Return the words between `THINK:` and the line of the answer."""
        answer = self.find_answer(text)
        end = answer.start if answer else len(text)
        found = _THINK.search(text, 0, end)
        return text[found.end() : end].strip() if found else ""

    def ask(self, what: str, example: str) -> str:
        """Ask for an action in a line of its own."""
        return (
            f"end your reply with {what} in a line that begins with {ACT}, "
            f"as in: {self.write_answer(example)}"
        )
