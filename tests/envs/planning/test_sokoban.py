"""Sokoban: rules against reasoning-gym, optimal lengths and deadlocks against full searches."""

from __future__ import annotations

from collections import deque
from itertools import combinations
from math import inf
from random import Random

import numpy as np
import pytest

from turnwise.envs import make_env
from turnwise.envs.planning import sokoban_rules as rules
from turnwise.envs.planning.sokoban import pushes_of
from turnwise.envs.planning.sokoban_levels import (
    canonical_level,
    draw_level,
    level_of,
    rows_of,
)
from turnwise.envs.planning.sokoban_rules import MOVES
from turnwise.envs.planning.sokoban_solver import greedy_move, greedy_push, solve
from turnwise.envs.planning.squares import symmetries
from turnwise.envs.random_play import random_walk
from turnwise.errors import ConfigError, DataError
from turnwise.policies.nano import make_tokenizer
from turnwise.seeding import generator
from turnwise.tasks import GeneratedTasks
from turnwise.types import Task

STEPS = {"UP": (-1, 0), "DOWN": (1, 0), "LEFT": (0, -1), "RIGHT": (0, 1)}
THEIRS = str.maketrans(" .$*@+#", "-X@$*%+")
"""Signs of ours as reasoning-gym's."""
OURS = str.maketrans("-X@$*%+", " .$*@+#")


def greedy_solves(position, most_moves):
    """Whether at most so many moves of the greedy pusher solve a level, push by push."""
    left = most_moves
    while position.boxes != position.goals:
        found = greedy_push(position)
        if found is None or found[0] >= left:
            return False
        left -= found[0] + 1
        position = found[2]
    return True


def levels(count, size=6, boxes=2, walls=0.2, pulls=12):
    drawn = (
        draw_level(generator(0, "level", number), size, boxes, walls, pulls)
        for number in range(count)
    )
    return [level for level in drawn if level is not None and not rules.solved(level)]


def fewest(position):
    """Return the fewest moves that solve a position by a search over all positions; or inf."""
    seen, waiting = {position[2:4]}, deque([(position, 0)])
    while waiting:
        here, length = waiting.popleft()
        if rules.solved(here):
            return length
        for move in rules.MOVES:
            after = rules.apply(here, move)
            if after is not None and after[2:4] not in seen:
                seen.add(after[2:4])
                waiting.append((after, length + 1))
    return inf


def test_rules_are_those_of_reasoning_gym():
    game = pytest.importorskip("reasoning_gym.games.contrib.sokoban.src.game")
    pushed = 0
    for number, level in enumerate(levels(40, size=7, boxes=3)):
        theirs = game.Game(height=7, width=7)
        theirs.load_puzzle_matrix([list(row.translate(THEIRS)) for row in rows_of(level)])
        rng = generator(0, "moves", number)
        for move in (rules.MOVES[i] for i in rng.integers(4, size=60).tolist()):
            after = rules.apply(level, move) or level
            pushed += after.boxes != level.boxes
            level = after
            theirs.player.update(key=move[0])
            shown = ["".join(row).translate(OURS) for row in theirs.get_matrix()]
            assert shown == rows_of(level)
            assert theirs.is_level_complete() == rules.solved(level)
    assert pushed > 100


def test_solutions_of_levels_of_reasoning_gym_are_no_longer_than_theirs():
    package = pytest.importorskip("reasoning_gym.games.contrib.sokoban.src.generator")
    shorter = 0
    for seed in range(15):
        text, theirs, _ = package.generate(
            rng=Random(seed), min_w=6, min_h=6, max_w=6, max_h=6, min_boxes=2, max_boxes=2
        )
        rows = ["".join(line.split()).translate(OURS) for line in text.strip().split("\n")]
        level = level_of(rows)
        ours = solve(level)
        assert ours is not None and len(ours) <= len(theirs)
        shorter += len(ours) < len(theirs)
        for move in ours:
            level = rules.apply(level, move)
        assert rules.solved(level)
    assert shorter  # their search minds boxes more than moves


@pytest.mark.parametrize(("size", "boxes"), [(5, 1), (5, 2), (6, 1), (6, 2)])
def test_solutions_have_the_fewest_moves(size, boxes):
    checked = 0
    for level in levels(25, size=size, boxes=boxes):
        moves = solve(level)
        assert (inf if moves is None else len(moves)) == fewest(level)
        checked += moves is not None
        assert rules.pushes_left(*level[:2], *level[3:]) <= fewest(level)
    assert checked > 10


def test_a_search_is_bounded():
    level = level_of(["######", "#@ $.#", "#    #", "# $ .#", "#    #", "######"])
    assert solve(level) is not None
    assert solve(level, 3) is None


def test_known_deadlocks_are_unsolvable():
    level = level_of(["#####", "#@  #", "# $$#", "#. .#", "#####"])
    free = [cell for cell, sign in enumerate(level.board) if sign != rules.WALL]
    dead = alive = 0
    for boxes in combinations(free, 2):
        players = [cell for cell in free if cell not in boxes]
        solvable = any(fewest(level._replace(at=at, boxes=boxes)) < inf for at in players)
        if rules.deadlock(level._replace(at=players[0], boxes=boxes)):
            dead += 1
            assert not solvable
        else:
            alive += solvable
    assert dead >= 20 and alive >= 5


@pytest.mark.parametrize(
    ("rows", "dead"),
    [
        (["#####", "#$  #", "# @ #", "#  .#", "#####"], True),  # a corner
        (["#####", "# $ #", "# @ #", "# . #", "#####"], True),  # a side without a goal
        (["######", "#.   #", "#.$$ #", "#  $$#", "#. @.#", "######"], False),
        (["######", "#.   #", "#.$$ #", "# $$@#", "#.  .#", "######"], True),  # a block of four
        (["#####", "#.* #", "# $@#", "#   #", "#####"], False),
    ],
)
def test_deadlocks_by_hand(rows, dead):
    level = level_of(rows)
    assert rules.deadlock(level) == dead
    assert rules.ask_deadlock(level, []) == ("dead" if dead else "alive")


def test_boxes_that_reach_one_goal_only_are_a_deadlock_of_two():
    rows = ["#######", "# $.$ #", "#     #", "#  @  #", "#     #", "#    .#", "#######"]
    level = level_of(rows)
    assert pushes_of(level) == inf and fewest(level) == inf
    for box in level.boxes:
        assert pushes_of(level._replace(boxes=(box,), goals=level.goals[:1])) == 1


def test_the_cost_of_a_role_is_infinite_from_a_deadlock_on():
    env, met = make_env("sokoban", walls=0.1), 0
    for number, level in enumerate(levels(60)):
        rng, dead = generator(0, "dead", number), False
        for move in (rules.MOVES[i] for i in rng.integers(4, size=80).tolist()):
            level = rules.apply(level, move) or level
            assert not dead or env.puzzle.role_cost(level) == inf
            dead = env.puzzle.role_cost(level) == inf
        met += dead
    assert met > 10


def test_levels_are_solvable_and_made_as_asked():
    env = make_env("sokoban", size=7, boxes=3, least_pushes=4, rounds=5, moves_per_turn=4)
    for number in range(20):
        level = env.puzzle.first(env.generate(generator(0, "made", number)))
        assert (level.columns, len(level.boxes), len(level.goals)) == (7, 3, 3)
        assert env.puzzle.role_cost(level) >= 4
        assert len(env.puzzle.solve(level)) <= 20


def test_symmetric_levels_are_one_problem():
    for level in levels(20):
        names, texts = set(), set()
        for order in symmetries(6):
            text = "".join("".join(rows_of(level))[i] for i in order)
            moved = level_of([text[i : i + 6] for i in range(0, 36, 6)])
            names.add(canonical_level(moved))
            texts.add(text)
        assert len(names) == 1 and len(texts) > 1
    assert len({canonical_level(level) for level in levels(20)}) == len(levels(20)) > 10


def test_splits_share_no_problem():
    env = make_env("sokoban", size=5, boxes=1)
    problems = [
        {env.canonical(task.data) for task in GeneratedTasks(env, split, seed=0).take(80)}
        for split in ("train", "validation", "test")
    ]
    assert not (problems[0] & problems[1] or problems[0] & problems[2] or problems[1] & problems[2])


def directions(cell, target):
    """Return the directions from one cell, as in `r1c2`, to another."""
    (row, column), (to_row, to_column) = (map(int, each[1:].split("c")) for each in (cell, target))
    said = {"UP": to_row < row, "DOWN": to_row > row}
    said |= {"LEFT": to_column < column, "RIGHT": to_column > column}
    return [move for move, holds in said.items() if holds] or ["here"]


def test_texts_tell_the_position_and_descriptions_are_true():
    env = make_env("sokoban", walls=0.2)
    for number in range(40):
        task = Task(id="t", env=env.name, seed=0, data=env.generate(generator(0, "text", number)))
        state = random_walk(env, task, generator(0, "walk", number), 6)
        seen, level = env.observe(state, "tool"), state.position
        told = dict(line.strip().split(" ", 1) for line in seen.text.split("\n"))
        cells = {name: told[name].split() for name in ("walls", "boxes", "goals", "you")}
        signs = {"boxes": "$*", "goals": ".*+", "you": "@+", "walls": "#"}
        rows = rows_of(level)
        for what, names in cells.items():
            inner = range(1, 5)
            true = [f"r{r}c{c}" for r in inner for c in inner if rows[r][c] in signs[what]]
            assert names == (true or ["none"])
        words, (you,) = seen.description.split(), cells["you"]
        for place, (move, (down, right)) in enumerate(STEPS.items()):
            row, column = (int(n) for n in you[1:].split("c"))
            sign = rows[row + down][column + right]
            what = "wall" if sign == "#" else "box" if sign in "$*" else "free"
            said = words[3 * place : 3 * place + 3]
            assert said == [move, f"r{row + down}c{column + right}", what]
        rest = words[12:]
        for box in cells["boxes"]:
            assert rest[:2] == [box, "you"]
            middle = rest.index("goal")
            assert rest[2:middle] == directions(you, box)
            end = next((i for i in range(middle, len(rest)) if rest[i][0] == "r"), len(rest))
            assert rest[middle + 1 : end] in [directions(box, goal) for goal in cells["goals"]]
            rest = rest[end:]
        assert not rest


def test_each_cell_is_one_token():
    env = make_env("sokoban", size=10, boxes=3, rounds=20)
    tokenizer = make_tokenizer([], env.vocabulary())
    task = Task(id="t", env=env.name, seed=0, data=env.generate(np.random.default_rng(0)))
    told = env.step(env.reset(task), "tool", "deadlock UP", np.random.default_rng(0)).state
    seen = env.observe(told, "planner")
    for text in (seen.text, seen.description):
        for word in text.split():
            assert word.isdigit() or len(tokenizer.encode(f" {word}")) == 1


def test_the_greedy_pusher_is_played_as_its_moves():
    for level in levels(30):
        position, moves = level, 0
        while moves < 24 and not rules.solved(position):
            after = rules.apply(position, greedy_move(position))
            if after is None:
                break
            position, moves = after, moves + 1
        assert greedy_solves(level, 24) == rules.solved(position)


@pytest.mark.parametrize(
    ("data", "cure"),
    [
        ({}, "a task has rows"),
        ({"rows": "#####"}, "a task has rows"),
        ({"rows": ["###", "#@#"]}, "give a square"),
        ({"rows": ["####", "#@$.", "#  #", "####"]}, "put # around it"),
        ({"rows": ["#####", "#@$ #", "#   #", "#   #", "#####"]}, "as many goals as boxes"),
        ({"rows": ["#####", "# $.#", "#   #", "#   #", "#####"]}, "one player"),
        ({"rows": ["#####", "#@* #", "#   #", "#   #", "#####"]}, "is solved, or dead"),
        ({"rows": ["#####", "#@.$#", "#   #", "#   #", "#####"]}, "is solved, or dead"),
        ({"rows": ["#####", "#@x #", "#   #", "#   #", "#####"]}, "give a square"),
    ],
)
def test_what_is_no_level_is_refused(data, cure):
    env = make_env("sokoban")
    with pytest.raises(DataError, match=cure):
        env.reset(Task(id="t", env=env.name, seed=0, data=data))


def test_where_no_level_is_hard_the_error_says_so():
    for hard, cure in ((True, "a reflex solves all of 5000 tasks"), (False, "moves: lower walls")):
        env = make_env("sokoban", size=5, boxes=1, least_pushes=2 if hard else 9, hard=hard)
        with pytest.raises(ConfigError, match=cure):
            env.generate(generator(0, "hard"))


def test_levels_that_the_greedy_pusher_solves_too_late_are_hard():
    env = make_env("sokoban", walls=0.2, rounds=24, moves_per_turn=1, round_limit=1.5, hard=True)
    drawn = [env.generate(generator(0, "late", number)) for number in range(30)]
    levels = [env.puzzle.first(data) for data in drawn]
    late = [greedy_solves(level, 24) for level in levels]
    assert 0 < sum(late) < 15
    for level, data in zip(levels, drawn, strict=True):
        assert not greedy_solves(level, data["rounds"])


def test_a_level_without_a_solution_is_refused_where_costs_are_its_moves():
    rows = ["#####", "#@  #", "#$  #", "#.$.#", "#####"]  # no known deadlock
    task = Task(id="t", env="sokoban", seed=0, data={"rows": rows})
    assert make_env("sokoban", cost="estimate").reset(task).costs == (2.0, 2.0)
    with pytest.raises(DataError, match="no solution of it is found"):
        make_env("sokoban", cost="moves", end_when_lost=True).reset(task)


def test_the_cost_in_moves_is_that_of_the_solver_and_tells_dead_levels():
    rng = generator(3, "cost")
    env = make_env("sokoban", cost="moves", walls=0.2).unwrapped
    dead = 0
    for _ in range(60):
        position = env.puzzle.first(env.generate(rng))
        for _ in range(24):
            found = solve(position)
            cost = env.costs(position)[0]
            assert env.costs(position) == (cost, cost)
            assert cost == (inf if found is None else len(found))
            dead += cost == inf and not rules.deadlock(position)
            move = MOVES[rng.integers(4)]
            position = rules.apply(position, move) or position
            if rules.solved(position):
                break
    assert dead > 0  # more than the simple test of deadlocks knows
