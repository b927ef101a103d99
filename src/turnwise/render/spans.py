"""Named spans of a completion: where the thought, the answer and the action stand, in tokens.

Owns the search for `<think>`, `</think>`, `<answer>` and `</answer>` in decoded text and the map
from characters back to tokens. Knows no tokenizer: it is handed a decode function. Model text is
hostile: tags that are missing, repeated or nested give fewer spans, never an error.
"""

from __future__ import annotations

import re
from bisect import bisect_right
from collections.abc import Callable

from turnwise.types import Span

TAGS = ("<think>", "</think>", "<answer>", "</answer>")
_ANSWER = re.compile(r"<answer>(.*?)</answer>", re.DOTALL)

Decode = Callable[[tuple[int, ...]], str]
Calls = Callable[[str], list[tuple[tuple[int, int], tuple[int, int]]]]
"""From a text to the ranges of its calls of tools, in characters, with their tags and without."""


def find_spans(
    completion_ids: tuple[int, ...],
    decode: Decode,
    *,
    inside_thought: bool = False,
    calls: Calls | None = None,
) -> tuple[Span, ...]:
    """Return the spans "think", "answer" and "action" of a completion, those that exist.

    - "think": from the first `<think>` to the last `</think>` before the answer, tags included;
    - "answer": from the `<answer>` that counts to the completion's end, end token included. The
      one that counts is the last that is closed, as in `agents.parse_answer`; if none is closed,
      the last one;
    - "action": the words strictly between that `<answer>` and its `</answer>`.

    A reply without an `<answer>` that calls tools has its calls in the answer's place: "answer" is
    from the first of them to the end, "action" from the words of the first to those of the last.

    A token that holds the end of the thought and the start of the answer belongs to the answer.

    Args:
        completion_ids: the sampled ids, [completion].
        decode: turns a prefix of them into text, without special tokens.
        inside_thought: whether the prompt already ends with `<think>`.
        calls: finds calls of tools; None where there are none.

    Example:
        >>> words = ["<think>", " ice", " </think>", " <answer>", " UP", " </answer>", ""]
        >>> spans = find_spans(tuple(range(7)), lambda ids: "".join(words[i] for i in ids))
        >>> [(span.name, span.start, span.end) for span in spans]
        [('think', 0, 3), ('answer', 3, 7), ('action', 4, 5)]
    """
    text = decode(completion_ids)
    answer_start, action = _answer_characters(text)
    called = calls(text) if calls and answer_start is None else []
    if called:
        answer_start, action = called[0][0][0], (called[0][1][0], called[-1][1][1])
        action = _trimmed(text, *action)
    thought = _thought_characters(text, answer_start, inside_thought)
    token_at = _token_finder(completion_ids, decode, text)

    def first_token_of(position: int) -> int:
        after = token_at(position - 1) + 1 if position else 0
        return min(token_at(position), after)

    answer_token = len(completion_ids) if answer_start is None else first_token_of(answer_start)
    spans: list[Span] = []
    if thought is not None:
        end = min(token_at(thought[1] - 1) + 1, answer_token)
        spans.append(Span(name="think", start=first_token_of(thought[0]), end=end))
    if answer_start is not None:
        spans.append(Span(name="answer", start=answer_token, end=len(completion_ids)))
    if action is not None:
        start, end = first_token_of(action[0]), token_at(action[1] - 1) + 1
        spans.append(Span(name="action", start=start, end=end))
    return tuple(span for span in spans if span.start < span.end)


def _answer_characters(text: str) -> tuple[int | None, tuple[int, int] | None]:
    """Return where the answer that counts starts, and the range of its words, in characters."""
    closed = list(_ANSWER.finditer(text))
    if not closed:
        start = text.rfind("<answer>")
        return (None if start < 0 else start), None
    return closed[-1].start(), _trimmed(text, *closed[-1].span(1))


def _trimmed(text: str, start: int, end: int) -> tuple[int, int] | None:
    """Return a range without the blanks at its ends; None if nothing is left."""
    inner = text[start:end]
    start += len(inner) - len(inner.lstrip())
    end = start + len(inner.strip())
    return (start, end) if start < end else None


def _thought_characters(
    text: str, answer_start: int | None, inside_thought: bool
) -> tuple[int, int] | None:
    """Return the range of the thought before the answer, in characters, tags included."""
    before = text[:answer_start]
    start = 0 if inside_thought else before.find("<think>")
    end = before.rfind("</think>")
    if start < 0 or end < start:
        return None
    return start, end + len("</think>")


def _token_finder(ids: tuple[int, ...], decode: Decode, text: str) -> Callable[[int], int]:
    """Return the function from a character's position in `text` to the token that completes it.

    How many characters a prefix of the ids settles never falls with its length, so each tag needs
    only log2(completion) decodes. Half a character decodes to a replacement that does not agree
    with `text`, hence the common prefix.
    """
    settled: dict[int, int] = {}

    def characters(count: int) -> int:
        if count not in settled:
            settled[count] = _shared_prefix(decode(ids[:count]), text)
        return settled[count]

    def token_at(position: int) -> int:
        return bisect_right(range(len(ids)), position, key=characters) - 1

    return token_at


def _shared_prefix(part: str, text: str) -> int:
    """Return how many characters the two begin with in common."""
    if text.startswith(part):
        return len(part)
    pairs = enumerate(zip(part, text, strict=False))
    return next((i for i, (a, b) in pairs if a != b), min(len(part), len(text)))
