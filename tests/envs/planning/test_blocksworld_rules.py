"""The rules of blocksworld, its shortest plans and its symmetries, against brute force."""

from __future__ import annotations

from collections import Counter, deque
from itertools import permutations

import numpy as np
import pytest

from turnwise.envs.planning import blocksworld_solver
from turnwise.envs.planning.blocksworld import BlocksworldConfig, BlocksworldPuzzle
from turnwise.envs.planning.blocksworld_rules import (
    Position,
    apply,
    clear,
    count_misplaced,
    misplaced,
    moves,
    over,
    placed,
    report,
    solved,
    under,
)
from turnwise.envs.planning.blocksworld_solver import (
    canonical_towers,
    draw_towers,
    fewest_moves,
    shortest_plan,
)
from turnwise.errors import ConfigError, DataError


def towers_of(on):
    """Return the towers as a set of tuples, each from the table upwards."""
    over_block = {int(below): block + 1 for block, below in enumerate(on) if below != "0"}
    found = set()
    for block, below in enumerate(on):
        if below == "0":
            tower = [block + 1]
            while tower[-1] in over_block:
                tower.append(over_block[tower[-1]])
            found.add(tuple(tower))
    return frozenset(found)


def steps(towers, places):
    """Return the arrangements after one move, of towers as tuples."""
    found = set()
    for tower in towers:
        rest = towers - {tower}
        block, left = tower[-1], tower[:-1]
        base = rest | {left} if left else rest
        if left and len(towers) < places:
            found.add(base | {(block,)})
        found |= {(base - {other}) | {(*other, block)} for other in rest}
    return found


def distances(goal, places):
    """Return the number of moves from each arrangement to `goal`; moves can be taken back."""
    known, waiting = {goal: 0}, deque([goal])
    while waiting:
        here = waiting.popleft()
        for after in steps(here, places):
            if after not in known:
                known[after] = known[here] + 1
                waiting.append(after)
    return known


@pytest.mark.parametrize(
    ("count", "places", "states"), [(3, 3, 13), (4, 4, 73), (4, 3, 72), (5, 5, 501)]
)
def test_moves_reach_all_arrangements(count, places, states):
    assert len(distances(frozenset({tuple(range(1, count + 1))}), places)) == states


def test_moves_are_those_of_towers():
    rng = np.random.default_rng(0)
    for count, places in ((4, 3), (5, 5), (6, 3)):
        for _ in range(30):
            position = Position(draw_towers(count, places, rng), "0" * count, places)
            after = [apply(position, move) for move in moves(position)]
            reached = {towers_of(each.on) for each in after if each is not None}
            assert reached == steps(towers_of(position.on), places)


@pytest.mark.parametrize(("count", "places"), [(3, 3), (4, 3), (5, 3), (5, 5), (6, 3)])
def test_plans_are_as_short_as_those_of_breadth_first_search(count, places):
    rng = np.random.default_rng(count + places)
    for _ in range(3):
        goal = draw_towers(count, places, rng)
        known = distances(towers_of(goal), places)
        for _ in range(15):
            on = draw_towers(count, places, rng)
            plan = shortest_plan(on, goal, places)
            assert len(plan) == known[towers_of(on)]
            assert fewest_moves(on, goal) <= len(plan)
            assert (fewest_moves(on, goal) == 0) == (on == goal)
            position = Position(on, goal, places)
            for move in plan:
                position = apply(position, move)
            assert solved(position)


@pytest.mark.parametrize(
    "move", ["", "b1", "b1 on", "b1 on b9", "b1 on b1", "table on b1", "b1 on b2 "]
)
def test_other_texts_are_no_moves(move):
    assert apply(Position("000", "012", 3), move) is None


def test_queries_answer_about_the_towers():
    position = Position("0120", "0010", 3)  # b1 b2 b3 | b4; at the goal b1 b3 | b2 | b4
    assert clear(position, []) == "b3 b4"
    assert (under(position, ["b2"]), under(position, ["b1"])) == ("b2 on b1", "b1 on table")
    assert (over(position, ["b2"]), over(position, ["b3"])) == ("b3 on b2", "b3 clear")
    assert [placed(position, [f"b{n}"]) for n in (1, 2, 3, 4)] == [
        "b1 yes", "b2 no", "b3 no", "b4 yes"
    ]  # fmt: skip
    assert count_misplaced(position, []) == report(position) == "misplaced 2"
    assert misplaced(position.on, position.goal) == ("2", "3")
    for query, words in ((under, []), (over, ["b5"]), (placed, ["table"]), (clear, ["b1"])):
        with pytest.raises(ValueError, match="give"):
            query(position, words)


def test_drawn_arrangements_are_uniform():
    rng, counts = np.random.default_rng(1), Counter()
    for _ in range(13 * 400):
        counts[draw_towers(3, 3, rng)] += 1
    assert len(counts) == 13
    assert sum((n - 400) ** 2 / 400 for n in counts.values()) < 33  # chi-squared, 12 degrees, 0.999
    assert all(len(towers_of(draw_towers(6, 3, rng))) <= 3 for _ in range(100))


def renamed(on, names):
    """Return the arrangement in which block `i` is called `names[i]`."""
    after = [""] * len(on)
    for place, below in enumerate(on):
        after[names[place] - 1] = "0" if below == "0" else str(names[int(below) - 1])
    return "".join(after)


def test_renamed_tasks_have_one_text_and_others_do_not():
    rng, orbits = np.random.default_rng(2), {}
    for _ in range(150):
        on, goal = draw_towers(4, 4, rng), draw_towers(4, 4, rng)
        images = {(renamed(on, names), renamed(goal, names)) for names in permutations(range(1, 5))}
        assert {canonical_towers(*image) for image in images} == {canonical_towers(on, goal)}
        orbits[min(images)] = canonical_towers(on, goal)
    assert len(set(orbits.values())) == len(orbits) > 50


def test_searches_are_bounded(monkeypatch):
    assert len(shortest_plan("012345", "234560", 3)) > 5
    monkeypatch.setattr(blocksworld_solver, "MOST_POSITIONS", 1)
    shortest_plan.cache_clear()
    assert shortest_plan("012345", "234560", 3) is None
    shortest_plan.cache_clear()


def test_wrong_options_and_tasks_are_refused():
    puzzle = BlocksworldPuzzle(BlocksworldConfig(blocks=4))
    for on in ("", "000", "0008", "2100", "0110", "0000", "1234", "x000"):  # "0000": 4 towers
        with pytest.raises(DataError, match="is no arrangement of 4 blocks in at most 3 towers"):
            puzzle.first({"on": on, "goal": "0123"})
    with pytest.raises(DataError, match="stand as at the goal"):
        puzzle.first({"on": "0123", "goal": "0123"})
    hopeless = BlocksworldPuzzle(BlocksworldConfig(blocks=3, least_moves=9))
    with pytest.raises(ConfigError, match="no task of 3 blocks in 2000 draws has a solution of 9"):
        hopeless.generate(np.random.default_rng(0), 12)
