"""Random programs of small grids."""

import re
from collections import defaultdict
from contextlib import suppress
from itertools import combinations, product

import numpy as np
import pytest

from turnwise.envs.drawing.generator import random_call, random_program
from turnwise.envs.drawing.interpreter import ProgramFailure, run_program


@pytest.mark.parametrize("shape", [(1, 1), (1, 2), (3, 1), (2, 2)])
def test_small_grids_have_random_programs_too(shape):
    given = ("0" * shape[1],) * shape[0]
    rng = np.random.default_rng(0)
    for _ in range(200):
        text = random_program(rng, shape).text
        assert "rectangle" not in text or min(shape) > 1
        with suppress(ProgramFailure):  # a call may be out of bounds, as in larger grids
            run_program(text, given)


def test_calls_have_the_published_arguments():
    """Each that is possible is drawn; a rectangle has two rows and columns, a line two points."""
    rng, (rows, columns) = np.random.default_rng(0), (3, 4)
    drawn: dict[str, set[tuple[int, ...]]] = defaultdict(set)
    colours: dict[str, set[int]] = defaultdict(set)
    for _ in range(4000):
        call = random_call(rng, (rows, columns))
        *arguments, colour = map(int, re.findall(r"-?[0-9]+", call))
        name = call.partition("(")[0]
        drawn[name].add(tuple(arguments))
        colours[name].add(colour)
    assert all(found == set(range(10)) for found in colours.values())
    assert drawn["draw_pixel"] == set(product(range(rows), range(columns)))
    assert drawn["draw_horizontal_line"] == {(y,) for y in range(rows)}
    assert drawn["draw_vertical_line"] == {(x,) for x in range(columns)}
    above, beside = (list(combinations(range(side), 2)) for side in (rows, columns))
    assert drawn["draw_rectangle"] == {
        (top, left, low, right) for (top, low), (left, right) in product(above, beside)
    }
    straight = {(y, left, y, right) for y in range(rows) for left, right in beside}
    straight |= {(top, x, low, x) for x in range(columns) for top, low in above}
    diagonal = drawn["draw_line"] - straight
    assert drawn["draw_line"] >= straight
    assert all(low - top == right - left > 0 for top, left, low, right in diagonal)
    assert any(left < 0 for _, left, _, _ in diagonal), "published: some begin outside"
