"""The format `tags`: `<think> THOUGHT </think> <answer> ACTION </answer>`.

Provides `Tags`, and the search for pairs of tags that other readers of tagged text share.
"""

from __future__ import annotations

from typing import ClassVar

from turnwise.formats.base import Answer, Range, ReplyFormat

THINK, END_THINK = "<think>", "</think>"
ANSWER, END_ANSWER = "<answer>", "</answer>"


class Tags(ReplyFormat):
    """A thought and an answer between tags.

    - The thought goes from the first `<think>` to the last `</think>` before the answer.
    - The answer goes from the last `<answer>` that is closed to the end of the reply. If none is
      closed, it begins with the last `<answer>`, and there is no action.

    Example:
        >>> Tags().render("LEFT edge", "DOWN")
        '<think> LEFT edge </think> <answer> DOWN </answer>'
        >>> Tags().parse("<think> hm </think> <answer> down </answer>", ("LEFT", "DOWN"))
        'DOWN'
        >>> Tags().parse("DOWN", ("DOWN",)).kind
        'parse'
    """

    name: ClassVar[str] = "tags"
    markers: ClassVar[tuple[str, ...]] = (THINK, END_THINK, ANSWER, END_ANSWER)
    missing: ClassVar[str] = "no <answer>...</answer> in the reply"

    def write_thought(self, description: str) -> str:
        """Return the thought between its tags."""
        return f"{THINK} {description} {END_THINK} "

    def write_answer(self, action: str) -> str:
        """Return the action between the tags of an answer."""
        return f"{ANSWER} {action} {END_ANSWER}"

    def find_answer(self, text: str) -> Answer | None:
        """Return the last closed answer, or the beginning of the last one."""
        closed = pairs_in(text, ANSWER, END_ANSWER)
        if closed:
            start, end = closed[-1]
            return Answer(start=start - len(ANSWER), inner=(start, end))
        start = text.rfind(ANSWER)
        return None if start < 0 else Answer(start=start, inner=None)

    def find_thought(self, text: str, answer: int | None, inside_thought: bool) -> Range | None:
        """Return the thought before the answer, with its tags."""
        before = text[:answer]
        start = 0 if inside_thought else before.find(THINK)
        end = before.rfind(END_THINK)
        if start < 0 or end < start:
            return None
        return start, end + len(END_THINK)

    def thought(self, text: str) -> str:
        """Return the words of the first thought."""
        _, _, rest = text.partition(THINK)
        return rest.partition(END_THINK)[0].strip()

    def ask(self, what: str, example: str) -> str:
        """Ask for an answer between tags."""
        return (
            f"end your reply with {what}, between {ANSWER} and {END_ANSWER}, "
            f"as in: {self.write_answer(example)}"
        )


def pairs_in(text: str, opening: str, closing: str) -> list[Range]:
    """Return what stands between each `opening` and the next `closing`, from left to right.

    Linear in the text.

    Example:
        >>> pairs_in("(a) (b (c)", "(", ")")
        [(1, 2), (5, 9)]
    """
    found: list[Range] = []
    start = text.find(opening)
    while start >= 0:
        start += len(opening)
        end = text.find(closing, start)
        if end < 0:
            break
        found.append((start, end))
        start = text.find(opening, end + len(closing))
    return found
