"""Text for a terminal, without Markdown and control characters, and text within Markdown.

Provides `without_markup`, `printable` and `aligned`; `as_code`, `fence_of`, `in_line` and
`in_cell`.
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


def as_code(text: str) -> str:
    """Return text as code within a line of Markdown, whatever it holds.

    Example:
        >>> as_code("lake.py:Lake"), as_code("a`b")
        ('`lake.py:Lake`', '``a`b``')
    """
    line = " ".join(text.split())
    fence = fence_of(line)
    pad = " " if not line or "`" in (line[0], line[-1]) else ""
    return f"{fence}{pad}{line}{pad}{fence}"


def fence_of(text: str, least: int = 1) -> str:
    """Return backquotes, at least `least`, that may enclose text in Markdown.

    Example:
        >>> fence_of("a`b"), fence_of("a", least=3)
        ('``', '```')
    """
    longest = max((len(found) for found in re.findall("`+", text)), default=0)
    return "`" * max(least, 1 + longest)


def in_line(text: str) -> str:
    r"""Return text for one line of Markdown that shows it as it is.

    Example:
        >>> in_line("a_b <b>*"), in_line("two\nlines")
        ('a_b \\<b\\>\\*', 'two lines')
    """
    return re.sub(r"[\\`*\[\]<>#]", r"\\\g<0>", " ".join(text.split()))


def in_cell(text: str) -> str:
    r"""Return Markdown for the cell of a table, in one line.

    Example:
        >>> in_cell("always a|b")
        'always a\\|b'
    """
    return " ".join(text.split()).replace("|", "\\|")


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
