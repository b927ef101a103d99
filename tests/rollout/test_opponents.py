"""Seats that opponents play, what each seat is paid, and what is scored and trained of it."""

from __future__ import annotations

from dataclasses import replace

import numpy as np
import pytest
from transformers import AutoTokenizer

from turnwise.agents import AgentConfig
from turnwise.credit import CreditConfig, assign_advantages
from turnwise.engines import ScriptedEngine
from turnwise.envs import Step, TicTacToe
from turnwise.envs.opponents import opposed, own_score, rewards_of
from turnwise.envs.relay import Relay, RelayConfig
from turnwise.policies import NanoConfig, make_nano
from turnwise.render import Renderer
from turnwise.rollout import rollout_metrics
from turnwise.rollout.runner import Runner
from turnwise.rollout.seat_rewards import SeatRewards
from turnwise.types import Message, Player, Task, TaskVisit
from turnwise.workflows import turns

TINY = NanoConfig(hidden=16, layers=1, heads=2, kv_heads=1, head_dim=8, intermediate=16, context=64)
TASK = Task(id="t", env="tic-tac-toe", seed=0, data={"moves": []})
FIRST_WINS = {"first": ("1", "2", "3"), "second": ("4", "5", "6")}
SECOND_WINS = {"first": ("1", "2", "9"), "second": ("4", "5", "6")}


class Game(TicTacToe):
    """Tic-tac-toe with a baseline that always takes the last free cell."""

    def baselines(self):
        def last(state, rng):
            return self.observe(state, self.acting(state)[0]).legal_actions[-1]

        return {**super().baselines(), "last": last}


@pytest.fixture(scope="module")
def board(tmp_path_factory):
    """The renderer of a tokenizer of the game's words."""
    words = TicTacToe().vocabulary()
    folder = make_nano(tmp_path_factory.mktemp("nano") / "model", ["x"], words, TINY, seed=0)
    return Renderer(AutoTokenizer.from_pretrained(folder))


@pytest.fixture
def play(board):
    """`play(moves, players)`: a game in which seats answer with their moves one by one."""

    def make(moves, players=None, *, env=None, samples=1, stream="train", opponent=None, seed=0):
        def script(request):
            return board.completion_ids(f"<answer> {moves[request.id.role][request.id.turn]} "
                                        "</answer>")  # fmt: skip

        runner = Runner(
            env=env or Game(),
            workflow=turns,
            agents={"player": AgentConfig()},
            renderers={"main": board, "old": board},
            engine=ScriptedEngine(script, seed=seed),
            seed=seed,
            opponent=opponent,
        )
        visit = TaskVisit(iteration=0, visit=0, task=TASK, players=players or {})
        return runner.collect([visit], stream, group_size=samples)

    return make


def test_the_loser_is_paid_at_its_latest_turn_for_the_winners_step(play):
    (episode,) = play(FIRST_WINS)
    first, second = episode.trajectories
    assert [turn.rewards.get("win", 0.0) for turn in first.turns] == [0, 0, 1]
    assert [turn.rewards.get("loss", 0.0) for turn in first.turns] == [0, 0, 0]
    assert [turn.rewards.get("loss", 0.0) for turn in second.turns] == [0, -1]
    assert (episode.score, episode.terminated, episode.opponent) == (1.0, True, "")


def test_every_seat_of_a_self_play_game_is_credited_with_its_own_result(play):
    credit = CreditConfig(scheme="reinforce", rewards={"win": 1.0, "loss": 1.0})
    (episode,) = play(SECOND_WINS)
    found = assign_advantages([episode], credit).advantages
    worth = {turn.id.role: spans[""] for turn in episode.turns for spans in [found[turn.id]]}
    assert worth["second"] > 0 > worth["first"]


def test_a_baseline_plays_a_seat_and_its_turns_are_not_trained(play):
    episodes = play(FIRST_WINS, {"second": Player(name="last")}, samples=2)
    for episode in episodes:
        first, second = episode.trajectories
        assert (first.player, second.player, episode.opponent) == ("", "last", "last")
        assert [turn.action for turn in second.turns] == ["9", "8"]
        assert all(turn.text_only and not turn.completion_ids for turn in second.turns)
        assert [turn.rewards["loss"] for turn in second.turns if turn.rewards] == [-1.0]
        assert episode.own_turns == first.turns
        assert sorted(turn.order for turn in episode.turns) == list(range(5))
    credit = CreditConfig(scheme="reinforce", rewards={"win": 1.0, "loss": 1.0})
    trained = {turn.role for turn in assign_advantages(episodes, credit).advantages}
    assert trained == {"first"}


def test_an_opponent_may_begin(play):
    (episode,) = play({"second": ("1", "2", "3", "4")}, {"first": Player(name="last")})
    assert [t.action for t in episode.trajectories[0].turns] == ["9", "8", "7"]
    assert episode.score == 0.0  # 7 8 9 is a line of the opponent's
    assert episode.trajectories[1].turns[-1].rewards["loss"] == -1.0


def test_frozen_weights_play_a_seat_under_their_own_name(play):
    players = {"second": Player(name="pool", policy="old")}
    (episode,) = play(FIRST_WINS, players)
    assert [turn.policy for turn in episode.turns] == ["main"] * 3 + ["old"] * 2
    credit = CreditConfig(scheme="reinforce", rewards={"win": 1.0})
    trained = {turn.role for turn in assign_advantages([episode], credit).advantages}
    assert trained == {"first"}  # though the role is the same, and both policies have tokens
    metrics = rollout_metrics([episode])
    assert metrics["opponents/pool_share"] == metrics["opponents/pool_score"] == 1.0
    assert metrics["rollout/turns"] == 3


def test_an_opponents_invalid_reply_becomes_a_random_move(play):
    moves = {"first": ("1", "2", "3", "6"), "second": ("1", "1", "1", "1")}
    players = {"second": Player(name="pool", policy="old")}
    episode, again = play(moves, players)[0], play(moves, players)[0]
    second = episode.trajectories[1].turns
    assert episode.error is None or episode.error.kind == "parse"  # that of `first`
    assert all(turn.error is None and turn.rewards["invalid"] == 1.0 for turn in second)
    assert len({turn.action for turn in second}) == len(second)
    assert [t.action for t in again.turns] == [t.action for t in episode.turns]
    assert rollout_metrics([episode])["opponents/invalid_share"] == 1.0


def test_the_policys_own_invalid_reply_still_ends_the_episode(play):
    (episode,) = play({"first": ("x",)}, {"second": Player(name="last")})
    assert episode.error is not None and episode.error.kind == "illegal_action"
    assert episode.score == 0.0 and episode.terminated


def test_the_score_is_that_of_the_seats_that_no_opponent_plays(play):
    for seat, score in (("first", 0.0), ("second", 1.0)):
        (other,) = {"first", "second"} - {seat}
        players = {other: Player(name="pool", policy="old")}
        (episode,) = play(SECOND_WINS, players)
        assert episode.score == score


def test_members_of_a_group_meet_an_opponent_with_the_same_draws(play):
    moves = {"first": ("1", "2", "3", "4", "5"), "second": ()}
    same = play(moves, {"second": Player(name="random")}, samples=4)
    assert len({same_turn.action for e in same for same_turn in e.trajectories[1].turns[:1]}) == 1
    firsts = {
        play(moves, {"second": Player(name="random")}, seed=seed)[0].trajectories[1].turns[0].action
        for seed in range(12)
    }
    assert len(firsts) > 3


def test_evaluation_is_against_the_opponent_with_each_seat_in_turn(board):
    env = Game()

    def script(request):
        return board.completion_ids("<answer> 1 </answer>")

    runner = Runner(
        env=env,
        workflow=turns,
        agents={"player": AgentConfig()},
        renderers={"main": board},
        engine=ScriptedEngine(script, seed=0),
        seed=0,
        opponent="last",
    )
    visits = [TaskVisit(iteration=0, visit=n, task=TASK) for n in range(4)]
    episodes = runner.collect(visits, "evaluation")
    players = [[t.seat for t in e.trajectories if t.player] for e in episodes]
    assert players == [["second"], ["first"], ["second"], ["first"]]
    trained = runner.collect(visits, "train")
    assert not any(episode.opponent for episode in trained)


def test_rewards_after_a_question_are_those_of_the_turn_that_was_asked(board):
    async def asks(agents, state):
        step = await agents["first"].act(state)
        for seat in ("second", "first", "second", "first"):
            if seat == "second":
                await agents[seat].ask([Message(role="user", content="x")])
            step = await agents[seat].act(step.state)
        return step

    cells = {("first", 0): "1", ("first", 1): "2", ("first", 2): "3"}
    cells |= {("second", n): cell for n, cell in enumerate("4455")}
    runner = Runner(
        env=Game(),
        workflow=asks,
        agents={"player": AgentConfig()},
        renderers={"main": board},
        engine=ScriptedEngine(
            lambda r: board.completion_ids(f"<answer> {cells[r.id.role, r.id.turn]} </answer>"),
            seed=0,
        ),
        seed=0,
    )
    (episode,) = runner.collect([TaskVisit(iteration=0, visit=0, task=TASK)], "train")
    second = episode.trajectories[1].turns
    assert [turn.phase == "ask" for turn in second] == [True, False, True, False]
    assert [turn.rewards.get("loss", 0.0) for turn in second] == [0, 0, 0, -1]


def test_rewards_of_a_seat_before_its_first_turn_wait_for_it():
    kept = SeatRewards()
    kept.give({"late": {"gain": 2.0}})
    kept.played("late")
    kept.give({"late": {"gain": 1.0, "cost": -1.0}})
    kept.played("late")
    kept.give({"late": {"gain": 4.0}, "never": {"gain": 9.0}})
    assert kept.owed("late", 0) == {"gain": 3.0, "cost": -1.0}
    assert kept.owed("late", 1) == {"gain": 4.0}


def test_what_a_seat_earns_by_a_step():
    env = Relay(RelayConfig())
    step = Step(state=0, rewards={"found": 1.0}, terminated=False, truncated=False)
    assert rewards_of(env, step, "digger", "scout") == {"found": 1.0}  # a team's
    game = TicTacToe()
    won = replace(step, rewards={"win": 1.0}, others={"second": {"loss": -1.0}})
    assert rewards_of(game, won, "first", "first") == {"win": 1.0}
    assert rewards_of(game, won, "first", "second") == {"loss": -1.0}


def test_the_seats_of_an_opponent():
    three = ["a", "b", "c"]
    assert [set(opposed(three, n, "x")) for n in range(3)] == [{"b", "c"}, {"a", "c"}, {"a", "b"}]
    env = TicTacToe()
    state = env.reset(replace(TASK, data={"moves": ["1", "4", "2", "5"]}))
    won = env.step(state, "first", "3", np.random.default_rng(0)).state
    assert own_score(env, won, {}) == own_score(env, won, {"second": 1}) == 1.0
    assert own_score(env, won, {"first": 1}) == 0.0
    assert own_score(env, won, {"first": 1, "second": 1}) == 1.0
