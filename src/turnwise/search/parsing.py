"""Parameters read from a model's reply, which is hostile input.

Provides `read_params`. A reply is cut at `MOST_CHARACTERS` and read once from left to right, so the
work is linear in its length. Nothing of it is evaluated. Numbers have a sign, digits and a point,
without exponents, and at most `MOST_DIGITS` digits.
"""

from __future__ import annotations

from dataclasses import dataclass

from turnwise.search.space import Params, ParamSpace

MOST_CHARACTERS = 65_536
MOST_DIGITS = 12
_DIGITS = frozenset("0123456789")
_JOINED = frozenset("/%^_")
_MINUS = frozenset("-\N{MINUS SIGN}\N{EN DASH}")
_NAME = "params["


class UnreadableError(ValueError):
    """A reply holds no parameters; the message is turnwise's own and quotes nothing of it."""


@dataclass(frozen=True, slots=True)
class _Number:
    """A number that was read: its digits without the point, how many were decimals, its end."""

    digits: int
    decimals: int
    end: int


def read_params(reply: str, space: ParamSpace) -> Params:
    r"""Return the parameters that a reply ends with.

    They are a complete run `params[0]: 1.2, params[1]: -0.3, ...` in order, the last one if there
    are several; or else the last line that has as many bare numbers as there are parameters.
    Numbers are rounded to the space's decimals, halves away from 0.

    Args:
        reply: what the model said.
        space: the parameters that were asked for.

    Raises:
        UnreadableError: if there are none, or a value is outside of its limits.

    Example:
        >>> space = ParamSpace(count=2, low=-60, high=60, decimals=1)
        >>> read_params("I go left.\nparams[0]: 1.25, params[1]: -3", space)
        (13, -30)
        >>> read_params("params[0]: 7, params[1]: 0", space)
        Traceback (most recent call last):
            ...
        turnwise.search.parsing.UnreadableError: params[0] is not from -6.0 to 6.0 with one decimal
    """
    text = reply[:MOST_CHARACTERS]
    found, most = _named_run(text, space.count)
    if found is None:
        found = _bare_line(text, space.count)
    if found is None:
        if most:
            raise UnreadableError(
                f"it gave {most} parameters in order, and {space.count} are needed, from "
                f"params[0] to params[{space.count - 1}]"
            )
        raise UnreadableError("it had no line of parameters in the form that was asked for")
    params = tuple(_steps(number, space) for number in found)
    for index, value in enumerate(params):
        if not space.low <= value <= space.high:
            raise UnreadableError(f"params[{index}] is not {space.described()}")
    return params


def _steps(number: _Number, space: ParamSpace) -> int:
    """Return a number in steps; a fraction of a choice is outside of all limits."""
    excess = number.decimals - space.decimals
    if excess <= 0:
        return number.digits * 10**-excess
    unit = 10**excess
    whole, rest = divmod(abs(number.digits), unit)
    if space.choices and rest:
        return space.high + 1
    whole += 2 * rest >= unit
    return whole if number.digits >= 0 else -whole


def _named_run(text: str, count: int) -> tuple[list[_Number] | None, int]:
    """Return the last complete run of named parameters, and the length of the longest one."""
    complete: list[_Number] | None = None
    run: list[_Number] = []
    place = most = 0
    while (place := text.find(_NAME, place)) >= 0:
        place += len(_NAME)
        index, after = _index(text, place)
        number = None if index is None else _assigned(text, after)
        if number is None or index is None:
            run = []
            continue
        place = number.end
        if index != len(run):
            run = []
        if index == len(run):
            run.append(number)
        most = max(most, len(run))
        if len(run) == count:
            complete, run = run, []
    return complete, most


def _index(text: str, place: int) -> tuple[int | None, int]:
    """Return the index at `place` and what follows its bracket; None if there is none."""
    end = place
    while end < len(text) and text[end] in _DIGITS and end - place < MOST_DIGITS:
        end += 1
    if end == place or end >= len(text) or text[end] != "]":
        return None, place
    return int(text[place:end]), end + 1


def _assigned(text: str, place: int) -> _Number | None:
    """Return the number after `:` or `=`; None if there is none."""
    place = _after_blanks(text, place)
    if place >= len(text) or text[place] not in ":=":
        return None
    return _number(text, _after_blanks(text, place + 1))


def _after_blanks(text: str, place: int) -> int:
    while place < len(text) and text[place] in " \t*`":
        place += 1
    return place


def _number(text: str, place: int) -> _Number | None:
    """Return the number at `place`; None if there is none, or it is too long or goes on."""
    negative = False
    if place < len(text) and (text[place] in _MINUS or text[place] == "+"):
        negative = text[place] in _MINUS
        place += 1
    digits, decimals, point, end = "", 0, False, place
    while end < len(text):
        if text[end] in _DIGITS:
            digits += text[end]
            decimals += point
        elif text[end] == "." and not point and text[end + 1 : end + 2] in _DIGITS:
            point = True
        else:
            break
        end += 1
        if len(digits) > MOST_DIGITS:
            return None
    if not digits or _goes_on(text, end):
        return None
    return _Number(-int(digits) if negative else int(digits), decimals, end)


def _goes_on(text: str, end: int) -> bool:
    """Whether a number is a part of something else, such as `1e3`, `1/3`, `1,5` or `1.2.3`."""
    after = text[end : end + 1]
    return (
        after.isalnum()
        or after in _JOINED
        or (after in ",." and text[end + 1 : end + 2] in _DIGITS)
    )


def _bare_line(text: str, count: int) -> list[_Number] | None:
    """Return the numbers of the last line that holds exactly `count` and nothing else."""
    for line in reversed(text.splitlines()):
        numbers = _bare_numbers(line, count)
        if numbers is not None:
            return numbers
    return None


def _bare_numbers(line: str, count: int) -> list[_Number] | None:
    """Return the numbers of a list such as `[1.2, -0.3]`; None if the line is anything else."""
    parts = line.strip(" \t*`").removeprefix("params").strip(" \t:=").strip("[]()")
    parts = parts.replace(",", " ").replace(";", " ")
    words = parts.split(maxsplit=count)
    if len(words) != count:
        return None
    found = [_number(word, 0) for word in words]
    numbers = [n for n, w in zip(found, words, strict=True) if n is not None and n.end == len(w)]
    return numbers if len(numbers) == count else None
