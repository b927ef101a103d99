"""The renderer of a policy without token ids: its server renders the messages itself.

Provides `TextRenderer`, which stands where a policy with weights has its `Renderer`. Must not know
engines or rewards.
"""

from __future__ import annotations

from collections.abc import Sequence

from turnwise.errors import ModelError
from turnwise.formats import ReplyFormat
from turnwise.types import Prompt, Span


class TextRenderer:
    """Lets messages of text through and refuses what a chat endpoint cannot be given.

    Example:
        >>> from turnwise.types import Message
        >>> TextRenderer("judge").prompt_ids(Prompt(messages=(Message(role="user", content="?"),)))
        ()
    """

    def __init__(self, policy: str) -> None:
        self.policy = policy

    def prompt_ids(self, prompt: Prompt) -> tuple[int, ...]:
        """Return no ids.

        Raises:
            ModelError: if the prompt is raw text, offers tools or shows media.
        """
        other = {"raw text": prompt.text is not None, "tools": prompt.tools, "media": prompt.media}
        given = " and ".join(name for name, has in other.items() if has)
        if given:
            raise ModelError(
                f"policy {self.policy!r} is remote and takes messages of text, but the env gives "
                f"{given}: give this role a policy with weights, or leave {given} out"
            )
        return ()

    def continued_ids(
        self, before: Prompt, ids: tuple[int, ...], reply: str, prompt: Prompt
    ) -> tuple[int, ...] | None:
        """Return None: there are no ids to go on from."""
        return None

    def decode(self, ids: Sequence[int]) -> str:
        """Return the empty text: completions come as text."""
        return ""

    def spans(self, completion_ids: tuple[int, ...], reply_format: ReplyFormat) -> tuple[Span, ...]:
        """Return no spans: they are ranges of token ids."""
        return ()

    def calls(self, reply: str) -> str | None:
        """Return None: no tools were offered."""
        return None

    def spoken(self, reply: str) -> str:
        """Return a reply as it is."""
        return reply
