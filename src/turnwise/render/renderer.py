"""The renderer: messages to prompt ids, replies to completion ids, completions to text and spans.

Owns everything that depends on a model's chat template: its options, templates without a system
role, the beginning-of-sequence token, the tokens that end a turn, and whether a longer history
extends a shorter one's ids. Must not know models, engines or rewards, and imports no torch. Its
ids go to engines as prompts; sampled ids come back and are decoded, never re-tokenised.
"""

from __future__ import annotations

import re
from collections.abc import Iterable, Sequence
from functools import lru_cache
from typing import TYPE_CHECKING, Any

from jinja2.exceptions import TemplateError
from pydantic import Field

from turnwise.errors import ModelError
from turnwise.render.spans import TAGS, find_spans
from turnwise.settings import Settings
from turnwise.types import Message, Span

if TYPE_CHECKING:
    from transformers import PreTrainedTokenizerBase

_USER = Message(role="user", content="turnwise-user")
_SYSTEM = Message(role="system", content="turnwise-system")
_REPLY = "turnwise-reply"
_PROMPTS_KEPT = 1024
_COMPLETIONS_KEPT = 8192


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
        self._hidden = frozenset(i for i, content in special.items() if content not in TAGS)
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

    def prompt_ids(self, prompt: Sequence[Message] | str) -> tuple[int, ...]:
        """Return the ids that a model continues with its reply to `prompt`.

        Args:
            prompt: messages, which the chat template renders; or text that is taken as it stands,
                its special tokens too, with those that the tokenizer puts around every text (BOS).

        Raises:
            ModelError: if there is no template, or it refuses the order or a role of the messages;
                if raw text has no tokens.
        """
        return self._prompt_ids(prompt if isinstance(prompt, str) else tuple(prompt))

    def completion_ids(self, reply: str) -> tuple[int, ...]:
        """Return the ids by which a model would say exactly `reply`, end-of-turn token included.

        They are what stands after the generation prompt when prompt and reply are tokenised
        together; where the prompt's last token would change by that, the reply is encoded alone.
        """
        said = self._harmless(reply) + self._end_text
        prompt, whole = self._ids(self._opening), self._ids(self._opening + said)
        if whole[: len(prompt)] == prompt:
            return whole[len(prompt) :]
        return self._ids(said)

    def decode(self, ids: Sequence[int]) -> str:
        """Return the text of a completion, without its end token and other special tokens."""
        return self._decode(tuple(ids))

    def spans(self, completion_ids: Sequence[int]) -> tuple[Span, ...]:
        """Return the spans "think", "answer" and "action" of a completion (see `find_spans`)."""
        return self._spans(tuple(completion_ids))

    def extends(self, shorter: Sequence[Message], longer: Sequence[Message]) -> bool:
        """Whether the ids of `longer` begin with the prompt of `shorter` and the reply after it.

        False for templates that rewrite the past (Qwen3 strips earlier thoughts). A reply that was
        sampled in other tokens than `completion_ids` gives does not extend either, so whoever cuts
        rows compares the sampled ids themselves; this tells beforehand what the template allows.

        Args:
            shorter: the messages of an earlier call.
            longer: those of a later call: `shorter`, the reply as assistant, and what followed.
        """
        count = len(shorter)
        if len(longer) <= count or tuple(longer[:count]) != tuple(shorter):
            return False
        if longer[count].role != "assistant":
            return False
        start = self.prompt_ids(shorter) + self.completion_ids(longer[count].content)
        return self.prompt_ids(longer)[: len(start)] == start

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

    def _render_prompt(self, prompt: tuple[Message, ...] | str) -> tuple[int, ...]:
        if not isinstance(prompt, str):
            return self._ids(self._text(prompt, prompt=True))
        ids = tuple(self.tokenizer(prompt)["input_ids"])
        if not ids:
            raise ModelError(f"the raw prompt {prompt!r} has no tokens: give text to go on with")
        return ids  # pyright: ignore[reportReturnType]

    def _decode_ids(self, ids: tuple[int, ...]) -> str:
        shown = [i for i in ids if i not in self._hidden and i not in self.stop_ids]
        return str(self.tokenizer.decode(shown, clean_up_tokenization_spaces=False))

    def _find_spans(self, ids: tuple[int, ...]) -> tuple[Span, ...]:
        opened = self._opening.rstrip().endswith("<think>")
        return find_spans(ids, self._decode_ids, inside_thought=opened)

    def _text(self, messages: Sequence[Message], *, prompt: bool) -> str:
        """Return the rendered text, with the template's refusal as a `ModelError`."""
        if not self.tokenizer.chat_template:
            raise ModelError(
                f"tokenizer {self.tokenizer.name_or_path!r} has no chat template: expected an "
                "instruction-tuned model; use one, put a chat_template.jinja beside the tokenizer, "
                "or give raw text as the prompt"
            )
        harmless = [Message(role=m.role, content=self._harmless(m.content)) for m in messages]
        try:
            return self._apply(_merge_system(harmless) if self.merges_system else harmless, prompt)
        except TemplateError as error:
            roles = ", ".join(message.role for message in messages)
            raise ModelError(
                f"the chat template of {self.tokenizer.name_or_path!r} cannot render the roles "
                f"[{roles}]: {error}. Use roles and an order that it knows"
            ) from error

    def _apply(self, messages: Sequence[Message], prompt: bool) -> str:
        """Return what the template makes of `messages`."""
        options: dict[str, Any] = {"add_generation_prompt": prompt, **self.options.template_options}
        dicts = [message.as_dict() for message in messages]
        text = self.tokenizer.apply_chat_template(dicts, tokenize=False, **options)
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
