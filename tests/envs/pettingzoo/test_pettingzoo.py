"""The PettingZoo adapter: agents as seats, rounds, masks, rewards, ends, branching and errors."""

from __future__ import annotations

import subprocess
import sys
from pathlib import Path

import numpy as np
import pytest

import turnwise as tw
from turnwise.envs import PettingZooConfig, PettingZooEnv, check_env, make_env
from turnwise.errors import (
    ConfigError,
    DataError,
    EnvError,
    IllegalActionError,
    MissingDependencyError,
    UnknownNameError,
)
from turnwise.types import Task

pytest.importorskip("pettingzoo")
HERE = Path(__file__).parent
ZOO = HERE / "zoo.py"
RNG = np.random.default_rng(0)


def zoo(name, **options):
    bounds = {"worst": -5.0, "best": 10.0}
    return make_env("pettingzoo", id=f"{ZOO}:{name}", **(bounds | options))


def begun(env, seed=0):
    return env.reset(Task(id="t", env=env.name, seed=0, data={"seed": seed}))


def round_of(env, state, actions, rng=None):
    """Take one action of each seat; return all steps."""
    steps = []
    for seat, action in actions.items():
        steps.append(env.step(state, seat, action, rng or np.random.default_rng(1)))
        state = steps[-1].state
    return steps


@pytest.mark.parametrize("name", ["Sum", "Pot", "Held"])
def test_the_contract_is_kept(name):
    assert check_env(zoo(name), tasks=3).steps > 0


@pytest.mark.parametrize("game", ["tictactoe_v3", "connect_four_v3", "rps_v2"])
def test_classic_envs_keep_the_contract(game):
    pytest.importorskip(f"pettingzoo.classic.{game}")
    env = make_env("pettingzoo", id=game)
    assert check_env(env, tasks=2).longest <= 42
    assert env.branching == "copy"


def test_agents_are_seats_and_numbers_at_the_end_make_no_role():
    assert zoo("Sum").seats == {"adder_0": "adder", "adder_1": "adder", "watcher": "watcher"}
    assert zoo("Sum", roles="one").roles == ("player",)
    assert zoo("Sum", roles="agent").roles == ("adder_0", "adder_1", "watcher")
    assert zoo("Pot").roles == ("left", "right")


def test_moves_of_a_parallel_env_wait_for_the_last_agent():
    env = zoo("Sum")
    state = begun(env, 1)
    assert env.parallel and env.acting(state) == ("adder_0", "adder_1", "watcher")
    seen = [env.observe(state, seat) for seat in env.seats]
    steps = round_of(env, state, {"adder_1": "1", "watcher": "0"})
    for step in steps:
        assert not step.rewards and not step.others and not step.terminated
        assert [env.observe(step.state, seat) for seat in env.seats] == seen
    assert env.acting(steps[-1].state) == ("adder_0",)
    last = env.step(steps[-1].state, "adder_0", "1", np.random.default_rng(1))
    assert last.rewards["gain"] == 1.0
    assert {seat: paid["gain"] for seat, paid in last.others.items()} == {"adder_1": 1.0}
    assert env.acting(last.state) == ("adder_1", "watcher")  # adder_0 has left
    assert env.observe(last.state, "adder_0").text
    with pytest.raises(EnvError, match="turn of adder_1"):
        env.step(last.state, "adder_0", "0", RNG)


def test_an_action_mask_leaves_the_legal_actions():
    env = zoo("Sum")
    for seed in range(6):
        state = begun(env, seed)
        total = int(env.observe(state, "watcher").text.split()[-1])
        legal = ("0", "1", "2") if total % 2 else ("0", "1")
        assert env.observe(state, "adder_0").legal_actions == legal
        assert env.observe(state, "watcher").legal_actions == ("0", "1", "2")
        assert env.observe(state, "adder_0").text == f"state {total}"
        if len(legal) == 2:
            with pytest.raises(IllegalActionError, match="none of 0, 1"):
                env.step(state, "adder_0", "2", RNG)


def test_an_episode_ends_with_its_last_agent_terminated_or_truncated():
    env = zoo("Sum")
    first = round_of(env, begun(env), {"adder_0": "0", "adder_1": "1", "watcher": "0"})[-1]
    assert not first.terminated and not first.truncated
    equal = round_of(env, first.state, {"adder_1": "1", "watcher": "1"})[-1]
    assert equal.terminated and not equal.truncated
    with pytest.raises(EnvError, match="over"):
        env.step(equal.state, "watcher", "0", RNG)
    cut = zoo("Sum", kwargs={"rounds": 1})
    end = round_of(cut, begun(cut), {"adder_0": "0", "adder_1": "1", "watcher": "0"})[-1]
    assert end.terminated  # adder_0 was terminated in the round that cut the others
    cut = zoo("Sum", kwargs={"rounds": 2})
    state = round_of(cut, begun(cut), {"adder_0": "0", "adder_1": "1", "watcher": "0"})[-1].state
    end = round_of(cut, state, {"adder_1": "1", "watcher": "0"})[-1]
    assert end.truncated and not end.terminated


def test_an_agent_is_paid_for_what_it_earned_at_another_agents_step():
    env = zoo("Pot", kwargs={"coins": 3})
    first = env.step(begun(env), "left", "2", RNG)
    assert not env.parallel and not first.rewards.get("gain") and env.acting(first.state) == (
        "right",
    )  # fmt: skip
    last = env.step(first.state, "right", "1", RNG)
    assert last.terminated
    assert dict(last.rewards) == {"gain": 0.0, "cost": -0.75}
    # 0.5 for its own two coins, which an AEC env pays when it is selected again, and 1 by the other
    assert dict(last.others["left"]) == {"gain": 1.5, "cost": 0.0}
    assert env.seat_score(last.state, "left") == pytest.approx((1.5 + 5) / 15)
    assert env.score(last.state) == pytest.approx(((1.5 + 5) / 15 + (-0.75 + 5) / 15) / 2)


def test_rewards_equal_those_of_pettingzoos_own_loop():
    rps = pytest.importorskip("pettingzoo.classic.rps_v2")
    env = make_env("pettingzoo", id="rps_v2")
    rng = np.random.default_rng(0)
    for number in range(20):
        theirs, state = rps.parallel_env(), begun(env, number)
        theirs.reset(seed=number)
        totals = dict.fromkeys(env.seats, 0.0)
        while theirs.agents:
            actions = {agent: int(rng.integers(3)) for agent in theirs.agents}
            words = {agent: ("ROCK", "PAPER", "SCISSORS")[n] for agent, n in actions.items()}
            _, rewards, _, _, _ = theirs.step(actions)
            step = round_of(env, state, words)[-1]
            state = step.state
            totals = {agent: totals[agent] + rewards[agent] for agent in totals}
            assert dict(state.totals) == totals
        assert step.truncated


def test_parallel_and_aec_play_the_same_game():
    pytest.importorskip("pettingzoo.classic.rps_v2")
    both = [
        make_env("pettingzoo", id="rps_v2", api=api, reward_timing="dense")
        for api in ("parallel", "aec")
    ]
    totals = []
    for env in both:
        state, rng = begun(env), np.random.default_rng(5)
        while not state.ended:
            state = env.step(
                state, env.acting(state)[0], env.random_action(state, "player_0", rng), RNG
            ).state
        totals.append(dict(state.totals))
    assert totals[0] == totals[1]


def test_branching_is_measured():
    assert zoo("Sum").branching == zoo("Pot").branching == "copy"  # EzPickle does not hinder it
    assert zoo("Held").branching == "replay"
    assert zoo("Unseeded").branching == "none"
    assert zoo("Sum", branching="replay").branching == "replay"
    with pytest.raises(ConfigError, match="branching = 'copy' does not come back"):
        zoo("Held", branching="copy")
    with pytest.raises(ConfigError, match="two plays with one seed differ"):
        zoo("Unseeded", branching="replay")


@pytest.mark.parametrize("branching", ["copy", "replay"])
def test_an_earlier_state_can_be_stepped_again(branching):
    env = zoo("Sum", branching=branching)
    state = begun(env, 3)
    moves = {"adder_0": "0", "adder_1": "1", "watcher": "0"}
    first = round_of(env, state, moves)[-1].state
    later = round_of(env, first, {"adder_1": "0", "watcher": "1"})[-1].state
    again = round_of(env, state, moves)[-1].state
    assert env.observe(again, "watcher") == env.observe(first, "watcher")
    other = round_of(env, again, {"adder_1": "0", "watcher": "1"})[-1].state
    assert env.observe(other, "watcher") == env.observe(later, "watcher")


def test_without_branching_only_the_newest_state_is_stepped():
    env = zoo("Sum", branching="none")
    moves = {"adder_0": "0", "adder_1": "1", "watcher": "0"}
    state = begun(env)
    assert round_of(env, state, moves)
    with pytest.raises(EnvError, match="branching = 'none'"):
        round_of(env, state, moves)


def test_steps_draw_from_the_given_generator():
    env = zoo("Sum")
    moves = {"adder_0": "0", "adder_1": "1", "watcher": "0"}
    ends = {
        env.observe(round_of(env, begun(env), moves, np.random.default_rng(n))[-1].state, "watcher")
        for n in range(20)
    }
    assert len(ends) == 2


def test_renderers_and_words():
    env = zoo("Sum", renderer=f"{ZOO}:total_text", actions={"adder": ["none", "one", "two"]})
    seen = env.observe(begun(env, 1), "adder_0")
    assert seen.text.startswith("total ") and seen.description.startswith("odd ")
    assert seen.legal_actions[:2] == ("none", "one")
    assert env.observe(begun(env, 1), "watcher").legal_actions == ("0", "1", "2")
    assert {"none", "total", "odd"} <= set(env.vocabulary())
    with pytest.raises(EnvError, match="renderer = .*broken_text' raised KeyError"):
        zoo("Sum", renderer=f"{ZOO}:broken_text")


def test_boards_look_like_those_of_the_native_envs():
    pytest.importorskip("pettingzoo.classic.tictactoe_v3")
    for theirs, own, agents in (
        ("tictactoe_v3", "tic-tac-toe", ("player_1", "player_2")),
        ("connect_four_v3", "connect-four", ("player_0", "player_1")),
    ):
        zoo_env, env = make_env("pettingzoo", id=theirs), make_env(own)
        rng = np.random.default_rng(2)
        for _ in range(5):
            state = begun(zoo_env)
            mine = env.reset(Task(id="t", env=own, seed=0, data={"moves": []}))
            while not mine.ended:
                seat = env.acting(mine)[0]
                agent = agents[mine.turn]
                assert zoo_env.observe(state, agent).text == env.observe(mine, seat).text
                action = env.random_action(mine, seat, rng)
                step, other = zoo_env.step(state, agent, action, rng), env.step(
                    mine, seat, action, rng
                )  # fmt: skip
                assert step.terminated == other.terminated
                state, mine = step.state, other.state
            scores = [zoo_env.seat_score(state, agent) for agent in agents]
            assert scores == [env.seat_score(mine, seat) for seat in env.seats]


@pytest.mark.parametrize(
    ("options", "error", "message"),
    [
        ({"id": "tictactoe_v9"}, UnknownNameError, "did you mean 'tictactoe_v3'"),
        ({"id": "classic/tictacto_v3"}, UnknownNameError, "did you mean 'tictactoe_v3'"),
        ({"id": "no_such_zoo/game_v0"}, MissingDependencyError, "pip install no_such_zoo"),
        ({"id": "what is this"}, ConfigError, "names no env"),
        ({"id": f"{ZOO}:nothing"}, ConfigError, "returned int: return an AECEnv"),
        ({"id": f"{ZOO}:Crowd"}, ConfigError, "no possible_agents"),
        ({"id": f"{ZOO}:Sum"}, ConfigError, "needs `worst` and `best`.*agents returned"),
        ({"id": f"{ZOO}:Sum", "api": "aec"}, ConfigError, "leave it out"),
        ({"id": f"{ZOO}:Sum", "kwargs": {"size": 3}}, ConfigError, "mend `kwargs`"),
        ({"id": f"{ZOO}:Picture"}, ConfigError, "give `renderer`"),
        ({"id": "tictactoe_v3", "api": "parallel"}, ConfigError, "set api = 'aec'"),
        ({"id": "tictactoe_v3", "opponents": ["minimax"]}, ConfigError, "unknown baseline"),
        ({"id": "tictactoe_v3", "actions": {"plyer": ["a"]}}, ConfigError, "did you mean 'player'"),
        ({"worst": 1.0, "best": 0.0}, ConfigError, "must be below"),
    ],
)
def test_errors_name_the_cure(options, error, message):
    with pytest.raises(error, match=message):
        make_env("pettingzoo", **options)


def test_a_task_without_a_seed_is_refused():
    with pytest.raises(DataError, match="whole number"):
        begun(zoo("Sum"), "one")


def test_an_env_object_and_a_class_are_answered_with_the_name_to_use():
    rps = pytest.importorskip("pettingzoo.classic.rps_v2")
    with pytest.raises(ConfigError, match="make_env\\('pettingzoo', id='classic/rps_v2'\\)"):
        make_env(rps.parallel_env())
    with pytest.raises(ConfigError, match=r"zoo.py:Pot'\)"):
        make_env(f"{ZOO}:Pot")
    with pytest.raises(ConfigError, match="is a PettingZoo env"):
        tw.train("nano", env=rps.env())
    with pytest.raises(EnvError, match="is a PettingZoo env"):
        check_env(rps.env())


def test_pettingzoo_is_imported_only_where_it_is_used():
    code = "import sys, turnwise.envs; print('pettingzoo' in sys.modules)"
    found = subprocess.run([sys.executable, "-c", code], capture_output=True, text=True, check=True)
    assert found.stdout.strip() == "False"


def test_without_pettingzoo_the_error_has_the_install_command():
    code = (
        "import sys; sys.modules['pettingzoo'] = None\n"
        "from turnwise.envs import make_env\n"
        "from turnwise.errors import MissingDependencyError\n"
        "try:\n    make_env('pettingzoo')\n"
        "except MissingDependencyError as error:\n    print(error)"
    )
    found = subprocess.run([sys.executable, "-c", code], capture_output=True, text=True, check=True)
    assert "pip install 'turnwise[pettingzoo]'" in found.stdout


def test_options_survive_a_recipe():
    given = PettingZooConfig(id="rps_v2", actions={"player": ("A", "B", "C")}, opponents=())
    assert PettingZooConfig(**given.model_dump(mode="json", exclude_none=True)) == given
    assert PettingZooEnv(given).opponents == ()
