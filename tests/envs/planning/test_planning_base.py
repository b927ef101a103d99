"""The env of planning puzzles: who acts and sees what, how calls are read, what rewards sum to."""

from __future__ import annotations

from dataclasses import replace
from itertools import pairwise

import numpy as np
import pytest

from turnwise.envs import check_env, make_env
from turnwise.envs.planning import library, plan_path_rules
from turnwise.envs.planning.state import DEAD, PLANNER, TOOL, potential
from turnwise.errors import ConfigError, DataError, EnvError, IllegalActionError
from turnwise.seeding import generator
from turnwise.types import Task

RNG = np.random.default_rng(0)
ROWS = ["....", ".##.", "....", "...."]


def made(env="plan-path", **options):
    return make_env(env, **options)


def begun(env, start=(0, 0), goal=(2, 2), **data):
    data = {"rows": ROWS, "start": list(start), "goal": list(goal), **data}
    return env.reset(Task(id="t", env=env.name, seed=0, data=data))


def play(env, state, *actions):
    """Return the state after actions, and the rewards of each."""
    paid = []
    for action in actions:
        step = env.step(state, env.acting(state)[0], action, RNG)
        state = step.state
        paid.append(dict(step.rewards))
    return state, paid, step


@pytest.mark.parametrize("roles", ["two", "one"])
@pytest.mark.parametrize("moves", [1, 3])
@pytest.mark.parametrize("env", ["plan-path", "sokoban"])
def test_the_contract_is_kept(env, roles, moves):
    longest = check_env(made(env, roles=roles, moves_per_turn=moves, rounds=12)).longest
    assert longest == 24


def test_the_tool_acts_first_and_the_planner_sees_its_result():
    env = made(size=4)
    state = begun(env)
    assert env.acting(state) == (TOOL,)
    told, paid, _ = play(env, state, "apply DOWN DOWN")
    assert env.acting(told) == (PLANNER,)
    assert env.observe(told, TOOL).text == env.observe(state, TOOL).text
    lines = env.observe(told, PLANNER).text.split("\n ")
    assert lines[-3:] == ["call apply DOWN DOWN", "ran 2 r2c0 distance 2", "your move"]
    assert env.observe(state, PLANNER).text.split("\n ")[-2:] == ["no call", "your move"]
    assert paid == [{"call_useful": 0.5, "call_failed": 0.0, "call_idle": 0.0}]


def test_both_seats_may_be_of_one_role():
    env = made(roles="one")
    assert (env.roles, dict(env.seats)) == (("player",), {TOOL: "player", PLANNER: "player"})
    assert made().roles == (TOOL, PLANNER) == tuple(made().seats)


@pytest.mark.parametrize(
    "call",
    [
        "",
        "fly",
        "legal now",
        "apply",
        "apply NORTH",
        "apply UP UP UP UP UP",
        "distance",
        "distance r9c9",
        "distance r0c0 r0c1",
        "__import__('os').system('true')",
        "apply " + "UP " * 400,
        "LEGAL",
    ],
)
def test_a_call_without_an_answer_fails_and_the_episode_goes_on(call):
    env = made(size=4, moves_per_call=4)
    told, paid, step = play(env, begun(env), call)
    assert paid == [{"call_useful": 0.0, "call_failed": 1.0, "call_idle": 1.0}]
    assert told.calls == (("failed", "no result"),)
    assert not (step.terminated or step.truncated)


def team_of(tools, planners, **options):
    return make_env("plan-path", tools=tools, planners=planners, **options)


def test_several_tools_call_and_several_planners_propose_before_the_judge_moves():
    env = team_of(2, 2, size=3)
    assert list(env.seats) == ["tool-1", "tool-2", "planner-1", "planner-2", "judge"]
    assert env.roles == (TOOL, PLANNER, "judge")
    assert env.max_turns == 5 * env.config.rounds
    state = begun(env)
    seen = {}
    for action in ("legal", "apply RIGHT", "RIGHT", "DOWN DOWN", "RIGHT DOWN"):
        (seat,) = env.acting(state)
        seen[seat] = env.observe(state, seat).text.split("\n ")
        state = play(env, state, action)[0]
    calls = ["call legal", seen["tool-2"][-2], "call apply RIGHT", seen["planner-1"][-2]]
    assert seen["tool-1"][-1:] == seen["tool-2"][-1:] == ["your call"]
    assert seen["tool-2"][-3:-1] == calls[:2]
    assert seen["planner-1"][-5:] == [*calls, "your plan"]
    assert seen["planner-2"][-6:] == [*calls, "plan RIGHT", "your plan"]
    assert seen["judge"][-7:] == [*calls, "plan RIGHT", "plan DOWN DOWN", "your move"]
    assert (state.left, state.turn, state.calls, state.plans) == (env.config.rounds - 1, 0, (), ())
    assert state.moves > 0


def test_each_seat_answers_for_its_own_proposals():
    env = team_of(2, 2, size=3)
    rng = np.random.default_rng(5)
    for _ in range(20):
        state = env.reset(Task(id="t", env=env.name, seed=0, data=env.generate(rng)))
        sums = dict.fromkeys(env.seats, 0.0)
        while not state.ended:
            (seat,) = env.acting(state)
            state, paid, _ = play(env, state, env.random_action(state, seat, rng))
            sums[seat] += paid[0].get("call_useful", 0.0)
        *proposing, judge = env.seats
        assert [sums[seat] for seat in proposing] == pytest.approx(state.proposed)
        assert sums[judge] == 0


def test_a_forbidden_proposal_is_told_and_changes_nothing():
    env = team_of(1, 2, size=3)
    state = play(env, begun(env), "legal")[0]
    after, paid, _ = play(env, state, "UP")
    assert (after.position, after.plans, paid[0]["illegal"]) == (state.position, ("UP",), 1.0)
    with pytest.raises(IllegalActionError, match="no list of moves"):
        env.step(state, "planner-1", "jump", RNG)


@pytest.mark.parametrize("roles", ["two", "one"])
@pytest.mark.parametrize("runner", ["call", "sandbox"])
def test_ensembles_keep_the_contract(roles, runner):
    env = team_of(2, 2, size=3, roles=roles, runner=runner)
    assert check_env(env).longest == env.max_turns


def test_calls_are_answered():
    env = made(size=4)
    answers = {
        "legal": "DOWN RIGHT",
        "distance r3c3": "r3c3 distance 6",
        "apply  RIGHT   DOWN": "ran 1 r0c1 distance 3",
        "apply UP": "ran 0 r0c0 distance 4",
    }
    for call, answer in answers.items():
        assert play(env, begun(env), call)[0].calls[0][1] == answer


@pytest.mark.parametrize(
    ("call", "moves", "idle"),
    [
        ("apply RIGHT", "RIGHT", (0.0, 0.0)),
        ("legal", "UP", (1.0, 1.0)),
        ("apply UP", "RIGHT LEFT", (1.0, 1.0)),
        ("apply RIGHT LEFT", "DOWN UP UP", (1.0, 1.0)),
    ],
)
def test_calls_and_moves_that_change_nothing_are_counted(call, moves, idle):
    paid = play(made(size=4), begun(made(size=4)), call, moves)[1]
    assert (paid[0]["call_idle"], paid[1]["idle"]) == idle
    assert "idle" not in paid[0] and "call_idle" not in paid[1]


@pytest.mark.parametrize("name", ["plan-path", "sokoban", "sudoku", "n-queens", "blocksworld"])
def test_a_described_position_is_in_the_text(name):
    plain, told = make_env(name), make_env(name, described=True)
    state = plain.reset(Task(id="t", env=name, seed=0, data=plain.generate(RNG)))
    seen, said = plain.observe(state, "tool"), told.observe(state, "tool")
    assert seen.description and not said.description
    lines = seen.text.split("\n ")
    assert said.text.split("\n ") == [*lines[:-1], seen.description, lines[-1]]


@pytest.mark.parametrize("moves", [1, 2])
def test_the_last_moves_are_told_whether_they_were_made_or_not(moves):
    env = made(size=4, moves_per_turn=moves, last_moves=3, rounds=9)
    state = begun(env)
    told = []
    for answer in ("DOWN", "LEFT", "UP", "RIGHT"):  # the step to the left leaves the board
        told.append([line for line in env.observe(state, TOOL).text.split("\n ") if "last" in line])
        state = play(env, state, "apply RIGHT")[0]
        assert told[-1] == env.observe(state, PLANNER).text.split("\n ")[-4:-3]
        state = play(env, state, answer)[0]
    assert told == [["last none"], ["last DOWN"], ["last DOWN LEFT"], ["last DOWN LEFT UP"]]
    assert state.tried == ("LEFT", "UP", "RIGHT") and "last" in env.vocabulary()
    assert check_env(env).longest == 18


def test_of_a_list_the_moves_up_to_the_forbidden_one_are_told():
    env = made(size=4, moves_per_turn=6, last_moves=2)
    assert play(env, begun(env), "legal", "DOWN RIGHT RIGHT")[0].tried == ("DOWN", "RIGHT")
    assert play(made(size=4), begun(made(size=4)), "legal", "DOWN")[0].tried == ()


def test_results_are_bounded():
    assert len(library.shortened("word " * 1000)) <= library.MOST_SHOWN
    assert library.shortened("x" * 1000) == "x" * library.MOST_SHOWN


def test_a_forbidden_move_ends_a_list_and_a_solved_puzzle_too():
    env = made(size=4, moves_per_turn=6)
    after, paid, step = play(env, begun(env), "legal", "DOWN RIGHT RIGHT")
    assert (after.moves, after.last, paid[1]["illegal"]) == (1, "DOWN", 1.0)
    assert paid[1]["progress"] == 0.25 == paid[1]["move_useful"]
    after, paid, step = play(env, begun(env), "legal", "RIGHT RIGHT RIGHT DOWN DOWN LEFT")
    assert paid[1]["solved"] == paid[1]["progress"] == 1.0 and step.terminated
    assert env.score(after) == 1.0 and paid[1]["illegal"] == 0.0
    with pytest.raises(EnvError, match="the episode is over"):
        env.step(after, TOOL, "legal", RNG)
    past = play(env, begun(env, goal=(0, 1)), "legal", "RIGHT LEFT UP")
    assert (past[0].moves, past[1][1]["illegal"], past[2].terminated) == (1, 0.0, True)


@pytest.mark.parametrize("text", ["", "NORTH", "UP UP UP", "up", "UP; DOWN", "UP " * 2000])
def test_what_is_no_list_of_moves_is_refused(text):
    env = made(size=4, moves_per_turn=2)
    told = play(env, begun(env), "legal")[0]
    with pytest.raises(IllegalActionError, match="is no list of moves"):
        env.step(told, PLANNER, text, RNG)


def test_the_wrong_seat_is_refused():
    env = made(size=4)
    with pytest.raises(EnvError, match="'planner' acts and it is the turn of 'tool'"):
        env.step(begun(env), PLANNER, "UP", RNG)


def test_one_move_a_turn_has_legal_words():
    env = made(size=4, moves_per_turn=1)
    state = begun(env)
    assert env.observe(state, PLANNER).legal_actions == plan_path_rules.MOVES
    assert env.observe(state, TOOL).legal_actions == ()


def test_rounds_truncate_and_a_task_may_have_fewer():
    env = made(size=4, rounds=3, moves_per_turn=1)
    state, ends = begun(env, rounds=2), []
    for action in ("legal", "DOWN", "legal", "UP"):
        state, _, step = play(env, state, action)
        ends.append((step.terminated, step.truncated))
    assert ends == [(False, False)] * 3 + [(False, True)]
    assert env.measures(state) == {"rounds": 2.0, "moves": 2.0}
    for rounds in (0, 4, "2"):
        with pytest.raises(DataError, match="give 1 to 3"):
            begun(env, rounds=rounds)


def test_the_round_limit_is_a_multiple_of_what_the_solver_needs():
    env = made(size=6, rounds=20, moves_per_turn=2, round_limit=1.5)
    for number in range(50):
        data = env.generate(generator(0, "limit", number))
        needed = -(-len(env.puzzle.solve(env.puzzle.first(data))) // 2)
        assert data["rounds"] == min(20, int(np.ceil(1.5 * needed)))


@pytest.mark.parametrize("name", ["plan-path", "blocksworld"])
def test_a_puzzle_that_cannot_be_lost_has_no_such_end(name):
    with pytest.raises(ConfigError, match="end_when_lost = true: every position .* leave it out"):
        make_env(name, end_when_lost=True)
    make_env(name, end_when_lost=False)


def test_an_episode_may_end_when_the_puzzle_is_lost():
    for ends in (False, True):
        env = made("sudoku", size=4, clues=5, rounds=11, moves_per_turn=1, end_when_lost=ends)
        data = env.generate(generator(0, "lost"))
        state = env.reset(Task(id="t", env="sudoku", seed=0, data=data))
        right, *later = env.puzzle.solve(state.position)
        state, paid, step = play(env, state, "legal", right)
        assert (step.terminated, state.lost, state.ended) == (False, False, False)
        rules = env.puzzle.rules
        wrong = next(
            move
            for move in rules.moves(state.position)
            if move not in later and rules.apply(state.position, move) is not None
        )
        state, paid, step = play(env, state, "legal", wrong)
        assert (step.terminated, step.truncated) == (ends, False)
        assert (state.lost, state.ended) == (ends, ends)
        assert paid[-1]["move_useful"] < DEAD and env.score(state) == 0.0
        if ends:
            with pytest.raises(EnvError):
                env.step(state, TOOL, "legal", RNG)
        else:
            play(env, state, "legal", "r0c0=1")


@pytest.mark.parametrize("env", ["plan-path", "sokoban"])
def test_hard_tasks_are_those_that_every_reflex_fails(env):
    options = {"size": 5, "walls": 0.3, "least_detour": 2} if env == "plan-path" else {"walls": 0.2}
    hard = made(env, rounds=6, moves_per_turn=3, round_limit=1.5, hard=True, **options)
    players = hard.baselines()
    names = [name for name in players if name.startswith("greedy")]
    assert names
    for number in range(10):
        task = Task(id="t", env=env, seed=0, data=hard.generate(generator(0, "hard", number)))
        assert [score_of(hard, task, players[name]) for name in names] == [0.0] * len(names)
        assert score_of(hard, task, players["optimal"]) == 1.0


@pytest.mark.parametrize("env", ["plan-path", "sokoban"])
def test_a_share_of_tasks_may_be_hard_and_the_others_are_as_they_come(env):
    options = {"size": 5, "walls": 0.3} if env == "plan-path" else {"walls": 0.2}
    options |= {"rounds": 6, "moves_per_turn": 3, "round_limit": 1.5, "hard": True}
    shares = {}
    for share in (0.5, 1.0):
        mixed = made(env, hard_share=share, **options)
        failed = 0
        for number in range(40):
            data = mixed.generate(generator(0, "share", number))
            failed += not mixed.reflex_solves(mixed.puzzle.first(data), data["rounds"])
        shares[share] = failed / 40
    assert shares[1.0] == 1.0
    assert 0.3 < shares[0.5] < 0.8
    for share in (0.0, 1.5):
        with pytest.raises(ConfigError, match="hard_share"):
            made(env, hard_share=share, **options)


def test_hard_tasks_that_hardly_exist_are_refused():
    with pytest.raises(ConfigError, match="a reflex solves all of 5000 tasks within 200 rounds"):
        made(size=3, walls=0.0, rounds=200, hard=True).generate(RNG)


def score_of(env, task, player):
    state, rng = env.reset(task), np.random.default_rng(0)
    for _ in range(env.turn_cap()):
        step = env.step(state, env.acting(state)[0], player(state, rng), rng)
        state = step.state
        if step.terminated or step.truncated:
            break
    return env.score(state)


@pytest.mark.parametrize("env", ["plan-path", "sokoban"])
def test_rewards_telescope_in_random_play(env):
    env = made(env, rounds=30, moves_per_turn=2)
    for number in range(30):
        rng = generator(0, "telescope", number)
        state = first = env.reset(Task(id="t", env=env.name, seed=0, data=env.generate(rng)))
        sums = dict.fromkeys(env.components, 0.0)
        while not state.ended:
            seat = env.acting(state)[0]
            step = env.step(state, seat, env.random_action(state, seat, rng), rng)
            state = step.state
            for name, value in step.rewards.items():
                sums[name] += value
        costs = env.costs(state.position)
        now = [potential(cost, start) for cost, start in zip(costs, first.costs, strict=True)]
        assert (sums["progress"], sums["move_useful"]) == pytest.approx(now)
        assert sums["call_useful"] == pytest.approx(state.proposed[0])
        assert sums["solved"] == env.score(state)
        assert all(DEAD <= value <= 1 for value in now)


def test_state_keys_hold_what_later_rewards_depend_on():
    env = made(size=4, rounds=4)
    state = begun(env)
    one, two = (play(env, state, call, "DOWN")[0] for call in ("legal", "apply RIGHT"))
    assert env.observe(one, TOOL) == env.observe(two, TOOL)
    assert env.state_key(one, TOOL) != env.state_key(two, TOOL)
    assert env.state_key(one, PLANNER) == env.state_key(two, PLANNER)
    assert env.state_key(one, PLANNER) != env.state_key(replace(one, left=1), PLANNER)


def test_no_query_returns_a_plan():
    for name in ("plan-path", "sokoban"):
        env = made(name)
        for number in range(200):
            rng = generator(0, "query", number)
            state = env.reset(Task(id="t", env=name, seed=0, data=env.generate(rng)))
            call = env.random_action(state, TOOL, rng)
            result = env.step(state, TOOL, call, rng).state.calls[0][1].split()
            plan = env.puzzle.solve(state.position)
            moves = [word for word in result if word in plan_path_rules.MOVES]
            if not call.startswith("legal"):
                assert not moves
            assert all(one != two for one, two in pairwise(moves))  # legal moves, each once
            assert call == "legal" or moves != list(plan)
