"""The key of an endpoint, hidden in what a server says: `KeyMask`.

A server may repeat the key, in JSON, in HTML or in an address, each of which spells some characters
in other ways.
"""

from __future__ import annotations

import html
import re

SHORTEST = 8
"""Characters of the shortest key that is a secret: servers without keys take `none` or `x`."""
MASK = "***"


class KeyMask:
    r"""Hides a key.

    Args:
        key: the key; empty for an endpoint without one.

    Example:
        >>> mask = KeyMask("sk-12/34")
        >>> mask.hidden(r"no sk-12/34, no sk-12\/34 and no sk-12%2F34")
        'no ***, no *** and no ***'
        >>> KeyMask("x").hidden("x is wrong"), KeyMask("x").hidden_in_reply("the exit")
        ('*** is wrong', 'the exit')
    """

    def __init__(self, key: str) -> None:
        self._secret = len(key) >= SHORTEST
        self._pattern = re.compile("".join(map(_spelled, key))) if key else None

    def hidden(self, text: str) -> str:
        """Return a text without the key, however it is spelled."""
        return self._pattern.sub(MASK, text) if self._pattern else text

    def hidden_in_reply(self, text: str) -> str:
        """Return a model's reply without the key; one that is no secret stays in it."""
        return self.hidden(text) if self._secret else text


def _spelled(character: str) -> str:
    """Return the pattern of a character: plain, or as JSON, an address or HTML spell it."""
    number = ord(character)
    forms = [re.escape(character), rf"\\u00(?i:{number:02x})", f"%(?i:{number:02x})"]
    forms += [f"&#0*{number};", f"&#[xX]0*(?i:{number:x});"]
    if not character.isalnum():
        forms.append(rf"\\{re.escape(character)}")
        named = html.escape(character)
        forms += [re.escape(named)] if named != character else []
    return f"(?:{'|'.join(forms)})"
