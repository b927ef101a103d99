"""The curriculum of tiers: when it goes on and back, what it mixes, and that it resumes."""

from __future__ import annotations

from collections import Counter
from dataclasses import replace

import pytest
from pydantic import ValidationError

from turnwise.curriculum import TiersConfig, TiersCurriculum
from turnwise.envs import make_env, score_baselines
from turnwise.errors import ConfigError
from turnwise.tasks import GeneratedTasks
from turnwise.types import Episode, EpisodeId, Failure


def curriculum(**options):
    tasks = GeneratedTasks(make_env("ant-colony", seats=2, ticks=25), "train", seed=3)
    wanted = {"kind": "tiers", "last": 2, "tasks": 2, "measure": "valid_actions"} | options
    return TiersCurriculum(tasks, tasks.env, 10, TiersConfig(**wanted))


def episodes(tasks, score, valid=1.0):
    return [
        Episode(
            id=EpisodeId(iteration=0, visit=n, task=task.id, member=0),
            task=task,
            trajectories=(),
            terminated=False,
            truncated=True,
            score=score,
            measures={"valid_actions": valid},
        )
        for n, task in enumerate(tasks)
    ]


def examined(found, score, valid=1.0):
    found.judge(episodes(found.exam(5), score, valid))
    return found.tier


def test_two_passes_in_a_row_lead_to_the_next_tier():
    found = curriculum(retreat=0.0)
    assert [examined(found, score) for score in (1.0, 0.0, 1.0, 1.0)] == [0, 0, 0, 1]
    assert examined(found, 1.0) == 1  # the passes of the tier before do not count
    assert examined(found, 1.0) == 2
    assert [examined(found, 1.0) for _ in range(3)] == [2, 2, 2]  # the last one


def test_invalid_actions_do_not_pass():
    found = curriculum()
    assert [examined(found, 1.0, valid=0.97) for _ in range(3)] == [0, 0, 0]
    assert [examined(found, 1.0, valid=0.98) for _ in range(2)] == [0, 1]


def test_a_score_far_below_the_baseline_leads_back():
    found = curriculum()
    for _ in range(2):
        examined(found, 1.0)
    assert examined(found, 0.0) == 0
    assert examined(found, 0.0) == 0  # the first one


def test_exams_are_frozen_tasks_of_the_validation_split():
    found = curriculum(every=5)
    assert [len(found.exam(n)) for n in (0, 1, 4, 5, 6, 10)] == [0, 0, 0, 2, 0, 2]
    assert found.exam(5) == found.exam(10) == curriculum().exam(5)
    wanted = GeneratedTasks(make_env("ant-colony", ticks=25), "validation", 0).take(2)
    assert [task.data for task in found.exam(5)] == [task.data for task in wanted]
    env = make_env("ant-colony", ticks=25)
    heuristic = score_baselines(env, wanted, 0, names=["heuristic"])["heuristic"].mean
    examined(found, heuristic / 2)
    assert found.metrics()["curriculum/exam_share"] == pytest.approx(0.5)


def test_earlier_tiers_are_mixed_in_and_counted():
    found = curriculum()
    assert {visit.task.data["tier"] for visit in found.visits(0)} == {0}
    for _ in range(4):
        examined(found, 1.0)
    assert found.tier == 2
    visits = [visit for n in range(20) for visit in found.visits(n)]
    counts = Counter(visit.task.data["tier"] for visit in visits)
    assert 0.6 < counts[2] / 200 < 0.8 and 0.1 < counts[1] / 200 < 0.3 and counts[0] > 5
    latest = Counter(visit.task.data["tier"] for visit in found.visits(19))
    told = found.metrics()
    assert told["curriculum/tier"] == 2.0
    assert {t: told[f"curriculum/visits_{t}"] for t in latest} == latest


def test_a_resumed_run_goes_on_in_its_tier():
    found, other = curriculum(), curriculum()
    for _ in range(3):
        examined(found, 1.0)
    other.restore(found.state())
    assert (other.tier, other.metrics()["curriculum/tier"]) == (1, 1.0)
    assert other.visits(7) == found.visits(7)
    assert examined(other, 1.0) == examined(found, 1.0) == 2


@pytest.mark.parametrize(
    ("options", "said"),
    [
        ({"option": "level"}, "no option of env 'ant-colony'"),
        ({"baseline": "oracl"}, "no baseline of env 'ant-colony'"),
        ({"last": 9}, "tier"),
    ],
)
def test_what_cannot_be_is_refused(options, said):
    with pytest.raises(ConfigError, match=said):
        curriculum(**options)


def test_wrong_numbers_are_refused():
    with pytest.raises(ValueError, match="smaller retreat"):
        TiersConfig(kind="tiers", retreat=0.9)
    with pytest.raises(ValueError, match="a last tier that is not below"):
        TiersConfig(kind="tiers", first=3, last=2)


def test_exams_are_of_the_env_by_which_runs_are_evaluated():
    training = make_env("ant-colony", seats=2, start="anywhere", ticks=6)
    tasks = GeneratedTasks(training, "train", seed=3)
    judged = make_env("ant-colony", tier=2)
    found = TiersCurriculum(tasks, judged, 10, TiersConfig(kind="tiers", last=2, tasks=4))
    assert all("start" in visit.task.data for visit in found.visits(0))
    for task in found.exam(5):
        assert "start" not in task.data
        assert (task.data["tier"], task.data["ticks"]) == (0, 40)


@pytest.mark.parametrize(
    ("env", "options", "said"),
    [
        ({"seats": 2}, {"last": 4}, "tier = 4 do not fit .* the option seats"),
        ({"seats": 2}, {"measure": "valid_action"}, "did you mean 'valid_actions'"),
        ({"seats": 2, "up_to": True}, {}, "leave out the option"),
    ],
)
def test_what_would_end_or_block_a_climb_is_found_at_the_start(env, options, said):
    tasks = GeneratedTasks(make_env("ant-colony", **env), "train", seed=3)
    with pytest.raises(ConfigError, match=said):
        TiersCurriculum(tasks, tasks.env, 10, TiersConfig(kind="tiers", **{"last": 2} | options))


def test_limits_that_nothing_reaches_are_refused():
    with pytest.raises(ValidationError):
        TiersConfig(kind="tiers", least=float("nan"))


def test_episodes_that_the_env_broke_are_left_out_of_exams():
    found = curriculum()
    for _ in range(2):
        one, two = episodes(found.exam(5), 1.0)
        broken = replace(two, score=0.0, measures={}, error=Failure(kind="env", message="no"))
        found.judge([one, broken])
    assert found.tier == 1
    found.judge([broken, broken])
    assert found.tier == 1 and found.metrics()["curriculum/exam_measure"] == 1.0


def test_a_baseline_without_a_score_is_passed_by_one_as_good():
    found = curriculum(tasks=2)
    found._wanted[0] = -5.0
    assert [examined(found, score) for score in (-6.0, -5.0, -4.0)] == [0, 0, 1]


def test_the_tier_of_an_iteration_is_that_of_its_visits():
    found = curriculum()
    found.visits(0)
    for _ in range(2):
        examined(found, 1.0)
    assert (found.tier, found.metrics()["curriculum/tier"]) == (1, 0.0)
    found.visits(1)
    assert found.metrics()["curriculum/tier"] == 1.0


def test_policy_and_baseline_have_as_many_turns():
    env = make_env("ant-colony", seats=2)
    env.max_turns = 7
    found = TiersCurriculum(
        GeneratedTasks(env, "train", 3), env, 10, TiersConfig(kind="tiers", last=2)
    )
    assert {source.env.turn_cap() for source in found._exams.values()} == {7}
