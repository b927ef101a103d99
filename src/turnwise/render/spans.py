"""Named spans of a completion: the tokens of its thought, its answer and its action.

Provides `find_spans`, which maps the parts that a reply format finds in the decoded text to tokens.
Knows no tokenizer: it takes a decode function. Model text is hostile: markers that are missing,
repeated or nested give fewer spans, never an error.
"""

from __future__ import annotations

from bisect import bisect_right
from collections.abc import Callable

from turnwise.formats import FindCalls, ReplyFormat
from turnwise.types import Span

Decode = Callable[[tuple[int, ...]], str]


def find_spans(
    completion_ids: tuple[int, ...],
    decode: Decode,
    reply_format: ReplyFormat,
    *,
    inside_thought: bool = False,
    calls: FindCalls | None = None,
) -> tuple[Span, ...]:
    """Return the spans "think", "answer" and "action" of a completion, those that exist.

    - "think": the thought before the answer, with its markers;
    - "answer": from the start of the answer that counts to the completion's end, end token
      included;
    - "action": the words of the action alone.

    The reply format says where they are (`ReplyFormat.parts`). A token that holds the end of the
    thought and the start of the answer belongs to the answer.

    Args:
        completion_ids: the sampled ids, [completion].
        decode: turns a prefix of them into text, without special tokens.
        reply_format: finds the parts of the text.
        inside_thought: whether the prompt already ends with `<think>`.
        calls: finds calls of tools; None where there are none.

    Example:
        >>> from turnwise.formats import Tags
        >>> words = ["<think>", " ice", " </think>", " <answer>", " UP", " </answer>", ""]
        >>> spans = find_spans(tuple(range(7)), lambda ids: "".join(words[i] for i in ids), Tags())
        >>> [(span.name, span.start, span.end) for span in spans]
        [('think', 0, 3), ('answer', 3, 7), ('action', 4, 5)]
    """
    text = decode(completion_ids)
    parts = reply_format.parts(text, inside_thought=inside_thought, calls=calls)
    token_at = _token_finder(completion_ids, decode, text)

    def first_token_of(position: int) -> int:
        after = token_at(position - 1) + 1 if position else 0
        return min(token_at(position), after)

    answer_token = len(completion_ids) if parts.answer is None else first_token_of(parts.answer)
    spans: list[Span] = []
    if parts.thought is not None:
        start, last = parts.thought[0], parts.thought[1] - 1
        end = min(token_at(last) + 1, answer_token)
        spans.append(Span(name="think", start=first_token_of(start), end=end))
    if parts.answer is not None:
        spans.append(Span(name="answer", start=answer_token, end=len(completion_ids)))
    if parts.action is not None:
        start, last = parts.action[0], parts.action[1] - 1
        spans.append(Span(name="action", start=first_token_of(start), end=token_at(last) + 1))
    return tuple(span for span in spans if span.start < span.end)


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
