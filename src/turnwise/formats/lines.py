"""The format `lines`: a line `THINK: THOUGHT`, and a line `ACT: ACTION`."""

from __future__ import annotations

import re
from collections import deque
from typing import ClassVar

from turnwise.errors import ConfigError
from turnwise.formats.base import Answer, Range, ReplyFormat

THINK, ACT = "THINK:", "ACT:"
_THINK = re.compile(r"^[ \t]*THINK[ \t]*:", re.MULTILINE | re.IGNORECASE | re.ASCII)
_ACT = re.compile(r"^[ \t]*ACT[ \t]*:", re.MULTILINE | re.IGNORECASE | re.ASCII)


class Lines(ReplyFormat):
    r"""A thought and an action, each after the word that begins its line.

    - The thought goes from the first `THINK:` to the line of the answer, and may have more lines.
    - The answer goes from the last `ACT:` to the end of the reply. The action is the rest of the
      line of that `ACT:`.

    The case of the two words does not count.

    Example:
        >>> Lines().render("LEFT edge", "DOWN")
        'THINK: LEFT edge\nACT: DOWN'
        >>> Lines().parse("Think: an edge\nAct: down\nThat is all.", ("LEFT", "DOWN"))
        'DOWN'
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
        """Return the line of the action.

        Raises:
            ConfigError: if the action has more than one line.
        """
        if "\n" in action:
            raise ConfigError(
                f"reply = 'lines' holds actions of one line, got {action[:40]!r}: use 'tags', "
                "'program' or 'whole'"
            )
        return f"{ACT} {action}"

    def find_answer(self, text: str) -> Answer | None:
        """Return the last line of an action."""
        found = deque(_ACT.finditer(text), maxlen=1)
        if not found:
            return None
        (last,) = found
        end = text.find("\n", last.end())
        return Answer(start=last.start(), inner=(last.end(), len(text) if end < 0 else end))

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
