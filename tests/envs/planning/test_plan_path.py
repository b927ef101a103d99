"""Plan-path: paths against networkx, symmetries, texts, reflexes, and tasks that are refused."""

from __future__ import annotations

import numpy as np
import pytest

from turnwise.envs import make_env
from turnwise.envs.planning import plan_path_rules as rules
from turnwise.envs.planning.plan_path import BACK, greedy_step, path_lengths
from turnwise.envs.planning.squares import symmetries
from turnwise.envs.random_play import random_walk
from turnwise.errors import ConfigError, DataError
from turnwise.policies.nano import make_tokenizer
from turnwise.seeding import generator
from turnwise.tasks import GeneratedTasks
from turnwise.types import Task

STEPS = {"UP": (-1, 0), "DOWN": (1, 0), "LEFT": (0, -1), "RIGHT": (0, 1)}


def drawn(env, count):
    return [env.generate(generator(0, "path", number)) for number in range(count)]


@pytest.mark.parametrize("size", [3, 5, 10, 20])
def test_solutions_are_shortest_paths(size):
    networkx = pytest.importorskip("networkx")
    env = make_env("plan-path", size=size, rounds=100, walls=0.3)
    for data in drawn(env, 40):
        graph = networkx.grid_2d_graph(size, size)
        walls = [(r, c) for r in range(size) for c in range(size) if data["rows"][r][c] == "#"]
        graph.remove_nodes_from(walls)
        lengths = networkx.single_source_shortest_path_length(graph, tuple(data["goal"]))
        first = env.puzzle.first(data)
        found = path_lengths(first.board, size, first.goal)
        assert {(i // size, i % size): n for i, n in enumerate(found) if n < np.inf} == lengths
        cell, path = tuple(data["start"]), env.puzzle.solve(first)
        for move in path:
            cell = (cell[0] + STEPS[move][0], cell[1] + STEPS[move][1])
            assert cell in graph
        assert cell == tuple(data["goal"]) and len(path) == lengths[tuple(data["start"])]


def test_symmetric_tasks_are_one_problem():
    env = make_env("plan-path", size=5)
    for data in drawn(env, 30):
        first, names, boards = env.puzzle.first(data), set(), set()
        for order in symmetries(5):
            board = "".join(first.board[i] for i in order)
            at, goal = order.index(first.at), order.index(first.goal)
            moved = {
                "rows": [board[i : i + 5] for i in range(0, 25, 5)],
                "start": list(divmod(at, 5)),
                "goal": list(divmod(goal, 5)),
            }
            names.add(env.canonical(moved))
            boards.add((board, at, goal))
            assert len(env.puzzle.solve(env.puzzle.first(moved))) == len(env.puzzle.solve(first))
        assert len(names) == 1 and len(boards) > 1
    assert len({env.canonical(data) for data in drawn(env, 30)}) == 30


def test_splits_share_no_problem():
    env = make_env("plan-path", size=4, walls=0.3)
    problems = [
        {env.canonical(task.data) for task in GeneratedTasks(env, split, seed=0).take(150)}
        for split in ("train", "validation", "test")
    ]
    assert not (problems[0] & problems[1] or problems[0] & problems[2] or problems[1] & problems[2])


def test_texts_tell_the_position_and_descriptions_are_true():
    env = make_env("plan-path", size=6, walls=0.3)
    for number, data in enumerate(drawn(env, 60)):
        task = Task(id="t", env=env.name, seed=0, data=data)
        state = random_walk(env, task, generator(0, "walk", number), 6)
        seen = env.observe(state, "tool")
        lines = dict(line.strip().split(" ", 1) for line in seen.text.split("\n"))
        walls = {f"r{r}c{c}" for r in range(6) for c in range(6) if data["rows"][r][c] == "#"}
        assert set(lines["walls"].split()) == (walls or {"none"})
        row, column = (int(number) for number in lines["you"][1:].split("c"))
        assert lines["goal"] == "r{}c{}".format(*data["goal"])
        words = seen.description.split(" goal ")
        said = words[0].split()
        for move, (down, right) in STEPS.items():
            cell = f"r{row + down}c{column + right}"
            place = said.index(move)
            if 0 <= row + down < 6 and 0 <= column + right < 6:
                free = "wall" if cell in walls else "free"
                assert said[place + 1 : place + 3] == [cell, free]
            else:
                assert said[place + 1] == "edge"
        to_row, to_column = data["goal"]
        true = {"DOWN": to_row > row, "UP": to_row < row}
        true |= {"RIGHT": to_column > column, "LEFT": to_column < column}
        assert set(words[1].split()) == {move for move, holds in true.items() if holds} or {"here"}


def test_each_cell_is_one_token():
    env = make_env("plan-path", size=20)
    tokenizer = make_tokenizer([], env.vocabulary())
    state = env.reset(Task(id="t", env=env.name, seed=0, data=drawn(env, 1)[0]))
    told = env.step(state, "tool", "apply UP UP", np.random.default_rng(0)).state
    seen = env.observe(told, "planner")
    for text in (f" {seen.text}", f" {seen.description}"):
        words = [word for line in text.split("\n") for word in line.split()]
        lengths = [len(tokenizer.encode(f" {word}")) for word in words]
        assert {n for n, word in zip(lengths, words, strict=True) if not word.isdigit()} == {1}
        assert len(tokenizer.encode(text)) == sum(lengths) + text.count("\n")


def test_the_greedy_walker_turns_back_in_dead_ends_only():
    env, turned = make_env("plan-path", size=8, walls=0.3, rounds=20), 0
    for data in drawn(env, 100):
        position, last = env.puzzle.first(data), ""
        for _ in range(30):
            move = greedy_step(position, last, rules.MOVES)
            after = rules.apply(position, move)
            if after is None:
                break
            others = [
                other
                for step in rules.MOVES
                if step != BACK.get(last) and (other := rules.apply(position, step)) is not None
            ]
            if move == BACK.get(last):
                turned += 1
                assert not others
            else:
                nearest = min(rules.walk_length(other, other.goal) for other in others)
                assert rules.walk_length(after, after.goal) == nearest
            if rules.solved(after):
                break
            position, last = after, move
    assert turned


def test_options_shape_the_tasks():
    env = make_env("plan-path", size=7, walls=0.3, least_path=4, least_detour=2, rounds=3)
    for data in drawn(env, 30):
        first = env.puzzle.first(data)
        length = len(env.puzzle.solve(first))
        assert 4 <= length <= 12
        assert length - rules.walk_length(first, first.goal) >= 2
    with pytest.raises(ConfigError, match="no 3x3 board in 1000 draws has a path of 9 to 16"):
        make_env("plan-path", size=3, least_path=9, walls=0.6).generate(np.random.default_rng(0))


@pytest.mark.parametrize(
    "data",
    [
        {},
        {"rows": 3, "start": [0, 0], "goal": [0, 1]},
        {"rows": ["..", "."], "start": [0, 0], "goal": [0, 1]},
        {"rows": ["..", ".x"], "start": [0, 0], "goal": [0, 1]},
        {"rows": ["..", ".."], "start": [0, 0], "goal": [0, 2]},
        {"rows": ["..", ".."], "start": [0, 0], "goal": [0, 0]},
        {"rows": [".#", "#."], "start": [0, 0], "goal": [1, 1]},
        {"rows": [".#", ".."], "start": [0, 1], "goal": [1, 1]},
        {"rows": ["..", ".."], "start": ["a", 0], "goal": [1, 1]},
        {"rows": ["..", ".."], "start": [float("inf"), 0], "goal": [1, 1]},
        {"rows": ["..", ".."], "start": [0.9, 0], "goal": [1, 1]},
        {"rows": ["..", ".."], "start": [0], "goal": [0, 1, 1]},
        {"rows": ["..", ".."], "start": [0, 0], "goal": [1, 1], "rounds": True},
    ],
)
def test_what_is_no_task_is_refused(data):
    env = make_env("plan-path")
    with pytest.raises(DataError, match="give"):
        env.reset(Task(id="t", env=env.name, seed=0, data=data))
