"""The functions that a tool role may call: `legal`, `apply`, and the queries of a puzzle.

Provides `Rules`, what the rules of a puzzle must offer, `answer`, which answers one call, and
`run_moves`. Functions answer questions about one position; none searches or returns a plan. The
source of this module and that of a puzzle's rules also run in the sandbox, so both import the
standard library alone.
"""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from typing import Any, Protocol

LEGAL, APPLY, WAIT = "legal", "apply", "wait"
MOST_READ, MOST_SHOWN = 1024, 240
"""The most characters of an action that is read, and of a result that is shown."""


class CallError(ValueError):
    """A call that cannot be answered: an unknown function, or wrong arguments."""


class Rules(Protocol):
    """The rules of a puzzle, as a module.

    A position is a NamedTuple of plain values, called `Position`. A move is one or more words.

    Attributes:
        Position: the class of positions.
        QUERIES: function name -> function of a position and words, which returns a line of text
            and raises `ValueError` for wrong words.
        moves: the moves that can be written in a position, legal or not; equal in all positions
            that a task can reach.
        move_length: the number of words of a move with the given first word.
        apply: the position after a move; None where the rules forbid it, and for other texts.
        solved: whether a position is solved.
        report: a position in one short line.
    """

    @property
    def Position(self) -> Callable[..., Any]: ...  # noqa: D102
    @property
    def QUERIES(self) -> Mapping[str, Callable[[Any, list[str]], str]]: ...  # noqa: D102
    @property
    def moves(self) -> Callable[[Any], Sequence[str]]: ...  # noqa: D102
    @property
    def move_length(self) -> Callable[[str], int]: ...  # noqa: D102
    @property
    def apply(self) -> Callable[[Any, str], Any]: ...  # noqa: D102
    @property
    def solved(self) -> Callable[[Any], bool]: ...  # noqa: D102
    @property
    def report(self) -> Callable[[Any], str]: ...  # noqa: D102


def split_moves(rules: Rules, position: Any, words: Sequence[str], most: int) -> list[str]:
    """Return the moves that words are.

    Raises:
        CallError: if there is none, if there are more than `most`, or if one is no move.
    """
    found: list[str] = []
    place = 0
    known = rules.moves(position)
    while place < len(words):
        length = rules.move_length(words[place])
        move = " ".join(words[place : place + length])
        if move not in known:
            raise CallError(f"{move[:40]!r} is no move")
        found.append(move)
        place += length
    if not 1 <= len(found) <= most:
        raise CallError(f"{len(found)} moves: give 1 to {most}")
    return found


def run_moves(rules: Rules, position: Any, moves: Sequence[str]) -> tuple[Any, int]:
    """Return the position after moves, and how many were made.

    A forbidden move is not made, and ends the list; so does a solved position.
    """
    for count, move in enumerate(moves):
        after = rules.apply(position, move)
        if after is None:
            return position, count
        position = after
        if rules.solved(position):
            return position, count + 1
    return position, len(moves)


def answer(rules: Rules, position: Any, words: Sequence[str], most: int) -> str:
    """Return the result of a call, `FUNCTION ARGUMENT ...`, of at most `most` moves.

    Raises:
        CallError: if the call cannot be answered.
    """
    name, arguments = (words[0], list(words[1:])) if words else ("", [])
    if name == APPLY:
        end, count = run_moves(rules, position, split_moves(rules, position, arguments, most))
        result = f"ran {count} {rules.report(end)}"
    elif name == LEGAL:
        if arguments:
            raise CallError(f"{LEGAL} takes no arguments")
        found = [m for m in rules.moves(position) if rules.apply(position, m) is not None]
        result = " ".join(found) or "none"
    elif name in rules.QUERIES:
        try:
            result = rules.QUERIES[name](position, arguments)
        except ValueError as error:
            raise CallError(f"{name}: {error}") from None
    else:
        raise CallError(f"no function {name[:40]!r}")
    return shortened(result)


def shortened(text: str) -> str:
    """Return at most `MOST_SHOWN` characters of a text, cut at a blank."""
    if len(text) <= MOST_SHOWN:
        return text
    return text[:MOST_SHOWN].rpartition(" ")[0] or text[:MOST_SHOWN]
