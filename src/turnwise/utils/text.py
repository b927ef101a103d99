"""Text for a terminal: without markdown, without characters that control it, and as tables.

Provides `without_markup`, `printable` and `aligned`.
"""

from __future__ import annotations

import re
from collections.abc import Sequence
from unicodedata import category


def without_markup(sentence: str) -> str:
    """Return a sentence without the marks of bold text, for a terminal.

    Example:
        >>> without_markup("**All failed.** Run `turnwise check`.")
        'All failed. Run `turnwise check`.'
    """
    return re.sub(r"\*\*(?! )(.+?)\*\*", r"\1", sentence)


def printable(text: str) -> str:
    r"""Return text that cannot control a terminal: other characters are written as escapes.

    Spaces of all widths stay, and the joiners of emoji and of scripts such as Persian.

    Example:
        >>> printable("a\tb\x1b[2J"), printable("a\u3000b")
        ('a\tb\\x1b[2J', 'a\u3000b')
    """
    return "".join(c if _is_shown(c) else repr(c)[1:-1] for c in text)


def _is_shown(character: str) -> bool:
    known = character.isprintable() or character in "\n\t\u200c\u200d"
    return known or category(character) == "Zs"


def aligned(rows: Sequence[Sequence[str]]) -> list[str]:
    """Return the rows of a table as lines, their columns below one another.

    Example:
        >>> aligned([("player", "score"), ("random", "0.1")])
        ['player  score', 'random  0.1']
    """
    widths = [max(map(len, column)) for column in zip(*rows, strict=True)]
    return [
        "  ".join(text.ljust(width) for text, width in zip(row, widths, strict=True)).rstrip()
        for row in rows
    ]
