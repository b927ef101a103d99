"""Drawing programs: the primitives, the interpreter beside Python, hostile programs."""

from __future__ import annotations

import inspect
import time

import numpy as np
import pytest

from turnwise import sandbox
from turnwise.envs.drawing import primitives
from turnwise.envs.drawing.interpreter import (
    MOST_CHARACTERS,
    MOST_LINES,
    ProgramFailure,
    beginning,
    parse_program,
    pruned,
    run_program,
)
from turnwise.envs.drawing.primitives import PRIMITIVES

EMPTY = ("00000",) * 4


def drawn(text, grid=EMPTY):
    return run_program(text, grid)


def failure(text, grid=EMPTY):
    with pytest.raises(ProgramFailure) as caught:
        run_program(text, grid)
    return caught.value.failure, caught.value.line


def in_python(text, grid=EMPTY):
    """The result of a program as Python runs it, with the same primitives; None if it raises."""
    if not text.lstrip().startswith("def"):
        body = "\n".join(f"    {line}" for line in text.splitlines())
        text = f"def task(img):\n{body}\n    return img"
    names = dict(PRIMITIVES)
    try:
        exec(text, names)
        made = names["task"]([[int(c) for c in row] for row in grid])
        return tuple("".join(map(str, row)) for row in made)
    except Exception:
        return None


@pytest.mark.parametrize(
    ("call", "rows"),
    [
        ("draw_pixel(img, point=(1, 2), color=7)", "00000 00700 00000 00000"),
        ("draw_pixel(img, (9, 2), 7)", "00000 00000 00000 00000"),
        ("draw_pixel(img, (-1, 2), 7)", "00000 00000 00000 00000"),
        ("draw_horizontal_line(img, y=1, color=3)", "00000 33333 00000 00000"),
        ("draw_horizontal_line(img, -1, 3)", "00000 00000 00000 33333"),
        ("draw_vertical_line(img, x=4, color=3)", "00003 00003 00003 00003"),
        ("draw_rectangle(img, (0, 0), (1, 1), 5)", "55000 55000 00000 00000"),
        ("draw_rectangle(img, (1, 1), (0, 0), 5)", "55000 55000 00000 00000"),
        ("draw_rectangle(img, (2, 3), (9, 9), 5)", "00000 00000 00055 00055"),
        ("draw_rectangle(img, (-5, -5), (0, 0), 5)", "50000 00000 00000 00000"),
        ("draw_rectangle(img, (-5, -5), (-1, -1), 5)", "00000 00000 00000 00000"),
        ("draw_rectangle(img, (0, -9), (3, -4), 5)", "00000 00000 00000 00000"),
        ("draw_rectangle(img, (0, 7), (3, 9), 5)", "00000 00000 00000 00000"),
        ("draw_line(img, (0, 0), (3, 3), 2)", "20000 02000 00200 00020"),
        ("draw_line(img, (3, 0), (0, 3), 2)", "00020 00200 02000 20000"),
        ("draw_line(img, (0, 0), (1, 4), 2)", "22000 00222 00000 00000"),
        ("draw_line(img, (1, 1), (1, 1), 2)", "00000 02000 00000 00000"),
        ("draw_line(img, (2, 3), (2, 90), 2)", "00000 00000 00022 00000"),
        ("img = create_img((1, 2), 8)", "88"),
        ("img = create_img([2, 1])", "0 0"),
        ("create_img((2, 1), 3)", "00000 00000 00000 00000"),
        ("flood_fill(img, (0, 0), 4, 4)", "44444 44444 44444 44444"),
    ],
)  # fmt: skip
def test_what_a_call_draws(call, rows):
    expected = tuple(rows.split())
    assert drawn(call) == expected
    assert drawn(f"def task(img):\n    {call}\n    return img") == expected
    assert in_python(call) == expected


def test_a_line_is_that_of_a_rasteriser_of_its_own():
    """Each step along the longer side rounds the shorter one half up, away from the start."""
    rng = np.random.default_rng(0)
    for _ in range(500):
        (r0, c0), (r1, c1) = rng.integers(-4, 12, (2, 2)).tolist()
        cells = set()
        long = max(abs(r1 - r0), abs(c1 - c0))
        for step in range(long + 1):
            cell = []
            for begin, end in ((r0, r1), (c0, c1)):
                size = (2 * step * abs(end - begin) + long) // (2 * long) if long else 0
                cell.append(begin + size * (1 if end > begin else -1))
            cells.add(tuple(cell))
        found = drawn(f"draw_line(img, ({r0}, {c0}), ({r1}, {c1}), 1)", ("0" * 9,) * 8)
        inside = {(r, c) for r in range(8) for c in range(9) if found[r][c] == "1"}
        assert inside == {(r, c) for r, c in cells if 0 <= r < 8 and 0 <= c < 9}


@pytest.mark.parametrize(("connectivity", "rows"), [(4, "2110 1011 0110"), (8, "2112 1211 2110")])
def test_a_fill_goes_over_four_or_eight_neighbours(connectivity, rows):
    """The cell (1, 1) touches the corner by its corner alone."""
    grid = ("0110", "1011", "0110")
    call = f"flood_fill(img, point=(0, 0), color=2, connectivity={connectivity})"
    found = drawn(call, grid)
    assert found == in_python(call, grid)
    if connectivity == 4:
        assert found == tuple(rows.split())
    else:
        assert found == ("2110", "1211", "2110")


def test_a_fill_is_that_of_neighbours_one_by_one():
    rng = np.random.default_rng(0)
    for _ in range(300):
        grid = ["".join(map(str, row)) for row in rng.integers(0, 2, (7, 6))]
        row, column, wide = (int(rng.integers(n)) for n in (7, 6, 2))
        filled, found = {(row, column)}, [(row, column)]
        while found:
            r, c = found.pop()
            for near in (
                (r + a, c + b) for a in (-1, 0, 1) for b in (-1, 0, 1) if wide or a * b == 0
            ):
                inside = 0 <= near[0] < 7 and 0 <= near[1] < 6
                if inside and near not in filled and grid[near[0]][near[1]] == grid[row][column]:
                    filled.add(near)
                    found.append(near)
        made = drawn(f"flood_fill(img, ({row - 7}, {column}), 5, {8 if wide else 4})", grid)
        assert {(r, c) for r in range(7) for c in range(6) if made[r][c] == "5"} == filled
        assert all(made[r][c] in ("5", grid[r][c]) for r in range(7) for c in range(6))


@pytest.mark.parametrize(
    ("text", "expected"),
    [
        ("", ("syntax", 0)),
        ("# nothing", ("syntax", 0)),
        ("hello", ("syntax", 1)),
        ("draw_circle(img, (0, 0), 1)", ("name", 1)),
        ("draw_pixel(grid, (0, 0), 1)", ("name", 1)),
        ("draw_pixel(img, (0, 0))", ("arguments", 1)),
        ("draw_pixel(img, (0, 0), 10)", ("arguments", 1)),
        ("draw_pixel(img, (0, 0), -1)", ("arguments", 1)),
        ("draw_pixel(img, (0, 0), 1, 2)", ("arguments", 1)),
        ("draw_pixel(img, (0, 0), 1, color=2)", ("arguments", 1)),
        ("draw_pixel(img, (0, 0), shade=2)", ("arguments", 1)),
        ("draw_pixel(img, color=2, (0, 0))", ("syntax", 1)),
        ("draw_pixel(img, 0, 1)", ("arguments", 1)),
        ("draw_pixel(1, (0, 0), 1)", ("arguments", 1)),
        ("draw_pixel(img, (0, 0, 0), 1)", ("syntax", 1)),
        ("draw_pixel(img, ((0, 0)), 1)", ("syntax", 1)),
        ("draw_pixel(img, (0, 01), 1)", ("syntax", 1)),
        ("draw_pixel(img, (0, 1.5), 1)", ("syntax", 1)),
        ("draw_pixel(img, (0, 101), 1)", ("arguments", 1)),
        ("draw_pixel(img, (0, 99999999), 1)", ("syntax", 1)),
        ("draw_pixel(img, (0, 0), None)", ("syntax", 1)),
        ("for = draw_pixel(img, (0, 0), 1)", ("syntax", 1)),
        ("draw_horizontal_line(img, 4, 1)", ("bounds", 1)),
        ("draw_vertical_line(img, -6, 1)", ("bounds", 1)),
        ("flood_fill(img, (4, 0), 1, 4)", ("bounds", 1)),
        ("flood_fill(img, (0, 0), 1, 6)", ("arguments", 1)),
        ("img = create_img((0, 3))", ("arguments", 1)),
        ("img = create_img((31, 3))", ("arguments", 1)),
        (" draw_pixel(img, (0, 0), 1)", ("syntax", 1)),
        ("return img", ("syntax", 1)),
        ("def task(img):", ("syntax", 1)),
        ("def task(img):\nreturn img", ("syntax", 2)),
        ("def paint(img):\n    return img", ("syntax", 1)),
        ("def task(img, more):\n    return img", ("syntax", 1)),
        ("def task(img):\n    draw_pixel(img, (0, 0), 1)", ("result", 0)),
        ("def task(img):\n    return", ("result", 2)),
        ("def task(img):\n    return other", ("name", 0)),
        ("def task(img):\n    return img\n    oh no", ("syntax", 3)),
        ("def task(img):\n    return img\nprint(1)", ("syntax", 3)),
        ("def task(img):\n    draw_pixel(img, (0, 0), 1)\n      return img", ("syntax", 3)),
        ("import os", ("syntax", 1)),
        ("__import__('os')", ("syntax", 1)),
        ("draw_pixel(img, (0, 0), 1); draw_pixel(img, (0, 0), 1)", ("syntax", 1)),
        ("draw_pixel(img, (0, 0),\n 1)", ("syntax", 2)),
        ("draw_pixel(img, (0, 0), 1)\x00", ("syntax", 1)),
        ("draw_pixel(img, (0, 0), 1)\u2028", ("syntax", 1)),
        ("(" * 20_000, ("syntax", 1)),
        ("-" * 20_000, ("syntax", 1)),
        ("draw_pixel(img, (0, 0), 1)\n" * MOST_LINES, ("length", 0)),
        ("#" * (MOST_CHARACTERS + 1), ("length", 0)),
    ],
)  # fmt: skip
def test_what_is_no_program_is_a_named_failure(text, expected):
    found = failure(text)
    assert found == expected
    if found[0] != "length" and "(((" not in text:
        # Python refuses it too, unless the language here is smaller than Python's
        smaller = ("import", "__import__", ";", ",\n", "((0", "\u2028", "return img\nprint", "#")
        assert in_python(text) in (None, EMPTY) or any(part in text for part in smaller)


@pytest.mark.parametrize(
    "text",
    [
        "def task(img):\n    img = create_img((2, 2), 3)\n    return img",
        "def task(x):\n\ty = create_img(shape=(2, 2,), color=3)\n\treturn y",
        "def task(img):\n a = draw_pixel(img, (0, 0), 1)\n draw_pixel(a, (0, 1), 2)\n return img",
        "def task(img):  # a\n\n    draw_pixel(img, (0, 0), 1,)  # b\n\n    return img\n",
        "draw_pixel(color=1, point=[0, 0], img=img)\r\ndraw_pixel(img,(1,1),2)",
        "a = create_img((2, 3))\ndraw_pixel(a, (0, 0), 4)\ndraw_pixel(img, (0, 0), 5)",
    ],
)
def test_programs_are_those_of_python(text):
    assert drawn(text) == in_python(text) is not None


def random_program(rng):
    """A program of calls whose arguments are often, but not always, sensible."""

    def number():
        return int(rng.integers(-2, 7))

    def point():
        return f"({number()}, {number()})"

    calls = {
        "draw_line": lambda: [point(), point()],
        "draw_rectangle": lambda: [point(), point()],
        "draw_horizontal_line": lambda: [str(number())],
        "draw_vertical_line": lambda: [str(number())],
        "draw_pixel": lambda: [point()],
        "flood_fill": lambda: [point()],
    }
    lines = []
    for _ in range(rng.integers(1, 7)):
        name = list(calls)[rng.integers(len(calls))]
        values = ["img", *calls[name](), str(rng.integers(0, 10))]
        values += [str(4 * rng.integers(1, 3))] if name == "flood_fill" else []
        names = PRIMITIVES[name].__code__.co_varnames
        first = int(rng.integers(1, len(values) + 1))
        shown = [v if n < first else f"{names[n]}={v}" for n, v in enumerate(values)]
        lines.append(f"{'img = ' * int(rng.integers(2))}{name}({', '.join(shown)})")
    return "\n".join(lines)


def test_ten_thousand_programs_are_those_of_python():
    rng, failed = np.random.default_rng(0), 0
    for _ in range(10_000):
        text = random_program(rng)
        expected = in_python(text)
        try:
            found = drawn(text)
        except ProgramFailure:
            found, failed = None, failed + 1
        assert found == expected, text
    assert 100 < failed < 5000


def test_ten_thousand_programs_are_those_of_the_sandbox():
    """A hundred programs are one job: each is a function, and None stands for what it raises."""
    rng, each_job = np.random.default_rng(1), 100
    grid = [[0] * 5 for _ in range(4)]
    source = inspect.getsource(primitives)
    for _ in range(10_000 // each_job):
        texts = [random_program(rng) for _ in range(each_job)]
        functions = []
        for number, text in enumerate(texts):
            body = "\n".join(f"    {line}" for line in text.splitlines())
            functions.append(f"def task_{number}(img):\n{body}\n    return img")
        run_all = (
            "def run_all(grid, count):\n"
            "    found = []\n"
            "    for number in range(count):\n"
            "        try:\n"
            "            img = [row[:] for row in grid]\n"
            "            found.append(globals()[f'task_{number}'](img))\n"
            "        except Exception:\n"
            "            found.append(None)\n"
            "    return found"
        )
        program = "\n\n".join([source, *functions, run_all])
        result = sandbox.run(program, [grid, each_job], call="run_all")
        assert result.ok, result
        for text, made in zip(texts, result.value, strict=True):
            try:
                found = [[int(cell) for cell in row] for row in drawn(text)]
            except ProgramFailure:
                found = None
            assert found == made, text


def test_statements_without_effect_are_dropped_one_after_the_other():
    """Of two equal calls one stays, which dropping each by itself would not leave."""
    text = (
        "def task(img):\n"
        "    draw_pixel(img, (0, 0), 1)\n"
        "    draw_pixel(img, (3, 3), 2)  # painted over\n"
        "    draw_horizontal_line(img, 3, 5)\n"
        "    draw_horizontal_line(img, 3, 5)\n"
        "    draw_pixel(img, (9, 9), 1)\n"
        "    return img"
    )
    found = pruned(parse_program(text), [EMPTY])
    assert found.text == (
        "def task(img):\n"
        "    draw_pixel(img, (0, 0), 1)\n"
        "    draw_horizontal_line(img, 3, 5)\n"
        "    return img"
    )
    assert drawn(found.text) == drawn(text)
    assert pruned(found, [EMPTY]) == found
    needed = "a = create_img((1, 1))\ndraw_pixel(a, (0, 0), 4)\ndraw_pixel(img, (0, 0), 5)"
    assert pruned(parse_program(needed), [EMPTY]).text == "draw_pixel(img, (0, 0), 5)"


def test_a_statement_that_changes_one_of_several_results_stays():
    text = "draw_pixel(img, (0, 0), 0)\ndraw_pixel(img, (1, 1), 3)"
    grids = [EMPTY, ("50000",) * 4]
    assert pruned(parse_program(text), grids).text == text
    assert pruned(parse_program(text), grids[:1]).text == "draw_pixel(img, (1, 1), 3)"


def test_pruning_a_long_program_has_a_bound_and_keeps_what_it_draws():
    """Each call decides nothing; in a long program of fills only the last ones are tried."""
    grid = ("0" * 30,) * 30
    for count in (8, MOST_LINES):
        calls = [f"flood_fill(img, (0, 0), {n % 9 + 1}, 8)" for n in range(count)]
        before = time.process_time()
        found = pruned(parse_program("\n".join(calls)), [grid] * 4)
        assert time.process_time() - before < 20
        assert (len(found.statements) == 1) == (count == 8)
        assert len(found.statements) < count
        assert drawn(found.text, grid) == drawn("\n".join(calls), grid)


@pytest.mark.parametrize(
    ("wrong", "kept"),
    [
        ("draw_pixel(img, (0,", 2),
        ("draw_pixel(img, (0, 1, 2), 3)", 2),
        ("draw_horizontal_line(img, 9, 3)", 2),
        ("draw_pixels(img, (0, 1), 3)", 2),
        ("    draw_pixel(img, (0, 1), 3)", 2),
        ("# \0", 2),
        ("draw_pixel(img, (0, 1), 3)", 4),
    ],
)
def test_the_beginning_is_what_runs_before_the_first_wrong_line(wrong, kept):
    right = ["draw_pixel(img, (0, 0), 1)", "draw_vertical_line(img, 2, 5)"]
    lines = [*right, wrong, "draw_pixel(img, (3, 3), 4)"]
    found = beginning("\n".join(lines), [EMPTY])
    assert found.text == "\n".join(lines[:kept])
    whole = "\n".join(["def task(img):", *(f"  {line}" for line in lines), "  return img"])
    if wrong.startswith("draw"):
        body = [f"    {line}" for line in lines[:kept]]
        told = beginning(whole, [EMPTY])
        assert told.text == "\n".join(["def task(img):", *body, "    return img"])


def test_the_beginning_returns_the_given_grid_where_a_program_returns_an_unknown_one():
    lines = ["def task(img):", "    draw_pixel(img, (0, 0), 1)", "    return grid"]
    assert beginning("\n".join(lines), [EMPTY]).text == "\n".join([*lines[:2], "    return img"])
    lines[1:] = [
        "    new = create_img((2, 2), 3)",
        "    return new",
        "    draw_pixel(new, (9, 9), 1)",
    ]
    assert beginning("\n".join(lines), [EMPTY]).text == "\n".join(lines[:3])


def test_a_beginning_can_be_read_again():
    lines = ["def task(img):", *[" draw_pixel(img, (0, 0), 1)"] * 255]
    assert beginning("\n".join(lines), [EMPTY]) is None  # one line more by its return
    found = beginning("\n".join(lines[:-1]), [EMPTY])
    assert parse_program(found.text) == found


def test_the_beginning_runs_on_every_grid():
    lines = [f"draw_horizontal_line(img, {y}, 1)" for y in (0, 2, 1, 3)]
    assert beginning("\n".join(lines), [EMPTY, ("0",) * 3, ("0",) * 2]).text == lines[0]
    assert beginning("\n".join(lines), [EMPTY]).text == "\n".join(lines)


@pytest.mark.parametrize(
    "text",
    ["", "no", "def task(img):", "def task(img):\n  no", "draw_pixel(img", "# no\n" * 300],
)
def test_a_text_without_a_call_has_no_beginning(text):
    assert beginning(text, [EMPTY]) is None
