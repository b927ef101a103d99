"""The dense rewards of the planning recipes: what is paid for dithering, and for the best step."""

from __future__ import annotations

import pytest

from turnwise.envs import make_env
from turnwise.envs.myopic import MyopicPlayer
from turnwise.envs.planning.state import PLANNER, TOOL
from turnwise.recipe.schema import load_recipe
from turnwise.seeding import generator
from turnwise.types import Task

BACK = {"UP": "DOWN", "DOWN": "UP", "LEFT": "RIGHT", "RIGHT": "LEFT"}
DENSE = [f"{env}-{kind}" for env in ("plan-path", "sokoban") for kind in ("single", "two-policy")]
OTHERS = ["sudoku-single", "sudoku-two-policy", "n-queens-two-policy", "blocksworld-two-policy"]


def dither(env, state):
    """Return a planner's move that does not solve the puzzle, and that goes back where it can."""
    rules, last = env.puzzle.rules, state.last
    moves = sorted(rules.moves(state.position), key=lambda move: move != BACK.get(last))
    for move in moves:
        after = rules.apply(state.position, move)
        if after is not None and not rules.solved(after):
            return move
    return moves[0]


@pytest.mark.parametrize("useful", ["optimal calls", "random calls"])
@pytest.mark.parametrize("recipe", DENSE)
def test_two_hundred_dithering_steps_return_less_than_the_solver(recipe, useful):
    mix = load_recipe(recipe).credit.rewards
    made = load_recipe(recipe).env
    options = {"hard": False, "round_limit": None, "rounds": 200, "moves_per_turn": 1}
    env = make_env(made.name, **dict(made.options) | options)
    solver, less = env.baselines()["optimal"], 0
    for number in range(100):
        rng = generator(0, "dither", number)
        task = Task(id="t", env=env.name, seed=0, data=env.generate(rng))

        def wandering(state, rng):
            if env.acting(state) == (PLANNER,):
                return dither(env, state)
            return solver(state, rng) if useful == "optimal calls" else random_call(env, state, rng)

        returns = [returns_of(env, task, player, mix, rng) for player in (solver, wandering)]
        assert returns[1]["moves"] == 200
        less += all(returns[1][seat] < returns[0][seat] for seat in (TOOL, PLANNER, "all"))
    assert less == 100


def random_call(env, state, rng):
    return env.random_action(state, TOOL, rng)


def returns_of(env, task, player, mix, rng):
    """Return the weighted return of each seat, of all rewards, and the moves made."""
    state = env.reset(task)
    sums = dict.fromkeys((TOOL, PLANNER, "all"), 0.0)
    while not state.ended:
        (seat,) = env.acting(state)
        step = env.step(state, seat, player(state, rng), rng)
        state = step.state
        for name, value in step.rewards.items():
            team = env.components[name] == "team"
            for whose in (TOOL, PLANNER, "all") if team else (seat, "all"):
                sums[whose] += mix.get(name, 0.0) * value
    return sums | {"moves": state.moves}


@pytest.mark.parametrize("name", ["plan-path", "sokoban", "sudoku", "n-queens", "blocksworld"])
def test_with_the_cost_in_moves_each_move_of_the_solver_pays_the_same(name):
    env = make_env(name, cost="moves", moves_per_turn=1, rounds=100, round_limit=None).unwrapped
    rng = generator(4, "steps")
    for number in range(3):
        task = Task(id=str(number), env=name, seed=0, data=env.generate(rng))
        state = env.reset(task)
        start = len(env.puzzle.solve(state.position))
        assert env.costs(state.position) == (start, start)
        player = env.baselines()["optimal"]
        while not state.ended:
            (seat,) = env.acting(state)
            step = env.step(state, seat, player(state, rng), rng)
            state = step.state
            for component in ("progress", "move_useful") if seat == PLANNER else ():
                assert step.rewards[component] == pytest.approx(1 / start)
        assert state.solved and env.costs(state.position) == (0, 0)


def test_every_task_has_an_outcome_only_twin():
    for recipe in DENSE:
        twin, dense = load_recipe(recipe, ["preset=outcome"]), load_recipe(recipe)
        assert twin.credit.rewards == {"solved": 1.0, "invalid": -1.0}
        assert set(dense.credit.rewards) == {*make_env(dense.env.name).components, "invalid"}
        assert twin.env == dense.env


@pytest.mark.parametrize("recipe", DENSE + OTHERS)
def test_the_move_that_pays_most_at_once_solves_every_task(recipe):
    read = load_recipe(recipe)
    env = make_env(read.env.name, **read.env.options)
    assert read.credit.scheme == "at_grpo"  # which compares what single steps earn
    best_paid = MyopicPlayer(env, read.credit.rewards)
    for number in range(12):
        rng = generator(0, "paid", number)
        state = env.reset(Task(id="t", env=env.name, seed=0, data=env.generate(rng)))
        while not state.ended:
            (seat,) = env.acting(state)
            move = "legal" if seat == TOOL else best_paid(state, rng)
            state = env.step(state, seat, move, rng).state
        assert state.solved
