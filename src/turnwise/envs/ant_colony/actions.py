r"""The actions of an ant: lines of text, of which each is an action or invalid.

Provides `Act`, `read_line` and `read_lines`. Lines are written by models: a line of any length is
read in bounded time, and nothing of it is evaluated.

Example:
    >>> [act and act.verb for act in read_lines('MOVE N\nremember "food x2"\nfly').acts]
    ['MOVE', 'REMEMBER', None]
"""

from __future__ import annotations

from collections.abc import Mapping
from functools import lru_cache
from typing import Literal, NamedTuple

from turnwise.envs.ant_colony.grid import COMPASS
from turnwise.envs.ant_colony.notes import MOST_NOTES, is_note
from turnwise.envs.ant_colony.scents import SCENTS

Slot = Literal["body", "scent", "memory"]
SLOTS: Mapping[str, Slot] = {
    "MOVE": "body",
    "PICK_UP": "body",
    "DROP": "body",
    "DEPOSIT": "body",
    "SIGNAL": "scent",
    "REINFORCE": "scent",
    "REMEMBER": "memory",
    "FORGET": "memory",
}
"""Verb -> the slot of a turn that it takes."""
MOST_LINES = 3
LONGEST_LINE = 80
MOST_COUNTED = 16
"""The most lines of a turn that are counted as invalid."""
_WORDS = {"NORTH": "N", "EAST": "E", "SOUTH": "S", "WEST": "W"} | {word: word for word in COMPASS}


class Act(NamedTuple):
    """A verb with its argument; "" where it takes none."""

    verb: str
    argument: str = ""

    @property
    def slot(self) -> Slot:
        """The slot of a turn that it takes."""
        return SLOTS[self.verb]


class Acts(NamedTuple):
    """The first lines of a turn, None for an invalid one, and the number of lines beyond them."""

    acts: tuple[Act | None, ...]
    more: int


def read_lines(text: str) -> Acts:
    """Return the actions of the first `MOST_LINES` lines that are not blank."""
    lines = [line for line in text.split("\n", MOST_COUNTED)[:MOST_COUNTED] if line.strip()]
    acts = tuple(read_line(line) if len(line) <= LONGEST_LINE else None
                 for line in lines[:MOST_LINES])  # fmt: skip
    return Acts(acts=acts, more=len(lines[MOST_LINES:]))


@lru_cache(maxsize=4096)
def read_line(line: str) -> Act | None:
    """Return the action of a line; None for an invalid one. Case does not count, but in notes.

    Example:
        >>> read_line(" move north "), read_line("PICK_UP now")
        (Act(verb='MOVE', argument='N'), None)
    """
    word, _, rest = line.strip().partition(" ")
    verb, rest = word.upper(), rest.strip()
    if verb not in SLOTS:
        return None
    if verb == "REMEMBER":
        note = rest[1:-1]
        quoted = len(rest) > 2 and rest[0] == rest[-1] == '"'
        return Act(verb, note) if quoted and is_note(note) else None
    argument = rest.upper()
    if verb == "MOVE":
        return Act(verb, _WORDS[argument]) if argument in _WORDS else None
    if verb in ("SIGNAL", "REINFORCE"):
        return Act(verb, argument) if argument in SCENTS else None
    if verb == "FORGET":
        numbers = [str(number) for number in range(1, MOST_NOTES + 1)]
        return Act(verb, argument) if argument in numbers else None
    return None if argument else Act(verb)
