r"""An interpreter of drawing programs: calls of the primitives with literal arguments.

Provides `parse_program`, `run_program`, `pruned` and `beginning`. Programs are model output. They
are read by a tokenizer of one regular expression, line by line, and are never compiled or
evaluated. The language is a part of Python:

    def task(img):
        draw_rectangle(img, point1=(0, 0), point2=(1, 1), color=3)
        img = draw_pixel(img, (2, 2), 5)
        return img

A program may also be the calls alone, on `img`, which is then the result. Arguments are numbers,
pairs of numbers, and names of grids. Each statement is one line. Anything else is a named failure,
also where Python would run it, such as a loop.
"""

from __future__ import annotations

import keyword
import re
from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass, replace
from typing import Any, Literal, TypeAlias

from turnwise import sandbox
from turnwise.envs.drawing.primitives import LARGEST_SIDE, PRIMITIVES
from turnwise.envs.unicode import is_unicode

Grid: TypeAlias = tuple[str, ...]
"""The rows of a grid, each a text of one digit for each cell."""
FailureName: TypeAlias = Literal["syntax", "name", "arguments", "bounds", "result", "length"]
"""Why a program has no result: it is none, or names something unknown, a call has wrong arguments
or a row outside of the grid, what it returns is no grid, or it is too long."""
MOST_CHARACTERS, MOST_LINES = 32_768, 256
"""The bounds of a program."""
MOST_WORK, CALL_WORK = 3_000_000, 100
"""The bound of `pruned`, in visited cells: about a second. A call costs as much as some cells."""
_NAME, _NUMBER, _SIGN = r"[A-Za-z_][A-Za-z_0-9]*", r"-?[0-9]{1,4}(?![0-9A-Za-z_])", r"[()\[\],=:]"
_TOKEN = re.compile(rf"[ \t]*(?:({_NAME})|({_NUMBER})|({_SIGN}))")
END_OF_LINE = re.compile(r"\r\n|\r|\n")
"""The ends of lines in Python."""
_PARAMETERS: dict[str, tuple[str, ...]] = {
    name: function.__code__.co_varnames[: function.__code__.co_argcount]
    for name, function in PRIMITIVES.items()
}
_OPTIONAL = {"create_img": {"color"}}
Value: TypeAlias = "int | tuple[int, int] | str"
"""A number, a pair of numbers, or the name of a grid."""


class ProgramFailure(Exception):
    """A program cannot be read or run.

    Attributes:
        failure: why, as the interpreter or the sandbox names it.
        line: the number of its line, from 1; 0 is for the program as a whole.
    """

    def __init__(self, failure: FailureName | sandbox.FailureName, line: int = 0) -> None:
        super().__init__(f"{failure} (line {line})" if line else failure)
        self.failure: FailureName | sandbox.FailureName = failure
        self.line = line


@dataclass(frozen=True, slots=True)
class Statement:
    """One call: `to = function(arguments)`; `to` is empty where the result has no name."""

    line: int
    text: str
    to: str
    function: str
    arguments: tuple[tuple[str, Value], ...]


@dataclass(frozen=True, slots=True)
class DrawingProgram:
    """A program that was read: its head and statements, and the name of the grid that it returns.

    `head` is empty where the program is its calls alone.
    """

    head: str
    given: str
    statements: tuple[Statement, ...]
    returned: str

    @property
    def text(self) -> str:
        """The program as text, without comments and blank lines."""
        body = [statement.text for statement in self.statements]
        if not self.head:
            return "\n".join(body)
        body = [f"    {line}" for line in (*body, f"return {self.returned}")]
        return "\n".join([self.head, *body])


def run_program(text: str, grid: Sequence[str]) -> Grid:
    """Return the grid that a program makes of `grid`.

    Raises:
        ProgramFailure: if the program cannot be read or run.

    Example:
        >>> run_program("draw_pixel(img, point=(0, 1), color=7)", ("000", "000"))
        ('070', '000')
    """
    return execute(parse_program(text), grid)


def execute(program: DrawingProgram, grid: Sequence[str]) -> Grid:
    """Return the grid that a program makes of `grid`.

    Raises:
        ProgramFailure: if a call fails, or the result is no grid.
    """
    names: dict[str, list[list[int]]] = {program.given: [[int(c) for c in row] for row in grid]}
    for statement in program.statements:
        arguments = _filled(statement, names)
        try:
            made = PRIMITIVES[statement.function](**arguments)
        except IndexError:
            raise ProgramFailure("bounds", statement.line) from None
        except (TypeError, ValueError):
            raise ProgramFailure("arguments", statement.line) from None
        if statement.to:
            names[statement.to] = made
    if program.returned not in names:
        raise ProgramFailure("name")
    return tuple("".join(map(str, row)) for row in names[program.returned])


def pruned(program: DrawingProgram, grids: Sequence[Sequence[str]]) -> DrawingProgram:
    """Return a program without the statements that change nothing of its results.

    They are tried from the last to the first, each without those that were dropped before. Of long
    programs the last statements are tried, within `MOST_WORK`, and the first ones stay.

    Raises:
        ProgramFailure: if the program has no result.
    """
    results, kept = [execute(program, grid) for grid in grids], program.statements
    left = MOST_WORK
    for statement in reversed(program.statements):
        left -= _work(kept, grids)
        if left < 0:
            break
        fewer = tuple(each for each in kept if each is not statement)
        try:
            same = [execute(replace(program, statements=fewer), grid) for grid in grids] == results
        except ProgramFailure:
            same = False
        kept = fewer if same else kept
    return replace(program, statements=kept)


def beginning(text: str, grids: Sequence[Sequence[str]]) -> DrawingProgram | None:
    r"""Return the part of a program before the first line that cannot be read or run.

    It returns the grid that the program is given, where the program returns no other that it made.
    None if no statement can be read and run on all grids, or the program is too long.

    Example:
        >>> beginning("draw_pixel(img, (0, 1), 7)\ndraw_pixel(img, (0,", [("000",)]).text
        'draw_pixel(img, (0, 1), 7)'
    """
    lines = END_OF_LINE.split(text)
    while lines:
        try:
            program = parse_program("\n".join(lines), unfinished=True)
            if program.returned not in {program.given, *(each.to for each in program.statements)}:
                program = replace(program, returned=program.given)
            for grid in grids:
                execute(program, grid)
            parse_program(program.text)  # which may be too long, indented and with its return
        except ProgramFailure as failure:
            lines = lines[: max(0, failure.line - 1)]
        else:
            return program if program.statements else None
    return None


def _work(statements: Sequence[Statement], grids: Sequence[Sequence[str]]) -> int:
    """Return the most cells that a program visits on all grids; a call counts as `CALL_WORK`."""
    functions = [each.function for each in statements]
    cells = sum(LARGEST_SIDE**2 if "create_img" in functions else len(g) * len(g[0]) for g in grids)
    return cells * (1 + functions.count("flood_fill")) + CALL_WORK * len(functions) * len(grids)


def parse_program(text: str, unfinished: bool = False) -> DrawingProgram:
    """Read a program.

    Args:
        text: the program.
        unfinished: whether a function may lack its `return`; it then returns what it is given.

    Raises:
        ProgramFailure: if it is none.
    """
    lines = END_OF_LINE.split(text) if len(text) <= MOST_CHARACTERS else []
    if not lines or len(lines) > MOST_LINES:
        raise ProgramFailure("length")
    numbered = list(enumerate(lines, start=1))
    for number, line in numbered:
        if "\0" in line or not is_unicode(line):  # Python refuses them in comments too
            raise ProgramFailure("syntax", number)
    written = [(n, line.partition("#")[0].rstrip(" \t")) for n, line in numbered]
    written = [(n, line) for n, line in written if line]
    if not written:
        raise ProgramFailure("syntax")
    number, first = written[0]
    tokens = _tokens(first, number)
    if tokens[0] != "def":
        _check_indent(written, "")
        return DrawingProgram("", "img", tuple(_statement(line, n) for n, line in written), "img")
    if len(tokens) != 6 or tokens[1:3] != ["task", "("] or tokens[4:] != [")", ":"]:
        raise ProgramFailure("syntax", number)
    given, body = _new_name(tokens[3], number), written[1:]
    if _indent(first) or not body:
        raise ProgramFailure("syntax", number)
    indent = _indent(body[0][1])
    if not indent:
        raise ProgramFailure("syntax", body[0][0])
    _check_indent(body, indent)
    statements, returned = _body(body)
    if not returned and not unfinished:
        raise ProgramFailure("result")
    return DrawingProgram(f"def task({given}):", given, tuple(statements), returned or given)


def _body(lines: Sequence[tuple[int, str]]) -> tuple[list[Statement], str]:
    """Return the statements before the first `return`, and the name that it returns, if any.

    Lines after it are read, and not run.
    """
    statements: list[Statement] = []
    returns: list[tuple[int, str]] = []
    for number, line in lines:
        tokens = _tokens(line, number)
        if tokens[0] != "return":
            statements.append(_statement(line, number))
        elif len(tokens) == 2:
            returns.append((len(statements), _name(tokens[1], number)))
        else:
            raise ProgramFailure("result", number)
    count, returned = returns[0] if returns else (len(statements), "")
    return statements[:count], returned


def _indent(line: str) -> str:
    return line[: len(line) - len(line.lstrip(" \t"))]


def _check_indent(lines: Sequence[tuple[int, str]], indent: str) -> None:
    for number, line in lines:
        if _indent(line) != indent:
            raise ProgramFailure("syntax", number)


def _statement(line: str, number: int) -> Statement:
    """Read one line: a call, or a name and a call."""
    tokens, to = _tokens(line, number), ""
    if len(tokens) > 1 and tokens[1] == "=":
        to, tokens = _new_name(tokens[0], number), tokens[2:]
    if len(tokens) < 3 or tokens[1] != "(" or tokens[-1] != ")":
        raise ProgramFailure("syntax", number)
    function = _name(tokens[0], number)
    if function not in PRIMITIVES:
        raise ProgramFailure("name", number)
    arguments = tuple(_arguments(tokens[2:-1], _PARAMETERS[function], number))
    text = line.strip(" \t")
    return Statement(line=number, text=text, to=to, function=function, arguments=arguments)


def _arguments(
    tokens: Sequence[Any], parameters: Sequence[str], number: int
) -> Iterator[tuple[str, Value]]:
    """Read the arguments of a call; yield the name and the value of each."""
    place, count, named = 0, 0, set[str]()
    while place < len(tokens):
        if place + 1 < len(tokens) and tokens[place + 1] == "=":
            name, place = _name(tokens[place], number), place + 2
            if name in named:
                raise ProgramFailure("syntax", number)
            named.add(name)
        elif named or count >= len(parameters):
            raise ProgramFailure("syntax" if named else "arguments", number)
        else:
            name = parameters[count]
        value, place = _value(tokens, place, number)
        yield name, value
        count += 1
        if place < len(tokens):
            if tokens[place] != ",":
                raise ProgramFailure("syntax", number)
            place += 1


def _value(tokens: Sequence[Any], place: int, number: int) -> tuple[Value, int]:
    """Read a number, a pair of numbers or a name; return it, and the place after it."""
    token = tokens[place] if place < len(tokens) else None
    if isinstance(token, int):
        return token, place + 1
    closing = {"(": ")", "[": "]"}.get(token or "")
    if closing is None:
        return _name(token, number), place + 1
    inner = list(tokens[place + 1 : place + 6])
    ends = 3 if inner[3:4] == [closing] else 4 if inner[3:5] == [",", closing] else 0
    if not ends or inner[1] != "," or not all(isinstance(inner[n], int) for n in (0, 2)):
        raise ProgramFailure("syntax", number)
    return (inner[0], inner[2]), place + ends + 2


def _filled(statement: Statement, names: Mapping[str, list[list[int]]]) -> dict[str, Any]:
    """Return the arguments of a call by name, grids in place of their names."""
    parameters, found = _PARAMETERS[statement.function], dict[str, Any]()
    for name, value in statement.arguments:
        if name in found or name not in parameters:
            raise ProgramFailure("arguments", statement.line)
        if isinstance(value, str) != (name == "img"):
            raise ProgramFailure("arguments", statement.line)
        if isinstance(value, str) and value not in names:
            raise ProgramFailure("name", statement.line)
        found[name] = names[value] if isinstance(value, str) else value
    if set(parameters) - set(found) - _OPTIONAL.get(statement.function, set()):
        raise ProgramFailure("arguments", statement.line)
    return found


def _tokens(line: str, number: int) -> list[Any]:
    """Return the names, numbers and signs of a line; the list is not empty."""
    found: list[Any] = []
    place = 0
    while place < len(line):
        match = _TOKEN.match(line, place)
        if match is None:
            raise ProgramFailure("syntax", number)
        name, digits, sign = match.groups()
        if digits is not None and digits.lstrip("-") != str(abs(int(digits))):
            raise ProgramFailure("syntax", number)  # 01 is no number in Python
        found.append(int(digits) if digits is not None else name or sign)
        place = match.end()
    return found


def _name(token: Any, number: int) -> str:
    if not isinstance(token, str) or not token.isidentifier() or keyword.iskeyword(token):
        raise ProgramFailure("syntax", number)
    if token == "__debug__":  # a constant of Python
        raise ProgramFailure("syntax", number)
    return token


def _new_name(token: Any, number: int) -> str:
    """Read a name that a program gives to a grid; a primitive's would hide it in all of `task`."""
    name = _name(token, number)
    if name in PRIMITIVES:
        raise ProgramFailure("name", number)
    return name
