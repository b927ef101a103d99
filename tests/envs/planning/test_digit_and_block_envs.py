"""Sudoku, n-queens and blocksworld as envs: contract, texts, rewards, reflexes and splits."""

from __future__ import annotations

import json
from collections import Counter

import numpy as np
import pytest

from turnwise.envs import check_env, make_env, score_baselines
from turnwise.envs.planning.blocksworld import Blocksworld
from turnwise.envs.planning.sudoku_rules import COUNTS, EMPTY, candidates, shape_of
from turnwise.envs.planning.sudoku_solver import count_solutions, naked_single, solution_of
from turnwise.envs.planning.sudoku_symmetry import grid_class
from turnwise.errors import ConfigError, DataError
from turnwise.policies.nano import make_tokenizer
from turnwise.recipe.schema import load_recipe
from turnwise.tasks import GeneratedTasks
from turnwise.types import Task

RNG = np.random.default_rng(0)
UNITS = tuple(shape_of(36).lines)
NAMES = ("sudoku", "n-queens", "blocksworld")
SMALL = {
    "sudoku": {"size": 4, "clues": 8},
    "n-queens": {"size": 6, "given": 2},
    "blocksworld": {"blocks": 4},
}
MIXES = (
    {"progress": 1.0, "solved": 1.0},
    {"move_useful": 1.0},
    {"call_useful": 1.0, "solved": 0.1},
    {"solved": 1.0, "progress": 1.0, "move_useful": 1.0, "call_useful": 1.0},
    {"solved": 0.1, "progress": 0.8, "move_useful": 2.0, "illegal": -0.1, "call_failed": -0.1},
    {"solved": 5.0, "call_useful": 3.0, "illegal": -1.0},
)


def task_of(env, data):
    return Task(id="t", env=env.name, seed=0, data=data)


def drawn(env, number):
    """Return the first state of a drawn task."""
    return env.reset(task_of(env, env.generate(np.random.default_rng(number))))


def play(env, state, player, rng, most_turns=400):
    """Return the summed components of an episode, and the last state."""
    total = dict.fromkeys(env.components, 0.0)
    for _ in range(most_turns):
        seat = env.acting(state)[0]
        step = env.step(state, seat, player(state, rng), rng)
        for name, value in step.rewards.items():
            total[name] += value
        state = step.state
        if step.terminated or step.truncated:
            break
    return total, state


def mixed(total, weights):
    return sum(weight * total[name] for name, weight in weights.items())


@pytest.mark.parametrize(
    ("name", "options"),
    [
        ("sudoku", {"size": 4, "clues": 5}),
        ("sudoku", {"size": 6, "clues": 14, "hard": True}),
        ("sudoku", {"size": 9, "clues": 60, "rounds": 6}),
        ("n-queens", {"roles": "one"}),
        ("n-queens", {"size": 4, "given": 1, "moves_per_turn": 1}),
        ("n-queens", {"size": 6, "given": 2, "hard": True}),
        ("blocksworld", {"roles": "one"}),
        ("blocksworld", {"blocks": 5, "places": 5, "hard": False, "moves_per_turn": 1}),
        ("blocksworld", {"blocks": 5, "hard": True}),
    ],
)
def test_the_contract_is_kept(name, options):
    env = make_env(name, **options)
    assert check_env(env, tasks=3).longest <= 2 * env.config.rounds


@pytest.mark.parametrize("name", NAMES)
def test_every_word_that_is_shown_is_one_token(name):
    env = make_env(name)
    tokenizer = make_tokenizer([], env.vocabulary())
    for number in range(4):
        state = drawn(env, number)
        for _ in range(6):
            seat = env.acting(state)[0]
            seen = env.observe(state, seat)
            action = env.random_action(state, seat, RNG)
            for text in (seen.text, seen.description, action):
                for word in text.split():
                    if not word.isdigit() or len(word) == 1:  # numbers are spelt in digits
                        assert len(tokenizer.encode(f" {word}")) == 1, word
            state = env.step(state, seat, action, RNG).state
            if state.ended:
                break


@pytest.mark.parametrize("name", NAMES)
def test_the_solver_solves_every_task_and_random_play_hardly_any(name):
    env = make_env(name, **SMALL[name])
    tasks = GeneratedTasks(env, "test", seed=0).take(40)
    scores = score_baselines(env, tasks, seed=0)
    assert scores["optimal"].mean == 1
    assert scores["random"].mean < 0.2
    assert all(score.broken == 0 for score in scores.values())
    assert all(scores[n].mean < 0.2 for n in scores if n.startswith("always-"))


@pytest.mark.parametrize(("share", "least", "most"), [(0.0, 0, 12), (0.5, 12, 28), (1.0, 40, 40)])
def test_a_share_of_sudokus_begins_where_no_cell_has_one_candidate(share, least, most):
    env = make_env("sudoku", stuck_share=share, rounds=24, moves_per_turn=1)
    boards = ["".join(t.data["rows"]) for t in GeneratedTasks(env, "train", seed=0).take(40)]
    assert least <= sum(naked_single(board) is None for board in boards) <= most
    assert all(count_solutions(board) == 1 for board in boards)
    assert any(board.count(".") < 24 for board in boards) == bool(share)


def test_stuck_tasks_need_a_size_that_has_them():
    with pytest.raises(ConfigError, match="stuck_share = 0.5 with size = 4: a reflex solves all"):
        make_env("sudoku", size=4, clues=6, stuck_share=0.5)


def test_an_episode_is_cut_after_rounds_that_need_not_solve_the_puzzle():
    plain, cut = (make_env("sudoku", rounds=24, moves_per_turn=1, cut_after=n) for n in (None, 2))
    task = GeneratedTasks(plain, "test", seed=0).take(1)[0]
    state, steps = cut.reset(task), []
    assert state.left == 2 and plain.reset(task).left == 24
    while not state.ended:
        (seat,) = cut.acting(state)
        steps.append(cut.step(state, seat, cut.baselines()["optimal"](state, RNG), RNG))
        state = steps[-1].state
    assert [step.truncated for step in steps] == [False, False, False, True]
    assert state.moves == 2 and cut.score(state) == 0
    assert make_env("sudoku", rounds=24, moves_per_turn=1, cut_after=99).reset(task).left == 24


def test_random_narrow_fills_what_is_shown_and_asks_and_waits():
    options = {"rounds": 48, "waits": 2, "moves_per_turn": 1, "stuck_share": 0.5}
    env = make_env("sudoku", described=True, **options)
    play = env.baselines()["random-narrow"]
    rng, drawn, said = np.random.default_rng(0), set(), Counter()
    for task in GeneratedTasks(env, "test", seed=0).take(10):
        state = env.reset(task)
        while not state.ended:
            (seat,) = env.acting(state)
            shown = env.observe(state, seat).text
            described = shown[shown.index("narrow") :].splitlines()[0]
            named = [word for word in described.split() if "=" in word]
            own = env.puzzle.description(state.position).split()
            action = play(state, rng)
            kind, _, words = action.rpartition(" ")
            if seat == "tool":
                assert kind == "apply" or (kind == "places" and words in UNITS)
                assert kind == "apply" or f"call {action}" not in shown
            if "=" in words and "none" not in described:
                assert words in named
                drawn.add(sum(word in COUNTS for word in described.split(f" {words}")[0].split()))
                said["of a result"] += words not in own
            said[kind or words.partition("=")[1] or words] += 1
            state = env.step(state, seat, action, rng).state
    assert drawn == {1, 2, 3, 4}
    assert all(said[kind] > 20 for kind in ("apply", "places", "wait", "=")), said
    assert said["of a result"]


@pytest.mark.parametrize(
    ("name", "options"),
    [
        ("sudoku", {"hard": True, "clues": 12}),
        ("n-queens", {}),
        ("blocksworld", {}),
    ],
)
def test_reflexes_close_at_most_half_of_the_gap(name, options):
    env = make_env(name, **options)
    tasks = GeneratedTasks(env, "test", seed=0).take(60)
    scores = score_baselines(env, tasks, seed=0)
    reflexes = set(env.puzzle.reflexes()) | ({"guesser"} if name == "sudoku" else set())
    best = max(scores[reflex].mean for reflex in reflexes)
    random, solver = scores["random"].mean, scores["optimal"].mean
    assert (best - random) / (solver - random) <= 0.5 + 2 * np.sqrt(0.25 / 60)


@pytest.mark.parametrize(
    ("name", "options"),
    [
        ("sudoku", {"size": 6, "clues": 14, "rounds": 6}),
        ("n-queens", {"size": 8}),
        ("blocksworld", {"blocks": 5}),
    ],
)
def test_reflexes_fail_all_hard_tasks(name, options):
    env = make_env(name, hard=True, **options)
    for number in range(12):
        state = drawn(env, number)
        for reflex in env.puzzle.reflexes():
            assert env.score(play(env, state, env.baselines()[reflex], RNG)[1]) == 0
        assert env.score(play(env, state, env.baselines()["optimal"], RNG)[1]) == 1


def dither(env, state, rng):
    """Return the components of 200 turns that go back and forth and never solve the puzzle."""
    total, done = dict.fromkeys(env.components, 0.0), []
    for turn in range(200):
        seat = env.acting(state)[0]
        if seat == "tool":  # proposes good and bad moves in turn
            found = env.puzzle.solve(state.position) or env.puzzle.rules.moves(state.position)
            moves = found[:4] if turn % 4 else [env.puzzle.rules.moves(state.position)[0]]
            step = env.step(state, seat, f"apply {' '.join(moves)}", rng)
        else:
            step, move = undo_or_move(env, state, rng, done)
            done.append(move)
        for name, value in step.rewards.items():
            total[name] += value
        state = step.state
        assert not step.terminated
        if step.truncated:
            break
    return total


def undo_or_move(env, state, rng, done):
    """Return a step that takes the last move back, or another move that does not solve."""
    rules, here = env.puzzle.rules, state.position
    after = {move: rules.apply(here, move) for move in rules.moves(here)}
    legal = [move for move, there in after.items() if there is not None and not rules.solved(there)]
    moves = legal or [move for move, there in after.items() if there is None]
    move = moves[rng.integers(len(moves))]
    if env.name == "blocksworld" and done and len(done) % 2:  # the block that moved moves back
        back = [m for m in moves if m.split()[0] == done[-1].split()[0]]
        move = back[rng.integers(len(back))] if back else move
    return env.step(state, "planner", move, rng), move


@pytest.mark.parametrize("name", NAMES)
def test_dithering_returns_less_than_the_solver_for_every_mix(name):
    options = {"rounds": 100, **({"round_limit": None} if name == "blocksworld" else {})}
    env = make_env(name, **SMALL[name], **options)
    solver = env.baselines()["optimal"]
    shipped = load_recipe(f"{name}-two-policy").credit.rewards
    mixes = (*MIXES, {key: shipped[key] for key in shipped if key in env.components})
    for number in range(100):
        rng, state = np.random.default_rng(number), drawn(env, number)
        best = play(env, state, solver, rng)[0]
        idle = dither(env, state, rng)
        for weights in mixes:
            assert mixed(idle, weights) < mixed(best, weights), (number, weights)


@pytest.mark.parametrize("name", NAMES)
def test_the_outcome_alone_is_a_reward(name):
    env = make_env(name, **SMALL[name])
    total, state = play(env, drawn(env, 1), env.baselines()["optimal"], RNG)
    assert (total["solved"], env.score(state)) == (1.0, 1.0)
    assert total["progress"] == total["move_useful"] == total["call_useful"] == 1.0
    assert env.components["solved"] == env.components["progress"] == "team"


def test_a_wrong_digit_cannot_be_taken_back():
    env = make_env("sudoku", size=4, clues=6)
    for number in range(20):
        state = drawn(env, number)
        board, solution = state.position.board, solution_of(state.position.clues)
        wrong = [
            (cell, digit)
            for cell, here in enumerate(board)
            if here == EMPTY
            for digit in candidates(board, cell)
            if digit != solution[cell]
        ]
        if not wrong:
            continue
        cell, digit = wrong[0]
        name = shape_of(16).names[cell]
        state = env.step(state, "tool", f"apply {name}={digit}", RNG).state
        step = env.step(state, "planner", f"{name}={digit}", RNG)
        assert step.rewards["move_useful"] == -1.0
        assert step.rewards["progress"] == step.rewards["illegal"] == 0.0
        assert env.puzzle.solve(step.state.position) is None
        again = env.step(step.state, "tool", "consistent", RNG).state
        assert env.step(again, "planner", f"{name}={solution[cell]}", RNG).rewards["illegal"] == 1


def test_descriptions_are_true():
    sudoku = make_env("sudoku", size=4, clues=10)
    rows = {"rows": ["12.4", "34.2", "2.43", "4..1"]}
    seen = sudoku.observe(sudoku.reset(task_of(sudoku, rows)), "tool")
    assert seen.description == "narrow one r0c2=3 one r1c2=1 one r2c1=1 one r3c1=3"
    queens = make_env("n-queens", size=4, given=1)
    seen = queens.observe(queens.reset(task_of(queens, {"rows": "1..."})), "tool")
    assert seen.description == "r1 free r1c3"
    blocks = make_env("blocksworld", blocks=4)
    state = blocks.reset(task_of(blocks, {"on": "0120", "goal": "0010"}))
    seen = blocks.observe(state, "tool")
    assert seen.text.split("\n") == [
        "places 3", " now b1 b2 b3", " now b4", " goal b1 b3", " goal b2", " goal b4", " your call"
    ]  # fmt: skip
    assert seen.description == "clear b3 b4 placed b1 b4"
    assert blocks.render(state) == "now  b1 b2 b3 | b4\ngoal b1 b3 | b2 | b4"


def test_boards_are_rendered_for_people():
    env = make_env("sudoku", size=4, clues=10)
    rows = {"rows": ["12.4", "34.2", "2.43", "4..1"]}
    assert env.render(env.reset(task_of(env, rows))).split("\n")[:3] == [
        "1 2 | . 4", "3 4 | . 2", "----+----"
    ]  # fmt: skip
    queens = make_env("n-queens", size=4, given=1)
    assert (
        queens.render(queens.reset(task_of(queens, {"rows": "1..."}))).split("\n")[0] == ". Q . ."
    )


@pytest.mark.parametrize("name", NAMES)
def test_tasks_are_values_of_json_and_equal_for_equal_draws(name):
    env = make_env(name, **SMALL[name])
    for number in range(5):
        data = env.generate(np.random.default_rng(number))
        assert json.loads(json.dumps(data)) == data
        assert env.generate(np.random.default_rng(number)) == data


@pytest.mark.parametrize("name", NAMES)
def test_no_problem_is_in_two_splits(name):
    env = make_env(name, **(SMALL[name] | ({"size": 8} if name == "n-queens" else {})))
    splits = {}
    for split in ("train", "validation", "test"):
        for task in GeneratedTasks(env, split, seed=0).take(40):
            assert splits.setdefault(env.canonical(task.data), split) == split


def test_puzzles_of_nine_rows_are_divided_by_their_solutions():
    env = make_env("sudoku", size=9, clues=60, rounds=6)
    board = drawn(env, 3).position.clues
    fewer = board
    for cell in np.flatnonzero([d != EMPTY for d in board])[:1].tolist():
        fewer = f"{board[:cell]}{EMPTY}{board[cell + 1 :]}"
    rows = [[text[i : i + 9] for i in range(0, 81, 9)] for text in (board, fewer)]
    first, second = (env.canonical({"rows": each}) for each in rows)
    assert first == second == grid_class(solution_of(board))


def test_blocks_with_a_place_each_are_stacked_without_planning():
    env = make_env("blocksworld", blocks=5, places=5)
    tasks = GeneratedTasks(env, "test", seed=0).take(40)
    assert score_baselines(env, tasks, seed=0, names=["stacker"])["stacker"].mean > 0.8
    assert isinstance(env, Blocksworld)


@pytest.mark.parametrize(
    ("options", "words"),
    [
        ({"size": 4, "clues": 3}, "give 4 to 15"),
        ({"size": 5}, "size"),
        (
            {"size": 6, "clues": 12, "rounds": 2},
            "24 cells are empty, and 2 rounds of 4 moves fill 8",
        ),
        ({"size": 4, "clues": 6, "hard": True}, "a reflex solves all puzzles of 4 rows"),
    ],
)
def test_wrong_options_of_sudoku_are_refused(options, words):
    with pytest.raises(ConfigError, match=words):
        make_env("sudoku", **options)


@pytest.mark.parametrize(
    ("rows", "words"),
    [
        (["12.4", "3412", "2143"], "give 4 rows of 4 digits"),
        (None, "give 4 rows of 4 digits"),
        (5, "give 4 rows of 4 digits"),
        (["1234", "3412", "2143", "4321"], "empty cell"),
        (["12.5", "3412", "2143", "432."], "digits from 1 to 4"),
        (["....", "....", "....", "...."], "has not exactly one solution"),
        (["11.4", "3412", "2143", "432."], "has not exactly one solution"),
    ],
)
def test_boards_that_are_no_tasks_are_refused(rows, words):
    env = make_env("sudoku", size=4, clues=6)
    with pytest.raises(DataError, match=words):
        env.reset(task_of(env, {"rows": rows}))
