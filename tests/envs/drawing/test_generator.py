"""Random programs of small grids."""

from contextlib import suppress

import numpy as np
import pytest

from turnwise.envs.drawing.generator import random_program
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
