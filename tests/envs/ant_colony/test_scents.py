"""Scents: fading and spreading against a reference cell by cell, and the two ways to lay them."""

from __future__ import annotations

import numpy as np
import pytest

from turnwise.envs.ant_colony.grid import OPEN, Grid
from turnwise.envs.ant_colony.scents import faded, no_scents, reinforced, signalled

MAPS = [
    ["."],
    ["..", ".."],
    ["...", ".#.", "..."],
    ["..#..", "#.#.#", ".....", ".###.", "....#"],
    ["#.#", "...", "#.#"],
]


def faded_by_hand(grid, fields):
    """Return what `faded` does, from the specification, one cell after the other."""
    found = np.zeros_like(fields)
    for scent, kept in enumerate((0.93, 0.97, 0.85)):
        for cell, level in enumerate(fields[scent]):
            near = [cell + step for step in grid.steps() if 0 <= cell + step < len(grid.cells)]
            near = [c for c in near if grid.cells[c] == OPEN]
            if grid.cells[cell] != OPEN:
                continue
            spreads = 0.04 * kept * level if near else 0.0
            found[scent, cell] += kept * level - spreads
            for neighbour in near:
                found[scent, neighbour] += spreads / len(near)
    found[found < 0.05] = 0.0
    return found


@pytest.mark.parametrize("rows", MAPS)
def test_scents_fade_and_spread_as_specified(rows):
    grid, rng = Grid.of(rows), np.random.default_rng(0)
    fields = np.zeros((3, len(grid.cells)))
    fields[:, grid.open] = rng.uniform(0, 10, (3, len(grid.open)))
    fields[:, grid.open] *= rng.random((3, len(grid.open))) < 0.6
    for _ in range(40):
        wanted = faded_by_hand(grid, fields)
        fields = faded(grid, fields)
        np.testing.assert_allclose(fields, wanted, atol=1e-12)
    assert fields[2].sum() == 0.0  # ALARM is gone


def test_half_lives_are_about_10_23_and_4_ticks():
    grid = Grid.of(["."])
    cell = grid.cell(0, 0)
    fields = signalled(signalled(signalled(no_scents(grid), 0, cell), 1, cell), 2, cell)
    levels = [fields[:, cell]]
    for _ in range(30):
        fields = faded(grid, fields)
        levels.append(fields[:, cell])
    halved = [next(t for t, each in enumerate(levels) if each[s] < 1.5) for s in range(3)]
    assert halved == [10, 23, 5]


def test_a_signal_adds_three_up_to_ten_and_leaves_the_old_fields_alone():
    grid = Grid.of(["..", ".."])
    cell, fields, levels = grid.cell(1, 0), no_scents(grid), []
    for _ in range(5):
        before = fields.copy()
        after = signalled(fields, 1, cell)
        assert (fields == before).all()
        fields = after
        levels.append(fields[1, cell])
    assert levels == [3.0, 6.0, 9.0, 10.0, 10.0]
    assert fields.sum() == 10.0
    with pytest.raises(ValueError, match="read-only"):
        fields[0, cell] = 1.0


@pytest.mark.parametrize(
    ("level", "after"), [(0.4, None), (0.5, 1.5), (1.0, 2.0), (4.0, 6.0), (9.0, 10.0)]
)
def test_reinforcing_multiplies_and_adds_at_least_one(level, after):
    grid = Grid.of(["."])
    fields = no_scents(grid).copy()
    fields[0, grid.cell(0, 0)] = level
    found = reinforced(fields, 0, grid.cell(0, 0))
    assert (None if found is None else found[0, grid.cell(0, 0)]) == after
