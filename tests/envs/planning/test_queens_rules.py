"""The rules of n-queens, its placements and its symmetries, against independent brute force."""

from __future__ import annotations

from itertools import combinations, permutations

import numpy as np
import pytest

from turnwise.envs import make_env
from turnwise.envs.planning.queens import QueensConfig, QueensPuzzle, canonical_rows, placements
from turnwise.envs.planning.queens_rules import (
    NONE,
    Position,
    apply,
    attacked,
    free,
    free_columns,
    moves,
    report,
    solved,
)
from turnwise.errors import ConfigError, DataError


def all_placements(size):
    """Return the placements of `size` queens: permutations with different diagonals."""
    return {
        "".join(map(str, p))
        for p in permutations(range(size))
        if len({row + c for row, c in enumerate(p)}) == size
        and len({row - c for row, c in enumerate(p)}) == size
    }


@pytest.mark.parametrize(("size", "count"), [(4, 2), (5, 10), (6, 4), (7, 40), (8, 92)])
def test_placements_are_those_of_brute_force(size, count):
    found = placements(NONE * size)
    assert len(found) == len(set(found)) == count
    assert set(found) == all_placements(size)


def test_larger_boards_have_the_published_numbers_of_placements():
    assert [len(placements(NONE * size)) for size in (9, 10)] == [352, 724]


def test_completions_are_the_placements_that_contain_the_queens():
    every, rng = all_placements(6), np.random.default_rng(0)
    met = set()
    for _ in range(200):
        rows = "".join(rng.choice([NONE] * 6 + list("012345"), size=6))
        fits = {p for p in every if all(a in (NONE, b) for a, b in zip(rows, p, strict=True))}
        assert set(placements(rows)) == fits
        met.add(bool(fits))
    assert met == {True, False}


def test_a_queen_is_placed_where_none_attacks():
    rng = np.random.default_rng(1)
    for _ in range(40):
        position = Position(NONE * 6)
        for _ in range(4):
            taken = [(r, int(c)) for r, c in enumerate(position.rows) if c != NONE]
            allowed = []
            for move in moves(position):
                row, column = int(move[1]), int(move[3])
                seen = any(
                    r == row or c == column or abs(r - row) == abs(c - column) for r, c in taken
                )
                assert (apply(position, move) is None) == seen
                assert (column in free_columns(position.rows, row)) == (not seen)
                allowed += [] if seen else [move]
            if not allowed:
                break
            position = apply(position, allowed[rng.integers(len(allowed))])


@pytest.mark.parametrize("move", ["", "r0", "r6c0", "r0c6", "r0 c0", "r0c0 r1c2"])
def test_other_texts_are_no_moves(move):
    assert apply(Position(NONE * 6), move) is None


def test_queries_answer_about_a_row():
    position = Position("1...")
    assert attacked(position, ["r1"]) == "r1c0 r1c1 r1c2"
    assert attacked(Position("...."), ["r1"]) == "none"
    assert (free(position, ["r1"]), free(position, ["r2"])) == ("r1 free 1", "r2 free 2")
    assert report(position) == "missing 3 blocked 0"
    assert report(Position("0.1.")) == "missing 2 blocked 1"
    for words in ([], ["r4"], ["r0", "r1"], ["c0"]):
        with pytest.raises(ValueError, match="give one row, from r0 to r3"):
            attacked(position, words)


def turned(rows):
    """Return the board turned by a quarter, with nested lists."""
    size = len(rows)
    board = [[column == str(c) for c in range(size)] for column in rows]
    board = [[board[size - 1 - c][r] for c in range(size)] for r in range(size)]
    return "".join(str(row.index(True)) if True in row else NONE for row in board)


def mirrored(rows):
    return "".join(NONE if c == NONE else str(len(rows) - 1 - int(c)) for c in rows)


def test_boards_that_are_equal_up_to_symmetry_have_one_text():
    tasks = {
        "".join(c if row in kept else NONE for row, c in enumerate(whole))
        for whole in all_placements(6)
        for kept in map(set, combinations(range(6), 3))
    }
    orbits = set()
    for rows in tasks:
        images = []
        for image in (rows, mirrored(rows)):
            for _ in range(4):
                images.append(image)
                image = turned(image)
        assert {canonical_rows(image) for image in images} == {min(images)}
        orbits.add(frozenset(images))
    assert len({canonical_rows(rows) for rows in tasks}) == len(orbits)


def test_the_solver_completes_and_the_cost_tells_dead_boards():
    puzzle, rng = QueensPuzzle(QueensConfig(size=8, given=2)), np.random.default_rng(2)
    dead, every = 0, all_placements(8)
    for _ in range(40):
        position = puzzle.first(puzzle.generate(rng, 16))
        found = puzzle.solve(position)
        assert len(found) == 6 == puzzle.role_cost(position)
        end = position
        for move in found:
            end = apply(end, move)
        assert solved(end)
        assert end.rows in every
        for move in moves(position):
            after = apply(position, move)
            if after is not None:
                alive = any(
                    all(a in (NONE, b) for a, b in zip(after.rows, p, strict=True)) for p in every
                )
                assert (puzzle.role_cost(after) == 5) == alive
                assert (puzzle.solve(after) is not None) == alive
                dead += not alive
    assert dead > 100


def test_reasoning_gym_has_the_same_placements():
    create = pytest.importorskip("reasoning_gym").create_dataset
    for entry in create("n_queens", seed=2, size=15, n=8, min_remove=1, max_remove=5):
        board = entry["metadata"]["puzzle"]
        rows = "".join(str(row.index("Q")) if "Q" in row else NONE for row in board)
        theirs = set()
        for text in entry["metadata"]["valid_answers"]:
            lines = [line.split() for line in text.split("\n")]
            theirs.add("".join(str(line.index("Q")) for line in lines))
        assert set(placements(rows)) == theirs


def test_wrong_options_and_tasks_are_refused():
    with pytest.raises(ConfigError, match="give at most 5"):
        make_env("n-queens", size=6, given=6)
    with pytest.raises(ConfigError, match="6 queens are missing, and 1 rounds of 4 moves place 4"):
        make_env("n-queens", size=8, given=2, rounds=1)
    puzzle = QueensPuzzle(QueensConfig(size=4, given=1))
    for rows in ("", "1..", "1..9", "1302", 5):
        with pytest.raises(DataError, match="give for each of 4 rows"):
            puzzle.first({"rows": rows})
    with pytest.raises(DataError, match=r"no placement of 4 queens contains '0\.\.\.'"):
        puzzle.first({"rows": "0..."})
