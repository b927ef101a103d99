"""Drawing programs in both runners: what the interpreter runs, Python runs with the same result."""

from __future__ import annotations

import random

import pytest

from turnwise.envs.drawing.interpreter import ProgramFailure, run_program
from turnwise.envs.drawing.primitives import PRIMITIVES
from turnwise.envs.drawing.python_programs import _grid, as_function, run_python

GRID = ("01200", "00000", "33040", "00500")
PIXEL = "draw_pixel(img, (0, 0), 7)"
NAMES = ["img", "a", "task", "draw_pixel", "create_img", "__debug__", "match", "_", "None", "_set"]
COMMENTS = ["# c", "# \x0c d", "#\x0b d", "# \u2028 x y", "# \x85 oh", "# \x1c x", "#\x00", "#\\"]
COMMENTS += ["# coding: utf-16", "# '''", "# \x1a", "# é", "#\ufeff", "# \ud800"]
CHARACTERS = [*"()[],=:#-_.;'\" \n\r\t\f01aimg", "\u2028", "\xa0", "\uff11", "\uff49", "ª"]
CHARACTERS += ["def", "return", "==", ":=", "**", "img", "\\\n"]


def in_python(text, grid=GRID):
    """The result of a program as the sandbox runs it, but in this process; None if it fails."""
    names = dict(PRIMITIVES)
    try:
        exec(as_function(text)[0], names)
        return _grid(names["task"]([[int(cell) for cell in row] for row in grid]))
    except Exception:
        return None


def in_interpreter(text, grid=GRID):
    try:
        return run_program(text, grid)
    except ProgramFailure:
        return None


def in_sandbox(text, grid=GRID):
    try:
        return run_python(text, [grid])[0]
    except ProgramFailure:
        return None


def test_programs_that_python_refuses_are_refused():
    """Each was run by the interpreter once, or read by the sandbox as another program."""
    after = f"def task(img):\n    {PIXEL}\n    return img\n    "
    for text in (
        f"draw_pixel = {PIXEL}",
        f"def task(img):\n    {PIXEL}\n    draw_pixel = create_img((2, 2), 0)\n    return img",
        f"{after}draw_pixel = create_img((2, 2), 0)",
        "def task(create_img):\n    img = create_img((2, 2), 0)\n    return create_img",
        f"__debug__ = {PIXEL}",
        "def task(__debug__):\n    return __debug__",
        f"{after}draw_pixel(img, (0, 0), color=1, color=2)",
        f"{after}draw_pixel(img, (0, 0), __debug__=1)",
        f"{after}return )",
        f"{after}return img img",
        f"{PIXEL}  # \x00",
        f"{PIXEL}  # \ud800",
    ):
        assert in_python(text) is None, text
        assert in_interpreter(text) is None, text
        assert in_sandbox(text) is None, text


@pytest.mark.parametrize(
    "text",
    [
        "def task (img):\n    draw_pixel(img, (0, 0), 7)\n    return img",
        "def \t task(img):\n    draw_pixel(img, (0, 0), 7)\n    return img",
        "# a\rdef task(img):\r    draw_pixel(img, (0, 0), 7)\r    return img",
        *(f"{PIXEL}  # a{mark}b" for mark in "\x0b\x0c\x1c\x1d\x1e\x85\u2028\u2029"),
        "match = draw_pixel(img, (0, 0), 7)\ndraw_pixel(match, (9, 9), 1)",
    ],
)
def test_programs_that_python_runs_are_run_alike(text):
    drawn = ("71200", *GRID[1:])
    assert in_interpreter(text) == in_python(text) == in_sandbox(text) == drawn


def random_call(rng):
    """A call whose arguments, their order and their names are often right."""
    name = rng.choice(list(PRIMITIVES))
    code = PRIMITIVES[name].__code__
    values = []
    for key in code.co_varnames[: code.co_argcount]:
        pair = rng.choice(["({}, {})", "[{}, {}]", "( {} ,{},)"])
        pair = pair.format(rng.randint(-1, 6), rng.randint(-1, 6))
        number = rng.choice(["0", "3", "4", "8", "-0", "-1", "9"])
        grid = "img" if rng.random() < 0.9 else rng.choice(NAMES)
        given = grid if key == "img" else pair if key[:5] in ("point", "shape") else number
        values.append((key, "8" if key == "connectivity" else given))
    first = rng.choice([len(values), rng.randint(0, len(values))])
    tail = rng.sample(values[first:], len(values) - first)
    words = [value for _, value in values[:first]] + [f"{key}={value}" for key, value in tail]
    if rng.random() < 0.1:
        words.insert(rng.randint(0, len(words)), rng.choice([*words, "color=1", "__debug__=1"]))
    to = rng.choice(["", "", "img = ", f"{rng.choice(NAMES)}= "])
    return f"{to}{name}{rng.choice(['', ' '])}({', '.join(words)}{rng.choice(['', ','])})"


def random_text(rng):
    """A program with odd names, comments, heads and ends; every second one is mutated."""
    lines = [random_call(rng) for _ in range(rng.randint(1, 3))]
    if rng.random() < 0.6:
        given = "img" if rng.random() < 0.9 else rng.choice(NAMES)
        lines.append(f"return {rng.choice([given] * 5 + NAMES)}")
        if rng.random() < 0.3:
            lines.append(rng.choice([random_call(rng), "return )", "return a b", "return img"]))
        indent = rng.choice(["    ", "\t", " \t"])
        head = rng.choice(
            ["def task({}):", "def task ( {} ) :", "def\ttask({}):", "def task({},):"]
        )
        lines = [head.format(given), *(indent + line for line in lines)]
    for _ in range(rng.randint(0, 2)):
        place = rng.randrange(len(lines))
        if rng.random() < 0.5:
            lines[place] += rng.choice(["", " "]) + rng.choice(COMMENTS)
        else:
            lines.insert(place, rng.choice(["", "  ", "\t", *COMMENTS]))
    text = rng.choice(["\n", "\n", "\r\n", "\r"]).join(lines) + rng.choice(["", "\n"])
    for _ in range(rng.choice([0, 0, 1, 2])):
        place = rng.randrange(len(text))
        put = rng.choice([text[place : place + 9], *rng.choices(CHARACTERS, k=4), ""])
        text = text[:place] + put + text[place + rng.randint(0, 1) :]
    return text


def test_what_the_interpreter_runs_is_what_python_runs():
    """Of 20,000 programs; 100 of those that run are run in the sandbox, too."""
    rng, ran = random.Random(0), 0
    for _ in range(20_000):
        text = random_text(rng)
        made = in_interpreter(text)
        if made is None:
            continue
        assert in_python(text) == made, repr(text)
        if ran < 100:
            assert in_sandbox(text) == made, repr(text)
        ran += 1
    assert ran > 1000


@pytest.mark.parametrize(
    ("text", "says"),
    [
        (f"{PIXEL}\nfoo(", "syntax (line 2)"),
        (f"{PIXEL}\nfoo()", "exception (line 2)"),
        (f"{PIXEL}\ndraw_pixel(img, (0, 0), 11)\n{PIXEL}", "exception (line 2)"),
        ("def task(img):\n    draw_pixel(img, 0, 1)\n    return img", "exception (line 2)"),
        ("# a\r\n\r\ndef task(img):\r\n    return img[9]", "exception (line 4)"),
        ("def task(img, more):\n    return img", "exception"),
        ("for row in img:", "syntax (line 1)"),
        ("def task(img):\n    return (img", "syntax (line 2)"),
        ("def task(img):", "syntax (line 1)"),
        ("def task(img):\n    return 7", "result"),
    ],
)
def test_a_failure_in_the_sandbox_tells_the_line_of_the_program(text, says):
    with pytest.raises(ProgramFailure) as caught:
        run_python(text, [GRID])
    assert str(caught.value) == says
