"""When a run stops because all of it broke, and when it says that replies fail."""

from __future__ import annotations

import pytest

from turnwise.errors import EngineError, EnvError
from turnwise.rollout.health import QUOTED, Health, ReplyWatch, commonest_break, failed_replies
from turnwise.types import Episode, EpisodeId, Failure, Sampling, Task, Trajectory, Turn, TurnId

PARSE = Failure(kind="parse", message="no answer")
BROKEN = Failure(kind="env", message="Lake.step raised KeyError")


def turn(text="LEFT", error=None, finish_reason="stop"):
    return Turn(
        order=0,
        id=TurnId(
            episode=EpisodeId(iteration=0, visit=0, task="t", member=0), role="player", turn=0
        ),
        policy="main",
        policy_version=0,
        prompt_ids=(1,),
        completion_ids=(2,),
        logprobs=(-0.5,),
        sampling=Sampling(),
        finish_reason=finish_reason,
        text=text,
        error=error,
    )


def episode(error=None, *, visit=0, turns=()):
    return Episode(
        id=EpisodeId(iteration=0, visit=visit, task="t", member=0),
        task=Task(id="t", env="lake", seed=0, data={}),
        trajectories=(Trajectory(role="player", seat="player", turns=tuple(turns)),),
        terminated=True,
        truncated=False,
        score=0.0,
        error=error,
    )


def test_one_episode_that_is_whole_is_enough_to_go_on():
    broken = [episode(BROKEN, visit=visit) for visit in range(4)]
    assert Health().problem([*broken, episode()], "iteration 3") is None
    assert Health().problem([*broken, episode(PARSE)], "iteration 3") is None
    assert Health().problem([], "iteration 3") is None


def test_two_visits_that_broke_stop_a_run_at_once():
    found = Health().problem([episode(BROKEN), episode(BROKEN, visit=1)], "iteration 3")
    assert type(found) is EnvError
    assert str(found) == "all 2 episodes of iteration 3 broke: Lake.step raised KeyError"


def test_one_visit_stops_a_run_with_the_next_unless_that_is_whole():
    one = [episode(BROKEN), episode(BROKEN)]
    health = Health()
    assert health.problem(one, "iteration 0") is None
    assert health.problem([episode()], "iteration 1") is None
    assert health.problem(one, "iteration 2") is None
    assert type(health.problem(one, "iteration 3")) is EnvError


def test_the_commonest_cause_is_named_and_says_whose_it_is():
    engine = Failure(kind="engine", message="out of memory")
    some = [episode(engine, visit=n) for n in range(2)]
    found = Health().problem([episode(BROKEN), *some], "the evaluation")
    assert type(found) is EngineError
    assert str(found) == (
        "all 3 episodes of the evaluation broke: out of memory; 1 other causes are in `episodes/`"
    )


def test_failed_replies_are_counted_over_the_episodes_that_are_whole():
    whole = episode(PARSE, turns=[turn(), turn("x", PARSE), turn("y", PARSE, "length")])
    found = failed_replies([whole, episode(BROKEN, turns=[turn("z", PARSE)])])
    assert (found.replies, found.failed, found.cut) == (3, 2, 1)
    assert found.share == pytest.approx(2 / 3)
    assert failed_replies([]).share == 0.0


def test_examples_quote_different_replies_shortly():
    long = "word " * 200
    said = ["x", "x", long, "z"]
    found = failed_replies([episode(PARSE, turns=[turn(text, PARSE) for text in said])])
    first, second = found.examples().split("; ")
    assert first == "The model said 'x' (no answer)"
    assert second == f"The model said {long[:QUOTED] + '...'!r} (no answer)"
    assert found.examples(1) == first
    assert found.examples(9).count("The model said") == 3
    exact = failed_replies([episode(PARSE, turns=[turn("a" * QUOTED, PARSE)])])
    assert "..." not in exact.examples()


def failing(share, of=10):
    """Return episodes of which some end in a failed reply."""
    bad = round(share * of)
    ended = [episode(PARSE, turns=[turn("x", PARSE)]) for _ in range(bad)]
    return [*ended, *(episode(turns=[turn()]) for _ in range(of - bad))]


def test_the_watch_warns_once_until_replies_recover():
    watch = ReplyWatch()
    assert watch.warning(failing(0.5), 1) == ""  # more than half
    assert not watch.failing
    said = watch.warning([*failing(0.6), episode(BROKEN)], 2)
    assert said.startswith("iteration 2: 60% of the episodes ended in a reply that is no")
    assert "The model said 'x' (no answer). If it stays so" in said
    assert "lower optimizer.movement" in said and "credit.invalid_below_worst = true" in said
    assert "(`turnwise docs why-is-it-not-learning`)" in said  # a wheel has no folder docs
    assert watch.warning(failing(0.8), 3) == "" and watch.failing
    assert watch.warning(failing(0.1), 4) == "" and not watch.failing
    assert watch.warning(failing(0.9), 5).startswith("iteration 5: 90%")


def test_an_env_that_never_ends_is_named_before_the_replies():
    watch = ReplyWatch()
    said = watch.warning(failing(0.9), 1, capped=0.75)
    cure = "lake does not end its episodes (75% of them were cut at the cap on turns)"
    assert cure in said and "optimizer." not in said
    assert watch.warning([], 2) == "" and not watch.failing


def test_the_share_of_one_reply_is_whole_and_of_none_is_nothing():
    assert failed_replies([episode(turns=[turn(error=PARSE)])]).share == 1.0
    assert failed_replies([episode()]).share == 0.0


def test_the_first_episodes_that_broke_are_told_once_with_the_commonest_cause():
    other = Failure(kind="env", message="Lake.step raised ValueError")
    some = [episode(other), episode(BROKEN), episode(BROKEN), episode(PARSE), episode()]
    watch = ReplyWatch()
    assert watch.warning([episode()], 1) == ""
    assert watch.warning(some, 2) == (
        "iteration 2: 3 of 5 episodes broke and are left out. Most often: Lake.step raised KeyError"
    )
    assert watch.warning(some, 3) == ""
    assert commonest_break([episode(), episode(PARSE)]) == ""
