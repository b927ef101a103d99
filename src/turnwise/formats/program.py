"""The format `program`: a program in a fenced block, or a reply that is one.

Provides `Program`, and the search for fenced blocks that rewards for programs share.
"""

from __future__ import annotations

import re
from typing import ClassVar

from turnwise.errors import ConfigError
from turnwise.formats.base import Answer, Range, ReplyFormat
from turnwise.formats.tags import END_THINK

FENCE = "```"
OPENING = f"{FENCE}python"
_FENCE = re.compile(rf"^{FENCE}", re.MULTILINE)


class Program(ReplyFormat):
    r"""A program, which is the action; what stands before its block is the thought.

    - The last closed block counts. The answer goes from its first fence to the end of the reply.
    - A reply without a fence is a program as a whole.
    - What stands before the last `</think>` belongs to the thought.

    Blank lines at the start of the program and blanks at its end are dropped; indents stay.

    Example:
        >>> Program().render("add one", "x += 1")
        'add one\n```python\nx += 1\n```'
        >>> Program().parse("I write:\n```python\n\nx = 1\n```\nIt works.", ())
        'x = 1'
        >>> Program().parse("x = 1", ())
        'x = 1'
    """

    name: ClassVar[str] = "program"
    markers: ClassVar[tuple[str, ...]] = (OPENING, FENCE)
    missing: ClassVar[str] = f"the {FENCE} block of the reply is never closed"

    def write_thought(self, description: str) -> str:
        """Return the text before the program."""
        return f"{description}\n"

    def write_answer(self, action: str) -> str:
        """Return the program in its block.

        Raises:
            ConfigError: if a line of the program begins with a fence.
        """
        if _FENCE.search(action):
            raise ConfigError(
                f"reply = 'program' holds programs without {FENCE} at the start of a line, got "
                f"{action[:40]!r}: use 'tags' or 'whole'"
            )
        return f"{OPENING}\n{action}\n{FENCE}"

    def find_answer(self, text: str) -> Answer:
        """Return the last closed block; without any fence, all of the reply."""
        begin = _after_thinking(text)
        blocks, unclosed = _blocks(text, begin)
        if blocks:
            (start, _), inner = blocks[-1]
            return Answer(start=start, inner=inner)
        if unclosed is not None:
            return Answer(start=unclosed, inner=None)
        return Answer(start=begin, inner=(begin, len(text)), marked=False)

    def find_thought(self, text: str, answer: int | None, inside_thought: bool) -> Range | None:
        """Return the text before the block."""
        before = text[:answer]
        return (0, len(before)) if before.strip() else None

    def thought(self, text: str) -> str:
        """Return the text before the block."""
        return text[: self.find_answer(text).start].strip()

    def trimmed(self, text: str, inner: Range) -> Range | None:
        """Return the range of a program without blank lines at its start and blanks at its end."""
        found = super().trimmed(text, inner)
        if found is None:
            return None
        return max(inner[0], text.rfind("\n", 0, found[0]) + 1), found[1]

    def ask(self, what: str, example: str) -> str:
        """Ask for a program in a block."""
        return f"end your reply with {what} in a fenced block, as in:\n{self.write_answer(example)}"


def fenced_blocks(text: str) -> list[str]:
    r"""Return what stands in each closed fenced block, line breaks included.

    Example:
        >>> fenced_blocks("so:\n```python\nx = 1\n```\nor\n```\n```")
        ['x = 1\n', '']
    """
    return [text[start:end] for _, (start, end) in _blocks(text)[0]]


def _blocks(text: str, begin: int = 0) -> tuple[list[tuple[Range, Range]], int | None]:
    """Return the closed blocks, with fences and without, and where one begins that is not closed.

    A fence opens a block if its line has no further backtick. Linear in the text.
    """
    found: list[tuple[Range, Range]] = []
    opened: tuple[int, int] | None = None
    for fence in _FENCE.finditer(text, begin):
        if opened is not None:
            found.append(((opened[0], fence.end()), (opened[1], fence.start())))
            opened = None
            continue
        line_end = text.find("\n", fence.end())
        if line_end >= 0 and "`" not in text[fence.end() : line_end]:
            opened = (fence.start(), line_end + 1)
    return found, opened[0] if opened else None


def _after_thinking(text: str) -> int:
    """Return where the last `</think>` ends; 0 if there is none."""
    end = text.rfind(END_THINK)
    return 0 if end < 0 else end + len(END_THINK)
