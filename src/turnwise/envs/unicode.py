"""Text that can be encoded.

Provides `is_unicode` and `escaped`.
"""

from __future__ import annotations

UNICODE = "text of valid Unicode, without halves of surrogate pairs"
"""What errors ask for."""


def is_unicode(text: str) -> bool:
    r"""Whether text is valid Unicode: Python's str may also hold halves of surrogate pairs.

    Tokenizers and files take no such text.

    Example:
        >>> is_unicode("é"), is_unicode("\ud800")
        (True, False)
    """
    return text.isascii() or text.encode("utf-8", "ignore").decode() == text


def escaped(text: str) -> str:
    r"""Return text with halves of surrogate pairs as escapes.

    Example:
        >>> escaped("a\ud800")
        'a\\ud800'
    """
    return text.encode("utf-8", "backslashreplace").decode()
