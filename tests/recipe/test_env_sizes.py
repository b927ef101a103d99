"""The sizes of a nano model's run, by hand from the statistics of random games."""

from __future__ import annotations

import pytest

from turnwise.envs.base import Observation
from turnwise.envs.survey import Game, Survey
from turnwise.envs.survey_groups import Groups
from turnwise.recipe.env_sizes import EnvSizes
from turnwise.trainers.config import GrpoConfig

TURN = 14
"""Words of a turn, to which the template adds 16 tokens: 30 together."""


def sizes(
    length=8.0, words=((TURN,) * 4,), seconds=1e-5, cap=1000, acting=1.0, trainer=None, **given
):
    """The sizes for random games of so many turns."""
    groups = Groups(
        length=length, seats=acting, recurring=0.5, past_helps=None, hidden=0.0,
        hidden_by_key=0.0, shows_past=False, finer_keys=False, known=1.0, known_by_key=1.0,
        repeats=True, seconds=seconds,
    )  # fmt: skip
    shown = Survey(
        first=Observation(text="a", legal_actions=("b",)), legal_actions=("b",), varies=False,
        free=False, described=False, cap=cap, legal_words=1.0, groups=groups,
        games=tuple(Game(words=each, reply=(1,) * len(each)) for each in words),
    )  # fmt: skip
    config = GrpoConfig(**{"tasks_per_iteration": 8, "group_size": 8, **(trainer or {})})
    rest = {"given": (), "history": "observation", "seats": 1, "restarts": False, "segment": 16}
    return EnvSizes(shown=shown, trainer=config, **{**rest, **given})


class Reasons(dict):
    """The chosen values by their keys."""

    def __call__(self, key, value, reason):
        self[key] = value
        return value


@pytest.mark.parametrize(
    ("given", "rows"),
    [
        ({}, 32),  # 2048 / 30 = 68
        ({"history": "last_n"}, 22),  # two past turns more: 2048 / 90
        ({"history": "full"}, 8),  # 2048 / (8 x 30)
        ({"history": "full", "length": 40.0, "acting": 2.0}, 3),  # 20 turns are one's own
        ({"history": "full", "length": 1e4}, 2),
        ({"words": ((10, 30), (140,)), "history": "last_n"}, 8),  # 60 + 16, the mean of all turns
    ],
)
def test_long_rows_of_the_warm_up_are_fewer(given, rows):
    assert sizes(**given).rows == rows


@pytest.mark.parametrize(
    ("given", "tasks"),
    [
        ({}, 128),  # four for each row
        ({"history": "full", "length": 40.0}, 32),
        ({"length": 40.0, "seconds": 9.9e-4}, 128),
        ({"length": 40.0, "seconds": 1e-3}, 51),  # 1024 turns are so many halves of a game
        ({"length": 1000.0, "seconds": 1e-3}, 8),
        ({"length": 0.5, "seconds": 1e-3}, 128),
    ],
)
def test_perception_is_checked_in_fewer_states_where_steps_take_long(given, tasks):
    assert sizes(**given).perception_tasks == tasks


@pytest.mark.parametrize(
    ("given", "tasks", "minibatches"),
    [
        ({}, 16, 4),  # 1024 / 8 turns are 128 episodes, the most
        ({"length": 1.0}, 16, 4),
        ({"length": 40.0}, 3, 3),  # 25.6 episodes in groups of 8
        ({"length": 1000.0}, 2, 2),  # 16 episodes, the fewest
        ({"length": 100.0, "trainer": {"group_size": 32}}, 2, 2),
        ({"length": 40.0, "trainer": {"minibatches": 6}}, 6, 4),
        ({"trainer": {"tasks_per_iteration": 1}}, 16, 1),
        ({"length": 1.0, "words": ((984,),)}, 5, 4),  # 40,000 tokens are 40 turns of 1000
    ],
)
def test_an_iteration_has_about_so_many_turns(given, tasks, minibatches):
    reasons, size = Reasons(), given.get("trainer", {}).get("group_size", 8)
    assert sizes(**given).episodes(reasons) == {
        "tasks_per_iteration": tasks, "group_size": size, "minibatches": minibatches,
    }  # fmt: skip
    assert reasons == {"trainer.tasks_per_iteration": tasks}


@pytest.mark.parametrize(
    ("given", "expected"),
    [
        ({}, (8, 4, 32)),  # parts of 2 x 16 turns: 32 episodes
        ({"cap": 65}, (8, 4, 32)),
        ({"cap": 64}, (4, 4, None)),  # two parts would be the whole game
        ({"length": 20.0}, (13, 4, 32)),
        ({"given": ("trainer.group_size",)}, (4, 8, 32)),
    ],
)
def test_long_games_are_played_in_parts_side_by_side(given, expected):
    asked = {"length": 200.0, "restarts": True, "seats": 2, **given}
    found = sizes(**asked).episodes(Reasons())
    assert (found["tasks_per_iteration"], found["group_size"], found.get("max_turns")) == expected


def validation(every, tasks, iterations=100, played=(16, 8), max_turns=None, **given):
    """Check how often how many tasks are validated; return what has a reason."""
    reasons = Reasons()
    plan = {"tasks_per_iteration": played[0], "group_size": played[1]}
    plan |= {} if max_turns is None else {"max_turns": max_turns}
    found = sizes(trainer={"iterations": iterations}, **given).validation(plan, reasons)
    assert (found["every"], found["validation_tasks"]) == (every, tasks)
    assert (found["decoding"], found["validate_start"]) == ("validated", True)
    return set(reasons)


def test_validation_plays_a_tenth_of_what_training_plays():
    assert validation(20, 128, iterations=1000) == {"evaluation.every"}
    validation(40, 128, iterations=1000, played=(8, 8))
    validation(10, 128, iterations=50)  # five times at least
    validation(1, 128, iterations=3)
    parts = {"length": 200.0, "restarts": True, "played": (8, 4)}
    validation(250, 64, iterations=10_000, max_turns=32, **parts)  # a part is 0.16 of a game
    validation(40, 64, iterations=10_000, **parts)
    validation(40, 64, iterations=10_000, max_turns=999, **parts)


def test_validation_has_fewer_tasks_where_steps_take_long():
    reasons = {"evaluation.every", "evaluation.validation_tasks"}
    slow = {"iterations": 1000, "seconds": 1e-3}
    assert validation(5, 32, length=16.0, **slow) == reasons  # each is played in two ways
    assert validation(1, 8, length=1000.0, **slow) == reasons
    assert validation(20, 128, length=4.0, **slow) == {"evaluation.every"}
