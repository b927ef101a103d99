"""Waiting in planning envs: asking more than once before a move."""

from __future__ import annotations

from collections import Counter

import numpy as np
import pytest

from turnwise.envs import make_env
from turnwise.envs.planning.sudoku import _lone
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


def test_with_waits_the_description_comes_after_the_calls():
    for waits in (0, 1):
        env, state = begun(waits=waits, described=True)
        state = env.step(state, "tool", "places r0", RNG).state
        first = [line.split()[0] for line in env.observe(state, "planner").text.split("\n")[5:]]
        rest = ["call", "one"]
        assert first == [*rest, "narrow", "your"] if waits else ["narrow", *rest, "your"]
        assert not env.observe(state, "planner").description
    plain, state = begun(waits=1)
    assert plain.observe(state, "tool").description.startswith("narrow")


def test_random_narrow_draws_a_list_and_then_a_fill_and_waits_in_a_quarter_of_the_rounds():
    env, state = begun(waits=1)
    state = env.step(state, "tool", "places c2", RNG).state
    assert state.shown_calls == (("places c2", "one r0c2=3"),)
    shown = env.puzzle.description(state.position)
    assert shown == "narrow one r0c2=3 one r3c1=3 one r3c3=1"
    drawn = Counter(env.baselines()["random-narrow"](state, RNG) for _ in range(4000))
    assert drawn["wait"] / 4000 == pytest.approx(1 / 4, abs=0.03)
    assert drawn["r0c2=3"] / 4000 == pytest.approx(3 / 8, abs=0.03)  # 2 of 4 lists
    assert drawn["r3c1=3"] / 4000 == pytest.approx(3 / 16, abs=0.03)


@pytest.mark.parametrize(
    ("result", "lone"),
    [
        ("one r0c2=3 two r0c2=1 r3c1=1", ["r0c2=3"]),
        ("two r0c2=3 r3c1=3", []),
        ("2 none one r0c2=3", ["r0c2=3"]),
        ("one r0c2=3", ["r0c2=3"]),
        ("r0c2=3", []),
        ("one r0c0=3", []),
        ("one r0c2=3 " * 40, ["r0c2=3"] * 40),
        ("one", []),
        ("yes", []),
    ],
)
def test_a_lone_fill_of_a_result_is_possible_and_counted_as_one(result, lone):
    _, state = begun()
    assert _lone(state, result) == lone


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
