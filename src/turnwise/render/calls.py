"""The forms in which models write calls of tools, one for each family of chat templates.

Provides the table `FORMS` and `form_of`. A call that is found in a reply is passed on in the form
that envs read (`envs.tools.calls`); the env decides whether it is valid. Knows no tokenizer. To add
a form, write its two functions and a line in `FORMS`.
"""

from __future__ import annotations

import json
import re
from collections.abc import Callable
from dataclasses import dataclass

from turnwise.envs.tools.calls import CLOSE, OPEN, call_text, calls_in, read_call

Range = tuple[int, int]
_BLOCK = re.compile(rf"{OPEN}(.*?)(?:{CLOSE}|\Z)", re.DOTALL)
_OBJECT = re.compile(r'\s*(\{\s*"(?:name|parameters)".*\})\s*\Z', re.DOTALL)
PROBE = ("turnwise_probe", {"word": "here"})
"""A call by whose rendering a template's form is found out."""


@dataclass(frozen=True, kw_only=True, slots=True)
class CallForm:
    """One way to write calls.

    `find` returns where the text of each call stands, in characters of a reply, with its tags and
    without; `write` returns a call's text from its JSON, `{"name", "arguments"}`.
    """

    find: Callable[[str], list[tuple[Range, Range]]]
    write: Callable[[str], str]

    def action(self, reply: str) -> str | None:
        """Return the calls of a reply as an action of an env, None if it calls nothing."""
        inner = [reply[start:end].strip() for _, (start, end) in self.find(reply)]
        return "\n".join(f"{OPEN}\n{text}\n{CLOSE}" for text in inner) if inner else None

    def spoken(self, reply: str) -> str:
        """Return a reply in which calls stand as envs write them as a model would say it."""
        return _BLOCK.sub(lambda match: self.write(match[1].strip()), reply)


def find_tagged(reply: str) -> list[tuple[Range, Range]]:
    """Find calls between `<tool_call>` tags, as Qwen and Hermes models write them.

    What stands before the end of a thought is no call; the last tag need not be closed.
    """
    start = _after_thought(reply)
    return [(found.span(), found.span(1)) for found in _BLOCK.finditer(reply, start)]


def find_object(reply: str) -> list[tuple[Range, Range]]:
    """Find a reply that is one JSON object of `name` and `parameters`, as Llama 3 writes calls."""
    found = _OBJECT.match(reply, _after_thought(reply))
    return [(found.span(1), found.span(1))] if found else []


def _after_thought(reply: str) -> int:
    """Return where the last thought ends, which is the end of the reply if it does not."""
    end = reply.rfind("</think>")
    if "<think>" in reply[max(end, 0) :]:
        return len(reply)
    return 0 if end < 0 else end + len("</think>")


def _write_tagged(text: str) -> str:
    return f"{OPEN}\n{text}\n{CLOSE}"


def _write_object(text: str) -> str:
    call = read_call(text)
    said = {"name": call.name, "parameters": dict(call.arguments)}
    return json.dumps(said, ensure_ascii=False)


FORMS: dict[str, CallForm] = {
    "qwen": CallForm(find=find_tagged, write=_write_tagged),
    "llama": CallForm(find=find_object, write=_write_object),
}


def form_of(rendered: str) -> CallForm | None:
    """Return the form in which a template rendered the call `PROBE`; None if it is none of them.

    Example:
        >>> form_of("<|im_start|>assistant" + call_text(PROBE[0], **PROBE[1])) is FORMS["qwen"]
        True
    """
    (probe,) = calls_in(call_text(PROBE[0], **PROBE[1]))
    bare = _without_blanks(rendered)
    for form in FORMS.values():
        if _without_blanks(form.write(probe)) in bare:
            return form
    return None


def _without_blanks(text: str) -> str:
    return re.sub(r"\s", "", text)
