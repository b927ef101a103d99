"""Short hashes of texts."""

from __future__ import annotations

import hashlib


def short_hash(text: str) -> str:
    """Return 16 hexadecimal digits that are equal for equal texts.

    Example:
        >>> short_hash("a") == short_hash("a"), len(short_hash("b"))
        (True, 16)
    """
    return hashlib.blake2b(text.encode(), digest_size=8).hexdigest()
