"""Random play of the warm-up in envs that sometimes break, and what is checked before it."""

from __future__ import annotations

from dataclasses import replace

import pytest

from turnwise.agents import AgentConfig
from turnwise.app.transcripts import transcripts_of
from turnwise.envs import Observation
from turnwise.envs.frozen_lake.env import FrozenLake
from turnwise.errors import BrokenEnvError, ConfigError, DataError, StuckEnvError
from turnwise.rollout import check_actions, first_states
from turnwise.runs import comparable, read_metrics
from turnwise.trainers import demonstrations, resume, sft, warm_up
from turnwise.trainers.demonstrations import Alternating
from turnwise.trainers.sft import perception, rows_for


@pytest.fixture
def breaks(monkeypatch):
    """`breaks(method, every)`: each call of so many of a lake's method raises."""

    def make(method, every, error=RuntimeError):
        real, calls = getattr(FrozenLake, method), []

        def call(self, *args):
            calls.append(method)
            if len(calls) % every == 0:
                raise error("the connection is lost")
            return real(self, *args)

        monkeypatch.setattr(FrozenLake, method, call)

    return make


@pytest.fixture
def session(make_recipe, make_session):
    """A session whose warm-up shows random play of a lake with one start."""
    return make_session(make_recipe("env.training.start=corner", "warmup.states=play"))


def play_rows(session, **changes):
    rows = rows_for(session, session.trained["main"], "demonstrations", states="play")
    (source,) = rows.sources
    return replace(source, **changes)


@pytest.mark.parametrize("method", ["step", "observe", "reset"])
def test_a_game_that_breaks_ends_no_warm_up(session, breaks, method):
    rows = play_rows(session)
    breaks(method, 11)
    assert len([rows.row(index) for index in range(40)]) == 40
    first = replace(rows, states="first")
    assert len([first.row(index) for index in range(40)]) == 40


def test_an_env_that_always_breaks_ends_it(session, breaks):
    rows = play_rows(session)
    breaks("observe", 1)
    with pytest.raises(BrokenEnvError, match="the connection is lost"):
        rows.row(0)


def test_an_env_that_hangs_ends_it_at_once(session, monkeypatch):
    rows, calls = play_rows(session), []

    def hang(self, task):
        calls.append(task)
        raise StuckEnvError("it hangs")

    monkeypatch.setattr(FrozenLake, "reset", hang)
    with pytest.raises(StuckEnvError):
        rows.row(0)
    assert len(calls) == 1


def test_rows_that_do_not_fit_are_replaced(session):
    rows = play_rows(session)
    lengths = sorted(len(rows.row(index).token_ids) for index in range(40))
    assert lengths[0] < lengths[-1]
    middle = (lengths[0] + lengths[-1]) // 2
    narrow = play_rows(session, context=middle)
    assert max(len(narrow.row(index).token_ids) for index in range(40)) <= middle
    with pytest.raises(DataError, match=r"a demonstration has \d+ tokens, .* context of 3: take"):
        play_rows(session, context=3).row(0)


def test_states_on_whose_way_the_env_breaks_are_not_measured(session, breaks, make_recipe):
    trained, config = session.trained["main"], make_recipe().warmup
    breaks("reset", 3)
    assert 0 <= perception(session, trained, config, 1).share <= 1
    breaks("reset", 1)
    with pytest.raises(BrokenEnvError, match="the connection is lost"):
        perception(session, trained, config, 2)


def test_the_share_of_states_that_broke_is_a_metric(session, breaks, make_recipe):
    trained, config = session.trained["main"], make_recipe().warmup
    assert "warmup/broken_share" not in perception(session, trained, config, 1).metrics
    breaks("reset", 3)
    found = perception(session, trained, config, 2).metrics
    assert 0.1 < found["warmup/broken_share"] < 0.9


def test_a_game_that_breaks_is_tried_once_for_all_its_rows(session, monkeypatch):
    rows, calls = play_rows(session), []
    shared = rows._shared
    real = demonstrations.random_game

    def game(*args, **kwargs):
        calls.append(1)
        if len(calls) == 1:
            raise BrokenEnvError("the connection is lost")
        return real(*args, **kwargs)

    monkeypatch.setattr(demonstrations, "random_game", game)
    rows._latest.clear()
    monkeypatch.setitem(rows.__dict__, "_shared", max(shared, 4))
    for index in range(4):
        rows.row(index)
    assert len(calls) == 2  # the game that broke, and the one in its place
    rows_of_a_game = range(1, demonstrations.MOST_OF_A_GAME + 1)
    assert not any(demonstrations.APART % each for each in rows_of_a_game)


def test_transcripts_hold_what_was_played_before_a_break(breaks, make_recipe):
    recipe = make_recipe("env.training.start=corner", "warmup.states=play")
    whole = transcripts_of(recipe)
    breaks("step", 2)
    parts = transcripts_of(recipe)
    assert 0 < len(parts) < len(whole)


def test_the_first_of_several_processes_makes_the_rows(session):
    class Group:
        def from_first(self, call):
            return ["the rows of the first", *call()]

    rows = Alternating(sources=[play_rows(session)], group=Group)
    assert rows.batch(0, 2)[0] == "the rows of the first"
    assert len(rows.batch(0, 2)) == 3


def test_first_states_are_those_of_tasks_that_do_not_break(session, breaks):
    env, tasks = session.warmup_env, session.warmup_tasks.take(9)
    assert len(first_states(env, tasks, "player")) == 9
    breaks("reset", 3)
    assert len(first_states(env, tasks, "player")) == 6
    breaks("reset", 1)
    with pytest.raises(BrokenEnvError):
        first_states(env, tasks, "player")


@pytest.mark.parametrize(
    ("actions", "said"),
    [
        (("go", "</answer> go"), "'</answer> go' is read as ''"),
        (("Go", "go"), "'go' is read as 'Go'"),
        (("go", " stay"), "' stay' is not an answer"),
    ],
)
def test_actions_that_no_reply_can_carry_are_refused(actions, said):
    seen = Observation(text="here", legal_actions=actions)
    with pytest.raises(ConfigError, match="name actions without") as caught:
        check_actions([seen], AgentConfig(), "own")
    assert said.split(" is ")[0] in str(caught.value)
    fine = Observation(text="here", legal_actions=("go", "go on", "go on\nand on", "<go>"))
    check_actions([fine, Observation(text="any", legal_actions=())], AgentConfig(), "own")


def stopped_in(session, monkeypatch, steps):
    """Ask the session to stop after so many steps."""
    real, done = sft.imitate, []

    def imitate(*args):
        done.append(1)
        if len(done) == steps:
            session.stop.requested = "a test"
        return real(*args)

    monkeypatch.setattr(sft, "imitate", imitate)


def test_a_warm_up_stops_within_a_round_and_goes_on_as_if_it_had_not(
    make_recipe, make_session, monkeypatch, tmp_path
):
    settings = ("warmup.steps=8", "warmup.eval_every=4", "warmup.batch_size=4")
    recipe = make_recipe(*settings, "warmup.optimizer.lr=1e-3")

    def run(folder, stop=None):
        session = make_session(recipe, folder)
        with monkeypatch.context() as patched:
            if stop:
                stopped_in(session, patched, stop)
            done = warm_up(session, recipe.warmup, resume(session))
        session.metrics.close()
        records = comparable(read_metrics(session.run.metrics))
        return done, session.policies["main"].digest(), records

    whole = run(tmp_path / "whole")
    assert whole[0]
    assert not run(tmp_path / "parts", stop=3)[0]
    assert not run(tmp_path / "parts", stop=3)[0]  # the second step of the second round
    assert run(tmp_path / "parts") == whole


def test_the_seconds_before_a_stop_within_a_round_count(
    make_recipe, make_session, monkeypatch, tmp_path
):
    recipe = make_recipe("warmup.steps=8", "warmup.eval_every=4", "warmup.batch_size=4")
    session = make_session(recipe, tmp_path / "run")
    stopped_in(session, monkeypatch, 3)
    assert not warm_up(session, recipe.warmup, None)
    saved = session.checkpoints.latest().checkpoint
    assert saved.step == 3
    assert saved.meta["totals"]["seconds"] > 0
