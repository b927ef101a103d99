"""Names of cells on square boards: by row and column, and by the steps from the player."""

from __future__ import annotations

import re

import numpy as np
import pytest

from turnwise.envs import check_env, make_env
from turnwise.envs.planning.squares import offset_names
from turnwise.errors import ConfigError
from turnwise.types import Task

ENVS = ("plan-path", "sokoban")
ABSOLUTE = re.compile(r"r(\d+)c(\d+)")
RELATIVE = re.compile(r"(?:([ud])(\d+))?(?:([lr])(\d+))?")

MEANS = {"#": {"walls"}, ".": set(), "_": set(), "Y": {"you"}, "G": {"goal"}, "@": {"you"}}
SOKOBAN = MEANS | {".": {"goals"}, "$": {"boxes"}, "*": {"boxes", "goals"}, "+": {"you", "goals"}}


def seen(env, seed):
    """The lines and the description of a random task, without the size."""
    data = env.generate(np.random.default_rng(seed))
    state = env.reset(Task(id="t", env=env.name, seed=0, data=data))
    told = env.observe(state, "tool")
    return told.text.split("\n ")[1:], told.description


def place(name, at):
    """The row and column that a name means for a player at `at`."""
    if found := ABSOLUTE.fullmatch(name):
        return tuple(map(int, found.groups()))
    if name == "here":
        return at
    vertical, down, across, right = RELATIVE.fullmatch(name).groups()
    row = at[0] + int(down or 0) * (1 if vertical == "d" else -1)
    return row, at[1] + int(right or 0) * (1 if across == "r" else -1)


@pytest.mark.parametrize("cells", ["absolute", "relative"])
@pytest.mark.parametrize("name", ENVS)
def test_the_floor_is_each_cell_without_a_wall(name, cells):
    for seed in range(5):
        env = make_env(name, size=6, walls=0.25, cells=cells, listed="floor")
        first, *rest = seen(env, seed)[0]
        walls, *others = seen(make_env(name, size=6, walls=0.25, cells=cells), seed)[0]
        assert rest == others
        (you,) = (line.split()[1] for line in rest if line.startswith("you "))
        at = place(you, (0, 0))
        board = range(6) if name == "plan-path" else range(1, 5)  # inside the outer wall
        inside = {(row, column) for row in board for column in board}
        named = [place(each, at) for each in first.removeprefix("floor ").split()]
        blocked = {place(each, at) for each in walls.removeprefix("walls ").split()}
        assert named == sorted(inside - blocked) and blocked <= inside and at in named


@pytest.mark.parametrize("name", ENVS)
def test_a_map_lists_no_cells(name):
    with pytest.raises(ConfigError, match=r'cells = "map" draws all cells .* leave out listed'):
        make_env(name, cells="map", listed="floor")


@pytest.mark.parametrize("name", ENVS)
@pytest.mark.parametrize("seed", range(5))
def test_relative_names_mean_the_same_cells(name, seed):
    options = {"size": 6, "walls": 0.25}
    plain, said = seen(make_env(name, **options), seed)
    lines, told = seen(make_env(name, cells="relative", **options), seed)
    (you,) = (line.split()[1] for line in plain if line.startswith("you "))
    at = place(you, (0, 0))
    assert [line.split()[0] for line in lines] == [line.split()[0] for line in plain]
    for line, other in zip(plain, lines, strict=True):
        first, *cells = line.split()
        own = other.split()[1:]
        if cells == ["none"] or first == "your":
            assert own == cells
        elif first == "you":  # functions take absolute names
            assert own == cells == [you]
        else:
            assert [place(cell, at) for cell in own] == [place(cell, at) for cell in cells]
            assert not any(ABSOLUTE.fullmatch(cell) for cell in own)
    assert not ABSOLUTE.search(told) and ABSOLUTE.search(said)
    words = [word for word in said.split() if not ABSOLUTE.fullmatch(word)]
    assert [word for word in told.split() if not re.fullmatch("[udlr][udlr0-9]+", word)] == words


@pytest.mark.parametrize("name", ENVS)
@pytest.mark.parametrize("seed", range(5))
def test_a_map_shows_what_the_names_tell(name, seed):
    options = {"size": 6, "walls": 0.25}
    named = dict(line.split(" ", 1) for line in seen(make_env(name, **options), seed)[0])
    (you, *rows, _), told = seen(make_env(name, cells="map", **options), seed)
    assert you == f"you {named['you']}"
    assert told == seen(make_env(name, cells="relative", **options), seed)[1]
    at, far = place(named["you"], (0, 0)), len(rows) // 2
    signs = {
        (at[0] + down - far, at[1] + across - far): sign
        for down, row in enumerate(rows)
        for across, sign in enumerate(row.split()[1:])
    }
    assert [place(row.split()[0], (0, 0))[0] for row in rows] == [*range(-far, far + 1)]
    edge = 1 if name == "sokoban" else 0
    for cell in ((r, c) for r in range(edge, 6 - edge) for c in range(edge, 6 - edge)):
        what = {
            key
            for key in ("walls", "boxes", "goals", "goal", "you")
            if f"r{cell[0]}c{cell[1]}" in named.get(key, "").split()
        }
        assert what == (SOKOBAN if edge else MEANS)[signs.pop(cell)]
    assert set(signs.values()) == {"#"}


@pytest.mark.parametrize("name", ENVS)
@pytest.mark.parametrize("cells", ["relative", "map"])
def test_all_words_are_in_the_vocabulary_and_the_contract_is_kept(name, cells):
    env = make_env(name, cells=cells, described=True, size=6)
    assert check_env(env).longest > 0
    words = set(env.vocabulary())
    for seed in range(10):
        for line in seen(env, seed)[0][:-1]:
            assert set(line.split()) <= words


def test_each_cell_has_a_name_of_its_own():
    for at in range(16):
        names = offset_names(4, at)
        assert len(set(names)) == 16
        assert names[at] == "here"
