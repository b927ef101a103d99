"""Tic-tac-toe and connect-four: their rules, what is seen, who is paid, and how baselines play."""

from __future__ import annotations

import time
from itertools import pairwise

import numpy as np
import pytest

from turnwise.envs import BoardGameConfig, ConnectFour, TicTacToe, check_env, make_env
from turnwise.envs.board_games.minimax import Minimax
from turnwise.errors import ConfigError, DataError, EnvError, IllegalActionError
from turnwise.policies.nano import NanoConfig, make_tokenizer
from turnwise.tasks import GeneratedTasks
from turnwise.types import Task

RNG = np.random.default_rng(0)
GAMES = [TicTacToe, ConnectFour]


def begun(env, *moves):
    return env.reset(Task(id="t", env=env.name, seed=0, data={"moves": list(moves)}))


def played(env, players, rng, state=None):
    """Return the last step of a game between two baselines, the first player's name first."""
    state = begun(env) if state is None else state
    known = env.baselines()
    while True:
        (seat,) = env.acting(state)
        step = env.step(state, seat, known[players[state.turn]](state, rng), rng)
        if step.terminated:
            return step
        state = step.state


@pytest.mark.parametrize("game", GAMES)
@pytest.mark.parametrize("options", [{}, {"opening": 6, "roles": "two"}])
def test_the_contract_is_kept(game, options):
    report = check_env(game(BoardGameConfig(**options)), tasks=3)
    assert report.longest <= game.rules.cells
    assert report.costs["step"] + report.costs["observe"] < 1000  # loaded machines; see the docs


def test_step_and_observe_take_less_than_100_microseconds():
    costs = []
    for game in GAMES:
        env = game()
        state = begun(env, "1", "2", "3")
        began = time.process_time()
        for _ in range(500):
            env.observe(env.step(state, "second", "4", RNG).state, "first")
        costs.append((time.process_time() - began) / 500)
    assert max(costs) < 1e-4


def test_a_board_is_seen_from_the_side_of_the_seat():
    env = TicTacToe()
    state = begun(env, "5", "1", "6")
    assert env.observe(state, "first").text == "o 2 3\n4 x x\n7 8 9"
    assert env.observe(state, "second").text == "x 2 3\n4 o o\n7 8 9"
    assert env.observe(state, "first").description == "x 4 o none"
    assert env.observe(state, "second").description == "x none o 4"
    assert env.observe(state, "first").legal_actions == ("2", "3", "4", "7", "8", "9")
    assert env.render(state) == "O 2 3\n4 X X\n7 8 9"


def test_a_description_names_exactly_the_actions_that_complete_a_line():
    for game in GAMES:
        env, rng = game(BoardGameConfig(opening=game.rules.cells // 2)), np.random.default_rng(3)
        for _ in range(100):
            state = env.reset(Task(id="t", env=env.name, seed=0, data=env.generate(rng)))
            (seat,) = env.acting(state)
            seen = env.observe(state, seat)
            wins = [a for a in seen.legal_actions if env.step(state, seat, a, rng).terminated
                    and env.step(state, seat, a, rng).rewards]  # fmt: skip
            own = seen.description.removeprefix("x ").split(" o ")[0]
            assert own == (" ".join(wins) or "none")


def test_the_winner_and_the_loser_are_paid_by_the_last_step():
    env = TicTacToe()
    state = begun(env, "1", "4", "2", "5")
    step = env.step(state, "first", "3", RNG)
    assert step.terminated and not step.truncated
    assert (dict(step.rewards), dict(step.others)) == ({"win": 1.0}, {"second": {"loss": -1.0}})
    assert env.score(step.state) == env.seat_score(step.state, "first") == 1.0
    assert env.seat_score(step.state, "second") == 0.0
    drawn = begun(env, *"15237469")
    end = env.step(drawn, "first", "8", RNG)
    assert end.terminated and not end.rewards and not end.others
    assert env.seat_score(end.state, "first") == env.seat_score(end.state, "second") == 0.5
    assert env.measures(end.state) == {"draw": 1.0, "plies": 9.0}


def test_wrong_moves_are_refused():
    env = TicTacToe()
    state = begun(env, "5")
    for wrong in ("5", "0", "10", "x", ""):
        with pytest.raises(IllegalActionError):
            env.step(state, "second", wrong, RNG)
    with pytest.raises(EnvError, match="turn of 'second'"):
        env.step(state, "first", "1", RNG)
    with pytest.raises(DataError, match="end the game"):
        begun(env, "1", "4", "2", "5", "3")
    with pytest.raises(DataError, match="none of"):
        begun(env, "1", "1")
    with pytest.raises(ConfigError, match="at most 7"):
        make_env("tic-tac-toe", opening=8)


def test_perfect_play_never_loses_and_draws_against_itself():
    env = TicTacToe()
    for rival in env.baselines():
        for number in range(60):
            rng = np.random.default_rng(number)
            names = ("perfect", rival) if number % 2 else (rival, "perfect")
            end = played(env, names, rng).state
            assert end.winner != names.index("perfect") ^ 1
            assert rival != "perfect" or end.winner is None


def solved(rules, own, other, known):
    """Return 1, 0 or -1: the worth of a position for the player to move, by plain minimax."""
    key = own, other
    if key not in known:
        found = []
        for _, bit in rules.landings(own, other):
            if rules.wins(own | bit, bit):
                found.append(1)
            else:
                found.append(-solved(rules, other, own | bit, known))
        known[key] = max(found, default=0)
    return known[key]


def test_perfect_play_is_optimal_in_every_position():
    env, known = TicTacToe(), {}
    rules = env.rules
    assert solved(rules, 0, 0, known) == 0
    assert len(known) > 4000
    perfect = Minimax(rules, 9)
    for (own, other), worth in known.items():
        if own | other == rules.full:
            continue
        for action in perfect.best(own, other):
            bit = rules.landing(own | other, action)
            wins = rules.wins(own | bit, bit)
            assert worth == (1 if wins else -solved(rules, other, own | bit, known))


def plain(rules, own, other, depth):
    """Return the worth of a position within `depth` plies, without alpha-beta and memory."""
    found = []
    for _, bit in rules.landings(own, other):
        if rules.wins(own | bit, bit):
            found.append(depth)
        elif depth > 1:
            found.append(-plain(rules, other, own | bit, depth - 1))
        else:
            found.append(0)
    return max(found, default=0)


@pytest.mark.parametrize("depth", [1, 2, 3, 4])
def test_alpha_beta_chooses_as_plain_minimax(depth):
    env, rng = ConnectFour(BoardGameConfig(opening=24)), np.random.default_rng(depth)
    search = Minimax(env.rules, depth)
    for _ in range(40 if depth < 4 else 8):
        state = env.reset(Task(id="t", env=env.name, seed=0, data=env.generate(rng)))
        own, other = state.stones[state.turn], state.stones[1 - state.turn]
        values = {}
        for action, bit in env.rules.landings(own, other):
            won = env.rules.wins(own | bit, bit)
            deeper = 0 if depth == 1 else -plain(env.rules, other, own | bit, depth - 1)
            values[action] = depth if won else deeper
        most = max(values.values())
        assert search.best(own, other) == tuple(a for a, v in values.items() if v == most)


@pytest.mark.parametrize("game", GAMES)
def test_deeper_players_beat_shallower_ones(game):
    env, rng = game(), np.random.default_rng(0)
    order = ["random", *env.depths]
    for weak, strong in pairwise(order):
        scores = []
        for number in range(60):
            names = (strong, weak) if number % 2 else (weak, strong)
            end = played(env, names, rng).state
            scores.append(env.seat_score(end, ("second", "first")[number % 2]))
        assert np.mean(scores) > 0.55, (weak, strong)


def test_symmetric_openings_are_one_problem():
    env = TicTacToe(BoardGameConfig(opening=2))
    same = [["1", "2"], ["3", "6"], ["9", "8"], ["7", "4"], ["1", "4"], ["3", "2"]]
    assert len({env.canonical({"moves": moves}) for moves in same}) == 1
    assert env.canonical({"moves": ["1", "2"]}) != env.canonical({"moves": ["2", "1"]})
    every = {env.canonical({"moves": [a, b]}) for a in "123456789" for b in "123456789" if a != b}
    assert len(every) == 12
    four = ConnectFour(BoardGameConfig(opening=2))
    assert four.canonical({"moves": ["1", "2"]}) == four.canonical({"moves": ["7", "6"]})
    assert four.canonical({"moves": ["1", "2"]}) != four.canonical({"moves": ["1", "6"]})


def test_openings_are_split_and_the_empty_board_is_not():
    assert GeneratedTasks(ConnectFour(), "test", 0).seen
    env = ConnectFour(BoardGameConfig(opening=6))
    drawn = {s: {env.canonical(t.data) for t in GeneratedTasks(env, s, 0).take(150)}
             for s in ("train", "test")}  # fmt: skip
    assert len(drawn["train"]) > 50 and not drawn["train"] & drawn["test"]
    counts = {len(task.data["moves"]) for task in GeneratedTasks(env, "train", 0).take(200)}
    assert counts == set(range(7))


@pytest.mark.parametrize("game", GAMES)
def test_every_cell_and_every_action_is_one_token(game):
    env = game()
    tokenizer = make_tokenizer([], env.vocabulary(), NanoConfig())
    seen = env.observe(begun(env, "1", "2"), "first")
    ids = tokenizer(" ".join(seen.text.split()), add_special_tokens=False)["input_ids"]
    assert len(ids) == game.rules.cells
    for action in seen.legal_actions:
        assert len(tokenizer(action, add_special_tokens=False)["input_ids"]) == 1


@pytest.mark.parametrize("game", ["tictactoe_v3", "connect_four_v3"])
def test_pettingzoo_has_the_same_rules(game):
    pytest.importorskip("pettingzoo")
    classic = pytest.importorskip(f"pettingzoo.classic.{game}")
    env = TicTacToe() if game == "tictactoe_v3" else ConnectFour()
    theirs, rng = classic.env(), np.random.default_rng(0)
    for number in range(2000 if game == "tictactoe_v3" else 500):
        theirs.reset(seed=number)
        state, ended = begun(env), False
        for agent in theirs.agent_iter():
            seen, _, terminated, truncated, _ = theirs.last()
            assert (terminated or truncated) == ended
            if ended:
                theirs.step(None)
                continue
            mask = seen["action_mask"]
            (seat,) = env.acting(state)
            assert agent == {"first": "player_", "second": "player_"}[seat] + agent[-1]
            legal = env.observe(state, seat).legal_actions
            assert [str(n + 1) for n in np.flatnonzero(mask)] == list(legal)
            planes = seen["observation"]
            assert int(planes[:, :, 0].sum()) == state.stones[state.turn].bit_count()
            action = int(rng.choice(np.flatnonzero(mask)))
            step = env.step(state, seat, str(action + 1), rng)
            theirs.step(action)
            state, ended = step.state, step.terminated
            if ended:
                paid = {seat: sum(step.rewards.values()), env.acting(state)[0]: 0.0}
                paid |= {other: sum(r.values()) for other, r in step.others.items()}
                assert [paid["first"], paid["second"]] == list(theirs.rewards.values())
