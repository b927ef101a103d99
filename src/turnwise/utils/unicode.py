"""Text that can be encoded.

Provides `is_unicode`.
"""

from __future__ import annotations


def is_unicode(text: str) -> bool:
    r"""Whether text is valid Unicode: Python's str may also hold halves of surrogate pairs.

    Tokenizers and files take no such text.

    Example:
        >>> is_unicode("é"), is_unicode("\ud800")
        (True, False)
    """
    if text.isascii():
        return True
    try:
        text.encode()
    except UnicodeEncodeError:
        return False
    return True
