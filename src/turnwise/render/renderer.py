"""The renderer: messages to prompt ids, replies to completion ids, completions to text and spans.

Provides `Renderer`. It handles everything that depends on a model's chat template: its options,
templates without a system role, the beginning-of-sequence token, the tokens that end a turn, and
whether a longer history extends a shorter one's ids. Knows no models, engines or rewards, and
imports no torch. Its ids go to engines as prompts; sampled ids are decoded, never re-tokenised.
"""

from __future__ import annotations

import json
import re
from collections.abc import Iterable, Sequence
from functools import cached_property, lru_cache
from typing import TYPE_CHECKING, Any

from jinja2.exceptions import TemplateError
from pydantic import Field

from turnwise.errors import ModelError
from turnwise.formats import REPLY_FORMATS, ReplyFormat
from turnwise.render.calls import FORMS, PROBE, CallForm, form_of
from turnwise.render.spans import find_spans
from turnwise.settings import Settings
from turnwise.types import Message, Prompt, Span

if TYPE_CHECKING:
    from transformers import PreTrainedTokenizerBase

_USER = Message(role="user", content="turnwise-user")
_SYSTEM = Message(role="system", content="turnwise-system")
_REPLY = "turnwise-reply"
_RESULT = Message(role="tool", content="turnwise-result")
_PROMPTS_KEPT = 1024
_COMPLETIONS_KEPT = 8192
_TOOLS_KEPT = 16
_MARKERS = frozenset(word for each in REPLY_FORMATS.values() for word in each.markers)


class RenderConfig(Settings):
    """Options of rendering."""

    template_options: dict[str, bool | int | str] = Field(default_factory=dict)
    """Variables handed to the chat template, such as `enable_thinking`."""


class Renderer:
    """Renders messages with one tokenizer's own chat template.

    Attributes:
        stop_ids: ids that end a completion: end of sequence, the template's end of turn, and those
            of the model's generation config.
        merges_system: whether the template has no system role, and the system text goes into the
            first user message.

    A tokenizer without a chat template renders raw text only.

    Raises:
        ModelError: if the tokenizer has no end token, or if its template does not know an option
            or cannot render a plain exchange.
    """

    def __init__(
        self,
        tokenizer: PreTrainedTokenizerBase,
        options: RenderConfig | None = None,
        *,
        extra_stop_ids: Iterable[int] = (),
    ) -> None:
        self.tokenizer = tokenizer
        self.options = options or RenderConfig()
        added = tokenizer.added_tokens_decoder
        special = {index: str(token) for index, token in added.items() if token.special}
        self._hidden = frozenset(i for i, content in special.items() if content not in _MARKERS)
        self._control = _control_pattern(special[index] for index in self._hidden)
        self._check_template()
        templated = bool(tokenizer.chat_template)
        self.merges_system = templated and not self._has_system_role()
        self._opening = self._text([_USER], prompt=True) if templated else ""
        self._end_text = self._find_end_of_turn([str(token) for token in added.values()])
        self._end_id = self._ids(self._end_text)[-1]
        eos = tokenizer.eos_token_id
        own = (self._end_id, eos) if isinstance(eos, int) else (self._end_id,)
        self.stop_ids: frozenset[int] = frozenset((*own, *extra_stop_ids))
        self._tools_checked = lru_cache(_TOOLS_KEPT)(self._check_tools)
        self._prompt_ids = lru_cache(_PROMPTS_KEPT)(self._render_prompt)
        self._decode = lru_cache(_COMPLETIONS_KEPT)(self._decode_ids)
        self._spans = lru_cache(_COMPLETIONS_KEPT)(self._find_spans)

    @property
    def pad_id(self) -> int:
        """The padding id; the end-of-sequence or end-of-turn id where the tokenizer has none.

        Padding is therefore told from text by position, never by id.
        """
        for index in (self.tokenizer.pad_token_id, self.tokenizer.eos_token_id):
            if isinstance(index, int):
                return index
        return self._end_id

    def prompt_ids(self, prompt: Prompt) -> tuple[int, ...]:
        """Return the ids that a model continues with its reply to `prompt`.

        Messages are rendered by the chat template, with the tools that it is to offer where there
        are any. Text is taken as it stands, its special tokens too, with those that the tokenizer
        puts around every text (BOS).

        Raises:
            ModelError: if there is no template, or it refuses the order or a role of the messages,
                or does not show tools; if raw text has no tokens; if the prompt has media.
        """
        return self._prompt_ids(prompt)

    def continued_ids(
        self,
        before: Prompt,
        ids: tuple[int, ...],
        reply: str,
        prompt: Prompt,
    ) -> tuple[int, ...] | None:
        """Return the ids of `prompt`, which goes on from an earlier one, with what was sampled.

        Text may be said in more than one way in tokens; a history that is tokenised anew may not be
        the one that the model wrote.

        Args:
            before: the earlier prompt.
            ids: its ids and those sampled after it.
            reply: the sampled ids as text.
            prompt: the earlier prompt, the reply, and what followed.

        Returns:
            `ids` and what comes after them; None where the template does not leave the past as it
            was said, or `prompt` is another conversation.
        """
        if not before.messages or not prompt.messages or before.tools != prompt.tools:
            return None
        self._refuse_media(prompt)
        start = self._text(before.messages, prompt=True, tools=before.tools)
        start += self._harmless(reply) + self._end_text
        text = self._text(prompt.messages, prompt=True, tools=prompt.tools)
        if not text.startswith(start):
            return None
        rest = text[len(start) :]
        if ids[-1] == self._end_id:
            return ids + self._ids(rest)
        return None if ids[-1] in self.stop_ids else ids + self._ids(self._end_text + rest)

    def shown(self, messages: Sequence[Message]) -> list[Message]:
        """Return messages as the chat template gets them.

        Special tokens written out in them are broken up. Where the template has no system role, the
        system text is in the first user message.
        """
        harmless = [Message(role=m.role, content=self._harmless(m.content)) for m in messages]
        return _merge_system(harmless) if self.merges_system else harmless

    def calls(self, reply: str) -> str | None:
        """Return the calls of tools in a reply as an env's action; None if it calls nothing."""
        return self._call_form.action(reply) if self._call_form else None

    def spoken(self, reply: str) -> str:
        """Return a reply whose calls stand in an env's form as this model would say it."""
        return self._call_form.spoken(reply) if self._call_form else reply

    def completion_ids(self, reply: str) -> tuple[int, ...]:
        """Return the ids by which a model would say exactly `reply`, end-of-turn token included.

        They are what stands after the generation prompt when prompt and reply are tokenised
        together; where the prompt's last token would change by that, the reply is encoded alone.
        """
        said = self._harmless(reply) + self._end_text
        prompt, whole = self._opening_ids, self._ids(self._opening + said)
        if whole[: len(prompt)] == prompt:
            return whole[len(prompt) :]
        return self._ids(said)

    def decode(self, ids: Sequence[int]) -> str:
        """Return the text of a completion, without its end token and other special tokens."""
        return self._decode(tuple(ids))

    def spans(self, completion_ids: Sequence[int], reply_format: ReplyFormat) -> tuple[Span, ...]:
        """Return the spans "think", "answer" and "action" of a completion (see `find_spans`)."""
        return self._spans(tuple(completion_ids), reply_format)

    def extends(
        self,
        shorter: Sequence[Message],
        longer: Sequence[Message],
        tools: tuple[str, ...] = (),
    ) -> bool:
        """Whether the ids of `longer` begin with the prompt of `shorter` and the reply after it.

        False for templates that rewrite the past (Qwen3 strips earlier thoughts). A reply that was
        sampled in other tokens than `completion_ids` gives does not extend either, so whoever cuts
        rows compares the sampled ids themselves; this tells beforehand what the template allows.

        Args:
            shorter: the messages of an earlier call.
            longer: those of a later call: `shorter`, the reply as assistant, and what followed.
            tools: the schemas that both offer.
        """
        count = len(shorter)
        if len(longer) <= count or tuple(longer[:count]) != tuple(shorter):
            return False
        if longer[count].role != "assistant":
            return False
        if not count:
            return False
        before = self.prompt_ids(Prompt(messages=tuple(shorter), tools=tools))
        start = before + self.completion_ids(longer[count].content)
        after = self.prompt_ids(Prompt(messages=tuple(longer), tools=tools))
        return after[: len(start)] == start

    @cached_property
    def _opening_ids(self) -> tuple[int, ...]:
        """The ids of what stands before a reply to a message."""
        return self._ids(self._opening)

    @cached_property
    def _call_form(self) -> CallForm | None:
        """The form in which the template writes calls of tools, found by rendering one."""
        if not self.tokenizer.chat_template:
            return None
        name, arguments = PROBE
        function = {"name": name, "arguments": arguments}
        call = {"type": "function", "id": "turnwise0", "function": function}
        said = {"role": "assistant", "content": "", "tool_calls": [call]}
        try:
            text = self._rendered([_USER.as_dict(), said], prompt=False)
        except (TemplateError, TypeError):  # a template that joins a content or an id it has not
            return None
        return form_of(text)

    def _check_tools(self, tools: tuple[str, ...]) -> None:
        """Refuse tools that the template does not show, or results or calls that it cannot."""
        name = self.tokenizer.name_or_path
        reply = Message(role="assistant", content=_REPLY)
        try:
            text = self._apply([_USER, reply, _RESULT], True, tools)
        except TemplateError as error:
            text, said = "", f" ({error})"
        else:
            said = ""
        names = [json.loads(tool)["function"]["name"] for tool in tools]
        missing = [shown for shown in (*names, _RESULT.content) if shown not in text]
        if missing:
            raise ModelError(
                f"the chat template of {name!r} does not show tools and their results{said}: use a "
                "model that was trained to call tools, such as Qwen3, or an env without tools"
            )
        if self._call_form is None:
            raise ModelError(
                f"the chat template of {name!r} writes calls of tools in a form that is not known "
                f"here: use one that writes them as one of {', '.join(FORMS)} (render/calls.py)"
            )

    def _check_template(self) -> None:
        """Refuse options that the template never reads."""
        name = self.tokenizer.name_or_path
        template = self.tokenizer.get_chat_template() if self.tokenizer.chat_template else ""
        for option in self.options.template_options:
            if not re.search(rf"\b{re.escape(option)}\b", template):
                raise ModelError(
                    f"template option {option!r} is not read by the chat template of {name!r}: "
                    "remove it or correct its name"
                )

    def _has_system_role(self) -> bool:
        """Try once whether the template shows a system message."""
        try:
            text = self._apply([_SYSTEM, _USER], prompt=True)
        except TemplateError:
            return False
        return _SYSTEM.content in text

    def _find_end_of_turn(self, added: Sequence[str]) -> str:
        """Return the text that the template puts after a reply, up to its first added token."""
        reply = Message(role="assistant", content=_REPLY)
        templated = bool(self.tokenizer.chat_template)
        whole = self._text([_USER, reply], prompt=False) if templated else ""
        tail = whole[whole.rfind(_REPLY) + len(_REPLY) :] if _REPLY in whole else ""
        found = [(tail.find(token), -len(token), token) for token in added if token in tail]
        if found:
            start, _, token = min(found)
            return tail[: start + len(token)]
        if not self.tokenizer.eos_token:
            raise ModelError(
                f"tokenizer {self.tokenizer.name_or_path!r} has neither an end-of-turn token in "
                "its chat template nor an eos token: set `eos_token` in tokenizer_config.json"
            )
        return str(self.tokenizer.eos_token)

    def _render_prompt(self, prompt: Prompt) -> tuple[int, ...]:
        self._refuse_media(prompt)
        if prompt.text is None:
            if prompt.tools:
                self._tools_checked(prompt.tools)
            return self._ids(self._text(prompt.messages, prompt=True, tools=prompt.tools))
        ids = tuple(self.tokenizer(prompt.text)["input_ids"])
        if not ids:
            raise ModelError(f"the raw prompt {prompt.text!r} has no tokens: give text to continue")
        return ids  # pyright: ignore[reportReturnType]

    def _refuse_media(self, prompt: Prompt) -> None:
        """Refuse media: models are loaded as decoders of text."""
        if prompt.media:
            kinds = ", ".join(sorted({one.kind for one in prompt.media}))
            raise ModelError(
                f"the prompt shows media ({kinds}), but {self.tokenizer.name_or_path!r} is "
                "prompted with text alone: expected an observation without media; describe them "
                "in its text"
            )

    def _decode_ids(self, ids: tuple[int, ...]) -> str:
        shown = [i for i in ids if i not in self._hidden and i not in self.stop_ids]
        return str(self.tokenizer.decode(shown, clean_up_tokenization_spaces=False))

    def _find_spans(self, ids: tuple[int, ...], reply_format: ReplyFormat) -> tuple[Span, ...]:
        opened = self._opening.rstrip().endswith("<think>")
        form = self._call_form
        calls = form.find if form else None
        return find_spans(ids, self._decode_ids, reply_format, inside_thought=opened, calls=calls)

    def _text(
        self, messages: Sequence[Message], *, prompt: bool, tools: tuple[str, ...] = ()
    ) -> str:
        """Return the rendered text, with the template's refusal as a `ModelError`."""
        if not self.tokenizer.chat_template:
            raise ModelError(
                f"tokenizer {self.tokenizer.name_or_path!r} has no chat template: expected an "
                "instruction-tuned model; use one, put a chat_template.jinja beside the tokenizer, "
                "or give raw text as the prompt"
            )
        try:
            return self._apply(self.shown(messages), prompt, tools)
        except TemplateError as error:
            roles = ", ".join(message.role for message in messages)
            raise ModelError(
                f"the chat template of {self.tokenizer.name_or_path!r} cannot render the roles "
                f"[{roles}]: {error}. Use roles and an order that it knows"
            ) from error

    def _apply(self, messages: Sequence[Message], prompt: bool, tools: tuple[str, ...] = ()) -> str:
        """Return what the template makes of `messages`."""
        return self._rendered([message.as_dict() for message in messages], prompt, tools)

    def _rendered(
        self, dicts: Sequence[dict[str, Any]], prompt: bool, tools: tuple[str, ...] = ()
    ) -> str:
        """Return what the template makes of messages as dicts."""
        options: dict[str, Any] = {"add_generation_prompt": prompt, **self.options.template_options}
        if tools:
            options["tools"] = [json.loads(self._harmless(tool)) for tool in tools]
        text = self.tokenizer.apply_chat_template(list(dicts), tokenize=False, **options)
        assert isinstance(text, str)
        return text

    def _ids(self, text: str) -> tuple[int, ...]:
        """Tokenise rendered text. The template alone adds a BOS, so there is never a second."""
        ids = self.tokenizer(text, add_special_tokens=False)["input_ids"]
        return tuple(ids)  # pyright: ignore[reportArgumentType]

    def _harmless(self, content: str) -> str:
        """Break up special tokens written out in `content`: text must not end or begin turns."""
        return self._control.sub(lambda match: f"{match[0][0]} {match[0][1:]}", content)


def _merge_system(messages: Sequence[Message]) -> list[Message]:
    """Put the system text before the first user message's own text."""
    system = [message.content for message in messages if message.role == "system"]
    others = [message for message in messages if message.role != "system"]
    first = next((i for i, message in enumerate(others) if message.role == "user"), None)
    if not system:
        return others
    if first is None:
        return [Message(role="user", content="\n\n".join(system)), *others]
    content = "\n\n".join([*system, others[first].content])
    return [*others[:first], Message(role="user", content=content), *others[first + 1 :]]


def _control_pattern(tokens: Iterable[str]) -> re.Pattern[str]:
    """Return the pattern of special tokens as text, longest first; it matches nothing if none."""
    texts = sorted((token for token in tokens if len(token) > 1), key=len, reverse=True)
    return re.compile("|".join(map(re.escape, texts)) or r"(?!)")
