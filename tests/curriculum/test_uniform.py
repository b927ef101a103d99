"""Fresh tasks, visit by visit: none twice, and the same ones after a resume."""

from __future__ import annotations

import pytest

from turnwise.curriculum import UniformCurriculum
from turnwise.envs import make_env
from turnwise.tasks import GeneratedTasks
from turnwise.types import Task


def draw(index):
    return Task(id=f"t{index}", env="e", seed=0, data={"index": index})


def names(visits):
    return [visit.task.id for visit in visits]


def test_no_task_is_drawn_twice_whatever_is_refilled():
    curriculum = UniformCurriculum(draw, 8)
    seen = []
    for iteration in range(20):
        seen += names(curriculum.visits(iteration))
        seen += names(curriculum.visits(iteration, first=8, count=3))
        seen += names(curriculum.visits(iteration, first=11, count=8))
    assert len(seen) == len(set(seen)) == 20 * 19


def test_visits_say_where_they_belong():
    curriculum = UniformCurriculum(draw, 4)
    visits = curriculum.visits(7)
    assert [(visit.iteration, visit.visit) for visit in visits] == [(7, n) for n in range(4)]
    refilled = curriculum.visits(7, first=4, count=2)
    assert [visit.visit for visit in refilled] == [4, 5]


def test_visits_are_a_function_of_iteration_and_number():
    """A resumed run asks another object, and begins in the middle."""
    one, other = UniformCurriculum(draw, 4), UniformCurriculum(draw, 4)
    first = [one.visits(iteration) for iteration in range(5)]
    assert other.visits(4) == first[4]
    assert one.visits(4, first=1, count=2) == first[4][1:3]


def test_an_iteration_has_room_for_64_fillings_and_no_more():
    curriculum = UniformCurriculum(draw, 2)
    last = curriculum.visits(0, first=126, count=2)
    assert names(last) == ["t126", "t127"]
    assert names(curriculum.visits(1, count=1)) == ["t128"]
    with pytest.raises(ValueError, match="at most 128 visits, got 129"):
        curriculum.visits(0, first=127, count=2)


def test_problems_of_an_env_are_drawn_from_all_of_its_split():
    """Nearly every visit is another lake: what repeats is chance, not the numbering."""
    tasks = GeneratedTasks(make_env("frozen-lake", start="random"), "train", 0)
    curriculum = UniformCurriculum(tasks.task, 16)
    visits = [visit for iteration in range(10) for visit in curriculum.visits(iteration)]
    maps = {"/".join(visit.task.data["map"]) for visit in visits}
    assert len(maps) > 150
