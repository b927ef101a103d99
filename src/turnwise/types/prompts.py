"""Prompts: messages or text, with the tools and media that belong to them.

Provides `Message`, `Media` and `Prompt`.
"""

from __future__ import annotations

import hashlib
from dataclasses import dataclass, field
from typing import Literal, TypeAlias

MessageRole = Literal["system", "user", "assistant", "tool"]


@dataclass(frozen=True, kw_only=True, slots=True)
class Message:
    """One chat message, as a chat template takes it.

    Example:
        >>> Message(role="user", content="r0c0 start").as_dict()
        {'role': 'user', 'content': 'r0c0 start'}
    """

    role: MessageRole
    content: str

    def as_dict(self) -> dict[str, str]:
        """Return the `{"role", "content"}` dict that tokenizers' chat templates expect."""
        return {"role": self.role, "content": self.content}


@dataclass(frozen=True, kw_only=True, slots=True)
class Media:
    """A picture, a sound or a video that a prompt shows, known by the hash of its content.

    Two media are equal if their kinds and contents are.

    Example:
        >>> Media(kind="image/png", data=b"0").sha256[:8]
        '9be70f52'
    """

    kind: str
    data: bytes = field(repr=False, compare=False)
    sha256: str = field(init=False)

    def __post_init__(self) -> None:
        """Hash the kind and the content."""
        digest = hashlib.sha256(self.kind.encode() + b"\0" + self.data).hexdigest()
        object.__setattr__(self, "sha256", digest)


MediaKey: TypeAlias = tuple[str, ...]
"""The hashes of a prompt's media, in their order: part of the key of everything that is kept for
token ids, because equal ids stand for different pictures."""


@dataclass(frozen=True, kw_only=True, slots=True)
class Prompt:
    """The input that a model continues: messages for the chat template, or raw text.

    `tools` are the JSON schemas of the tools that the chat template is to offer; `media` are what
    the messages show beside their text.

    Raises:
        ValueError: if there are both messages and text or neither, or tools beside text.

    Example:
        >>> Prompt(messages=(Message(role="user", content="2+2?"),)).messages[0].role
        'user'
        >>> Prompt(text="2+2=").messages
        ()
    """

    messages: tuple[Message, ...] = ()
    text: str | None = None
    tools: tuple[str, ...] = ()
    media: tuple[Media, ...] = ()

    def __post_init__(self) -> None:
        """Check that there is one thing to continue."""
        if bool(self.messages) == (self.text is not None):
            given = "both" if self.messages else "neither"
            raise ValueError(f"a prompt has messages or text, got {given}: give one of them")
        if self.text is not None and self.tools:
            raise ValueError("a prompt of raw text offers no tools: give messages, or leave tools")

    @property
    def transcript(self) -> str:
        """All that is said, for people: raw text, or every message below the name of its role."""
        if self.text is not None:
            return self.text
        return "\n\n".join(f"[{one.role}]\n{one.content}" for one in self.messages)

    @property
    def media_key(self) -> MediaKey:
        """The hashes of the media, in their order; empty where there are none."""
        return tuple(one.sha256 for one in self.media)
