"""Waiting in planning envs: asking more than once before a move."""

from __future__ import annotations

from collections import Counter
from dataclasses import replace

import numpy as np
import pytest

from turnwise.envs import make_env
from turnwise.envs.planning.state import PlanState
from turnwise.envs.planning.sudoku import _lists_of
from turnwise.envs.planning.sudoku_rules import Position, candidates
from turnwise.errors import IllegalActionError
from turnwise.seeding import generator
from turnwise.tasks import GeneratedTasks
from turnwise.types import Task

RNG = np.random.default_rng(0)
ROWS = ["12.4", "3412", "2143", "4.2."]
OPTIONS = {"size": 4, "clues": 13, "rounds": 6, "moves_per_turn": 1}


def begun(**options):
    env = make_env("sudoku", **OPTIONS, **options).unwrapped
    return env, env.reset(Task(id="t", env="sudoku", seed=0, data={"rows": ROWS}))


def play(env, state, *actions):
    """Return the step of the last of actions, which seats take in turn."""
    *others, last = actions
    for action in others:
        state = env.step(state, *env.acting(state), action, RNG).state
    return env.step(state, *env.acting(state), last, RNG)


def calls_shown(env, state):
    """Return the calls that the seat whose turn it is sees."""
    lines = env.observe(state, *env.acting(state)).text.split("\n")
    return [line.strip() for line in lines if line.startswith(" call")]


def test_the_calls_of_rounds_without_a_move_stay_until_one_is_made():
    env, first = begun(waits=2)
    step = play(env, first, "places r0", "wait")
    assert step.state.position == first.position and step.state.left == first.left - 1
    assert calls_shown(env, step.state) == ["call places r0"]
    step = play(env, step.state, "places c2")
    assert calls_shown(env, step.state) == ["call places r0", "call places c2"]
    moved = play(env, step.state, "r0c2=3").state
    assert calls_shown(env, moved) == [] and moved.waited == 0
    assert calls_shown(env, play(env, moved, "places r3").state) == ["call places r3"]


def test_the_calls_of_all_rounds_without_a_move_stay():
    env, state = begun(waits=3)
    state = play(env, state, "places r0", "wait", "places r1", "wait", "places c2", "wait").state
    shown = ["call places r0", "call places r1", "call places c2"]
    assert calls_shown(env, state) == shown


def test_waiting_is_idle_and_no_fault_and_costs_no_potential():
    env, first = begun(waits=1)
    rewards = play(env, first, "places r0", "wait").rewards
    assert rewards == {"solved": 0, "progress": 0, "move_useful": 0, "illegal": 0, "idle": 1}


def test_after_as_many_waits_as_are_allowed_running_a_move_must_be_made():
    env, state = begun(waits=2)
    for left in (True, True, False):
        state = play(env, state, "places r0").state
        assert ("wait" in env.observe(state, "planner").legal_actions) == left
        if left:
            state = play(env, state, "wait").state
    with pytest.raises(IllegalActionError, match="'wait'"):
        env.step(state, "planner", "wait", RNG)
    state = play(env, state, "r0c2=3", "places r3").state
    assert "wait" in env.observe(state, "planner").legal_actions
    assert play(env, state, "wait").state.waited == 1


def test_without_the_option_wait_is_no_action():
    env, state = begun()
    state = play(env, state, "legal").state
    assert "wait" not in env.observe(state, "planner").legal_actions
    with pytest.raises(IllegalActionError, match="'wait'"):
        env.step(state, "planner", "wait", RNG)


def test_only_envs_with_the_option_have_the_word_so_that_models_of_others_are_as_before():
    assert "wait" not in begun()[0].vocabulary()
    assert "wait" in begun(waits=1)[0].vocabulary()


def test_states_that_differ_in_what_was_asked_have_keys_of_their_own():
    env, first = begun(waits=3)
    once = play(env, first, "places r0", "wait").state
    other = play(env, first, "places r3", "wait").state
    keys = {env.state_key(state, "tool") for state in (first, once, other)}
    assert len(keys) == 3


def test_only_the_judge_of_several_planners_may_wait():
    env, state = begun(waits=1, planners=2)
    state = play(env, state, "legal").state
    with pytest.raises(IllegalActionError, match="'wait'"):
        env.step(state, "planner-1", "wait", RNG)
    state = play(env, state, "r0c2=3", "r0c2=3", "wait").state
    assert state.waited == 1 and state.plans == ()


@pytest.mark.parametrize("name", ["asker", "random-narrow"])
def test_players_wait_as_the_judge_alone(name):
    options = {"size": 6, "clues": 14, "rounds": 30, "moves_per_turn": 1, "waits": 3}
    env = make_env("sudoku", **options, planners=2, hard=True).unwrapped
    player, waited = env.baselines()[name], 0
    for number, task in enumerate(GeneratedTasks(env, "test", 0).take(8)):
        state, rng = env.reset(task), generator(0, name, number)
        while not state.ended:
            state = play(env, state, player(state, rng)).state
            waited += state.waited > 0
    assert waited


def test_episodes_of_waiting_end_with_the_rounds():
    env, state = begun(waits=200)
    steps = []
    for _ in range(OPTIONS["rounds"]):
        steps.append(play(env, state, "legal", "wait"))
        state = steps[-1].state
    assert not any(step.truncated for step in steps[:-1])
    step = steps[-1]
    assert step.truncated and not step.terminated and env.score(state) == 0


def test_random_play_waits_only_where_it_may():
    for waits in (0, 1):
        env, first = begun(waits=waits)
        moves = {env.random_action(first, "planner", RNG) for _ in range(2000)}
        assert ("wait" in moves) == bool(waits)


def test_who_may_wait_is_told_so_and_others_are_not():
    env, state = begun(waits=1)
    state = env.step(state, "tool", "places r0", RNG).state
    assert env.observe(state, "planner").text.endswith(" your move or wait")
    assert env.observe(state, "tool").text.endswith(" your call")
    state = play(env, state, "wait", "places r1").state
    assert env.observe(state, "planner").text.endswith(" your move")
    assert {"or", "wait"} <= set(env.vocabulary())
    plain, state = begun()
    assert plain.observe(state, "planner").text.endswith(" your move")
    assert not {"or", "wait"} & set(plain.vocabulary())


@pytest.mark.parametrize("waits", [0, 1])
def test_the_description_comes_after_calls_whose_results_it_takes_in(waits):
    env, state = begun(waits=waits, described=True)
    for call, shown in (
        ("places r0", ["call", "narrow"]),
        ("places r1", ["call", "full", "narrow"] if waits else ["narrow", "call", "full"]),
        ("conflicts r0c2=4", ["call", "r0c3", "narrow"] if waits else ["narrow", "call", "r0c3"]),
    ):
        after = env.step(state, "tool", call, RNG).state
        lines = env.observe(after, "planner").text.split("\n")[5:]
        assert [line.split()[0] for line in lines] == [*shown, "your"], call
        assert not env.observe(after, "planner").description
    plain, state = begun(waits=1)
    assert plain.observe(state, "tool").description.startswith("narrow")


def test_a_description_has_the_shortest_lists_of_cells_and_of_all_known_results():
    rows = ["1...", "..1.", ".1..", "...1"]
    env = make_env("sudoku", size=4, clues=4, rounds=20, moves_per_turn=1, waits=3, described=True)
    env = env.unwrapped
    board = "".join(rows)
    state = PlanState(position=Position(board, board), left=9, costs=(1.0, 1.0), proposed=(0.0,))
    found = ["one r0c1=2", "two r0c2=3 r0c3=3", "one r1c0=4 two r3c1=2 r3c1=3", "one r0c1=2"]
    state = replace(state, earlier_calls=tuple((f"places r{n}", r) for n, r in enumerate(found)))
    text = env.observe(state, "tool").text.split("\n")
    assert text[5:9] == [f" call places r{n}" for n in range(4)]
    assert text[9:] == [
        " narrow one r0c1=2 one r1c0=4 two r0c2=3 r0c3=3 two r3c1=2 r3c1=3",
        " your call",
    ]
    state = replace(state, earlier_calls=())
    three = [f"three r0c{c}=2 r0c{c}=3 r0c{c}=4" for c in (1, 2, 3)]
    assert env.observe(state, "tool").text.split("\n")[5] == " " + " ".join(
        ("narrow", *three, "three r1c0=2 r1c0=3 r1c0=4")
    )


def test_who_moves_sees_of_earlier_calls_only_what_the_description_does_not_have():
    env, state = begun(waits=3, described=True)
    calls = ["places c2", "conflicts r0c2=4", "places r3", "places c2"]
    for call in calls[:-1]:
        state = play(env, state, call, "wait").state
    state = env.step(state, "tool", calls[-1], RNG).state
    told = [line for line in env.observe(state, "planner").text.split("\n") if "call" in line]
    assert told == [" call conflicts r0c2=4", " call places c2"]
    assert "\n r0c3 r2c2\n" in env.observe(state, "planner").text
    state = replace(state, earlier_calls=state.shown_calls, calls=())
    told = [line for line in env.observe(state, "tool").text.split("\n") if " call " in line]
    assert told == [f" call {call}" for call in calls]


def test_what_a_program_prints_is_in_no_description():
    env, state = begun(described=True, runner="sandbox", waits=1)
    state = replace(state, calls=(("print('one r0c2=3')", "one r2c0=1"),))
    text = env.observe(state, "planner").text
    assert "\n one r2c0=1\n" in text
    assert "narrow one r0c2=3 one r3c1=3 one r3c3=1\n" in text


def test_cells_without_a_candidate_are_each_named_and_come_first():
    env, _ = begun(described=True)
    board = "12.4" + "3.12" + "214." + "4.33"
    assert not candidates(board, 2) + candidates(board, 11) + candidates(board, 13)
    text = env.puzzle.description(Position(board, board), ["one r1c1=4"])
    assert text == "narrow r0c2 none r2c3 none r3c1 none one r1c1=4"


def test_random_narrow_draws_a_list_and_then_a_fill_and_waits_in_a_quarter_of_the_rounds():
    env, state = begun(waits=1)
    found = (("places r3", "two r3c1=3 r3c1=4"), ("places c2", "one r0c2=3"))
    state = replace(state, earlier_calls=found[:1], calls=found[1:])
    shown = env.puzzle.description(state.position, [result for _, result in found])
    assert shown == "narrow one r0c2=3 one r3c1=3 one r3c3=1"  # 4 is forbidden in r3c1
    drawn = Counter(env.baselines()["random-narrow"](state, RNG) for _ in range(4000))
    assert drawn["wait"] / 4000 == pytest.approx(1 / 4, abs=0.03)
    assert all(drawn[fill] / 4000 == pytest.approx(1 / 4, abs=0.03) for fill in shown.split()[2::2])


@pytest.mark.parametrize(
    ("result", "lists"),
    [
        ("one r0c2=3 two r0c2=1 r3c1=3", [["r0c2=3"], ["r3c1=3"]]),
        ("two r0c2=3 r3c1=3", [["r0c2=3", "r3c1=3"]]),
        ("2 none one r0c2=3", [["r0c2=3"]]),
        ("r0c2=3", []),
        ("one r0c0=3", []),
        ("one", []),
        ("yes", []),
    ],
)
def test_the_lists_of_a_result_are_counted_and_have_possible_fills(result, lists):
    _, state = begun()
    assert _lists_of(state.position, result) == lists


def test_a_player_that_asks_until_it_knows_is_above_one_that_asks_once():
    options = {"rounds": 60, "waits": 12, "moves_per_turn": 1, "hard": True, "described": True}
    env = make_env("sudoku", size=6, clues=12, **options).unwrapped
    players, solved = env.baselines(), {}
    for name in ("guesser", "reader", "asker"):
        solved[name] = 0
        for number, task in enumerate(GeneratedTasks(env, "test", 0).take(40)):
            state, rng = env.reset(task), generator(0, name, number)
            while not state.ended:
                state = play(env, state, players[name](state, rng)).state
            solved[name] += state.solved
    assert solved["asker"] >= 34 > solved["reader"] > solved["guesser"] - 4, solved


@pytest.mark.parametrize("runner", ["call", "sandbox"])
def test_all_players_play_with_waits_to_the_end(runner):
    options = {"size": 6, "clues": 30, "rounds": 12, "moves_per_turn": 1, "moves_per_call": 1}
    env = make_env("sudoku", waits=2, runner=runner, **options).unwrapped
    task = Task(id="t", env="sudoku", seed=0, data=env.generate(generator(0, "waits")))
    for name, player in env.baselines().items():
        state, rng = env.reset(task), generator(0, name)
        while not state.ended:
            state = play(env, state, player(state, rng)).state
        assert state.solved or name not in ("asker", "reader", "optimal")
