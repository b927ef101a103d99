"""The rules of sudoku, its solver and its symmetries, against independent brute force."""

from __future__ import annotations

import re
from itertools import product

import numpy as np
import pytest

from turnwise.envs.planning import library, sudoku_rules
from turnwise.envs.planning.sudoku_rules import (
    BOXES,
    EMPTY,
    Position,
    apply,
    candidates,
    candidates_of,
    conflicts,
    conflicts_of,
    consistent,
    moves,
    places_of,
    report,
    shape_of,
    solved,
)
from turnwise.envs.planning.sudoku_solver import (
    BitBoard,
    count_solutions,
    draw_puzzle,
    hidden_single,
    naked_single,
    solution_of,
    solutions,
)
from turnwise.envs.planning.sudoku_symmetry import (
    cell_orders,
    grid_class,
    line_orders,
    pattern_class,
)
from turnwise.errors import ConfigError

EMPTY_4 = EMPTY * 16
BOARD = "12.4" + "34.." + "...." + "...."


def is_right(grid, size):
    """Whether a full board is right, by sets of its lines and boxes."""
    tall, wide = BOXES[size]
    whole = set("123456789"[:size])
    rows = [grid[i * size : (i + 1) * size] for i in range(size)]
    columns = ["".join(row[i] for row in rows) for i in range(size)]
    boxes = [
        "".join(rows[r + i][c : c + wide] for i in range(tall))
        for r in range(0, size, tall)
        for c in range(0, size, wide)
    ]
    return all(set(line) == whole for line in (*rows, *columns, *boxes))


def all_grids():
    """Return all right boards of 4 rows, row by row, without the solver."""
    rows = ["".join(p) for p in product("1234", repeat=4) if len(set(p)) == 4]
    pairs = [a + b for a, b in product(rows, repeat=2) if len({a[0], a[1], b[0], b[1]}) == 4]
    pairs = [pair for pair in pairs if len({pair[2], pair[3], pair[6], pair[7]}) == 4]
    return [a + b for a, b in product(pairs, repeat=2) if is_right(a + b, 4)]


GRIDS = all_grids()


def test_the_solver_finds_all_grids_of_four_rows():
    assert len(GRIDS) == 288
    assert sorted(solutions(EMPTY_4)) == sorted(GRIDS)
    assert count_solutions(EMPTY_4, most=1000) == 288
    assert count_solutions(EMPTY_4) == 2


def test_solutions_of_random_boards_are_those_among_all_grids():
    rng = np.random.default_rng(0)
    for _ in range(150):
        grid = GRIDS[rng.integers(288)]
        kept = rng.random(16) < 0.35
        board = "".join(d if keep else EMPTY for d, keep in zip(grid, kept, strict=True))
        fits = [g for g in GRIDS if all(b in (EMPTY, d) for b, d in zip(board, g, strict=True))]
        assert sorted(solutions(board)) == sorted(fits)
        assert count_solutions(board) == min(2, len(fits))
        assert solution_of(board) in fits


@pytest.mark.parametrize("size", [4, 6, 9])
def test_units_are_rows_columns_and_boxes(size):
    shape = shape_of(size**2)
    assert len(shape.units) == 3 * size
    assert all(len(set(unit)) == size for unit in shape.units)
    grid = next(solutions(EMPTY * size**2, np.random.default_rng(1)))
    assert is_right(grid, size)
    tall, wide = BOXES[size]
    others = 2 * (size - 1) + (tall - 1) * (wide - 1)
    assert {len(peers) for peers in shape.peers} == {others}


def test_candidates_conflicts_and_moves_agree_with_the_units():
    rng = np.random.default_rng(2)
    for _ in range(60):
        board = "".join(rng.choice([*"1234", *EMPTY * 8], size=16))
        wrong = set()
        for unit in shape_of(16).units:
            for a, b in product(unit, repeat=2):
                if a != b and board[a] == board[b] != EMPTY:
                    wrong |= {a, b}
        assert conflicts(board) == tuple(sorted(wrong))
        position = Position(board, EMPTY_4)
        for move in moves(position):
            cell, digit = 4 * int(move[1]) + int(move[3]), move[5]
            after = apply(position, move)
            allowed = board[cell] == EMPTY and digit in candidates(board, cell)
            assert (after is not None) == allowed
            if after is not None:
                assert after.board == board[:cell] + digit + board[cell + 1 :]


@pytest.mark.parametrize(
    "move",
    ["r0c2", "r0c2=5", "r0c2=", "r4c0=1", "r0c2=33", "", "1=r0c2", "r0c2 3", "=3", "r0c2==3"],
)
def test_other_texts_are_no_moves(move):
    assert apply(Position(BOARD, BOARD), move) is None


def test_queries_answer_about_the_board():
    position = Position(BOARD, BOARD)
    assert candidates_of(position, ["r0c2"]) == "one r0c2=3"
    assert candidates_of(position, ["r0c0"]) == "r0c0 has 1"
    assert conflicts_of(position, ["r0c2=4"]) == "r0c3"
    assert conflicts_of(position, ["r0c2=3"]) == "none"
    assert places_of(position, ["r1", "2"]) == "two r1c2=2 r1c3=2"
    assert places_of(position, ["b1", "4"]) == "r0c3 has 4"
    assert places_of(position, ["c2", "3"]) == "three r0c2=3 r2c2=3 r3c2=3"
    assert consistent(position, []) == "yes"
    assert report(position) == "empty 11 consistent yes"
    dead = Position("123." + "..4." + "....", "")._replace(board="123." + "..4." + "." * 8)
    assert consistent(dead, []) == "no r0c3"
    for query, words in (
        (candidates_of, ["r9c9"]),
        (candidates_of, []),
        (conflicts_of, ["r0c0=9"]),
        (conflicts_of, ["r0c0"]),
        (conflicts_of, ["r0c0", "1"]),
        (conflicts_of, ["r9c0=1"]),
        (places_of, ["x0", "1"]),
        (consistent, ["r0c0"]),
    ):
        with pytest.raises(ValueError, match=r"give|none of|no digit"):
            query(position, words)


def test_singles_give_digits_of_the_only_solution():
    rng = np.random.default_rng(3)
    for _ in range(40):
        board = draw_puzzle(6, 12, rng)
        solution = solution_of(board)
        for find in (naked_single, hidden_single):
            found = find(board)
            assert found is None or solution[found[0]] == found[1]


@pytest.mark.parametrize(
    ("size", "clues", "hard"),
    [(4, 4, False), (4, 7, False), (6, 10, False), (6, 14, True), (9, 36, False)],
)
def test_drawn_puzzles_have_one_solution_and_as_many_clues(size, clues, hard):
    rng = np.random.default_rng(4)
    for _ in range(5):
        board = draw_puzzle(size, clues, rng, hard=hard)
        assert len(board) - board.count(EMPTY) == clues
        assert count_solutions(board) == 1
        assert is_right(solution_of(board), size)
        if hard:
            assert BitBoard(board).is_stuck()
            left = board
            while (found := naked_single(left)) is not None:
                left = left[: found[0]] + found[1] + left[found[0] + 1 :]
            assert EMPTY in left


def test_draws_depend_on_the_generator_alone():
    first, second = (draw_puzzle(6, 12, np.random.default_rng(5), hard=True) for _ in range(2))
    assert first == second


def test_naked_singles_solve_all_puzzles_of_four_rows():
    rng = np.random.default_rng(6)
    unique = 0
    for _ in range(1500):
        grid, kept = GRIDS[rng.integers(288)], rng.random(16) < 0.4
        board = "".join(d if keep else EMPTY for d, keep in zip(grid, kept, strict=True))
        if count_solutions(board) == 1:
            unique += 1
            assert not BitBoard(board).is_stuck()
    assert unique > 300


def test_searches_are_bounded():
    with pytest.raises(ConfigError, match="of 9 rows fills more than 20000 cells"):
        count_solutions(EMPTY * 81, most=10_000)
    board = "1" + EMPTY * 15
    assert count_solutions("11" + EMPTY * 14) == 0
    assert solution_of("11" + EMPTY * 14) is None
    assert count_solutions(board, most=1000) == 72


def symmetric(grid, size, rng):
    """Return a grid after random symmetries, made with nested lists."""
    tall, wide = BOXES[size]
    rows = [list(grid[i * size : (i + 1) * size]) for i in range(size)]
    rows = [rows[i] for i in line_orders(size, tall)[rng.integers(len(line_orders(size, tall)))]]
    orders = line_orders(size, wide)
    order = orders[rng.integers(len(orders))]
    rows = [[row[i] for i in order] for row in rows]
    if tall == wide and rng.integers(2):
        rows = [list(column) for column in zip(*rows, strict=True)]
    digits = rng.permutation(size) + 1
    return "".join(EMPTY if d == EMPTY else str(digits[int(d) - 1]) for row in rows for d in row)


@pytest.mark.parametrize("size", [4, 6])
def test_classes_do_not_change_under_symmetries(size):
    rng = np.random.default_rng(7)
    for _ in range(30):
        board = draw_puzzle(size, 6 if size == 4 else 14, rng)
        solution = solution_of(board)
        other = symmetric(board, size, rng)
        assert count_solutions(other) == 1  # a symmetry keeps the rules
        assert pattern_class(other) == pattern_class(board)
        assert grid_class(symmetric(solution, size, rng)) == grid_class(solution)


def test_classes_of_nine_rows_do_not_change_under_symmetries_and_tell_grids_apart():
    rng = np.random.default_rng(8)
    orders = line_orders(9, 3)
    assert len(orders) == 6**4
    grids = [next(solutions(EMPTY * 81, rng)) for _ in range(4)]
    assert all(grid_class(symmetric(grid, 9, rng)) == grid_class(grid) for grid in grids)
    assert len({grid_class(grid) for grid in grids}) == 4


def test_grids_of_four_rows_have_two_classes():
    sizes = sorted(sum(grid_class(g) == c for g in GRIDS) for c in {grid_class(g) for g in GRIDS})
    assert sizes == [96, 192]


def test_patterns_have_as_many_classes_as_orbits():
    orders = cell_orders(4).tolist()
    assert len({tuple(order) for order in orders}) == 128
    assert len({tuple(order) for order in cell_orders(6).tolist()}) == 3456
    masks = [tuple(bool(n >> c & 1) for c in range(16)) for n in range(0, 1 << 16, 97)]
    for mask in masks[:60]:
        board = "".join("1" if given else EMPTY for given in mask)
        least = min(tuple(mask[c] for c in order) for order in orders)
        text = "".join("1" if given else "0" for given in least)
        assert pattern_class(board) == f"{int(text, 2):04x}"


def test_puzzles_of_reasoning_gym_are_solved_alike():
    games = pytest.importorskip("reasoning_gym").create_dataset
    for name, size, count in (("mini_sudoku", 4, 12), ("sudoku", 9, 3)):
        data = games(name, seed=1, size=count)
        for entry in data:
            rows, right = entry["metadata"]["puzzle"], entry["metadata"]["solution"]
            board = "".join(str(d or EMPTY) for row in rows for d in row)
            assert solution_of(board) == "".join(str(d) for row in right for d in row)
            assert count_solutions(board) == 1
            assert len(board) == size**2


def test_a_full_board_is_solved():
    grid = GRIDS[0]
    last = Position(grid[:-1] + EMPTY, grid[:-1] + EMPTY)
    assert not solved(last)
    assert solved(apply(last, f"r3c3={grid[-1]}"))


def test_a_unit_shows_all_places_of_each_digit_that_it_shows():
    """A result is cut at `MOST_SHOWN` characters, and a list without some places looks sure."""
    assert sudoku_rules.MOST_SHOWN == library.MOST_SHOWN
    shape, rng, cut = shape_of(81), np.random.default_rng(0), 0
    names = "|".join(sudoku_rules.COUNTS[1:])
    for _ in range(20):
        position = Position(board := draw_puzzle(9, 28, rng), "")
        for unit in shape.lines:
            found = library.answer(sudoku_rules, position, ["places", unit], 1)
            shown = re.split(rf" (?={names})", found)
            digits = [each[-1] for each in shown]
            assert shown == [places_of(position, [unit, digit]) for digit in digits]
            lacked = set(shape.digits) - {board[cell] for cell in shape.lines[unit]}
            assert len(set(digits)) == len(digits) and set(digits) <= lacked
            sizes = [len(each.split()) for each in shown]
            left = [places_of(position, [unit, digit]) for digit in lacked - set(digits)]
            assert sizes == sorted(sizes)
            assert all(len(each.split()) >= sizes[-1] for each in left)
            cut += bool(left)
    assert cut > 3


def test_a_digit_without_a_place_is_named():
    position = Position(board := "12.." + "..3." + "...." + "...3", board)
    assert places_of(position, ["r0"]) == "3 none two r0c2=4 r0c3=4"
