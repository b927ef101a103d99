"""Demonstrations that are kept, drawn, written to a checkpoint and read from it."""

from __future__ import annotations

import json

import numpy as np

from turnwise.trainers.relabelling import Achieved
from turnwise.trainers.replay import KEPT, Replay
from turnwise.types import EpisodeId, Task


def achieved(number, *actions):
    task = Task(id="t", env="e", seed=0, data={"goal": number})
    identity = EpisodeId(iteration=0, visit=0, task="t", member=number)
    return Achieved(
        id=identity, asked=task, task=task, actions=actions, problem=str(number), closeness=0.5
    )


def test_the_shortest_of_each_problem_is_kept_and_drawn_without_replacement():
    replay = Replay(count=2)
    assert replay.drawn(np.random.default_rng(0)) == []
    replay.add([achieved(1, "long way"), achieved(3, "yes")])
    replay.add([achieved(1, "way"), achieved(3, "longer")])
    assert {name: each.actions for name, each in replay.kept.items()} == {
        "1": ("way",), "3": ("yes",)
    }  # fmt: skip
    replay.add([achieved(4, "and"), achieved(5, "more")])
    drawn = [[e.problem for e in replay.drawn(np.random.default_rng(seed))] for seed in range(99)]
    assert all(len(set(each)) == 2 for each in drawn)
    counts = [sum(name in each for each in drawn) for name in ("1", "3", "4", "5")]
    assert all(30 < count < 70 for count in counts), "each with equal probability"
    few = Replay(count=9, kept=dict(replay.kept))
    assert len(few.drawn(np.random.default_rng(0))) == 4, "all, where there are fewer"


def test_the_latest_problems_are_kept():
    replay = Replay(count=1)
    replay.add([achieved(1, "way"), achieved(2, "way")])
    replay.add([achieved(1, "longer way")])
    assert list(replay.kept) == ["2", "1"], "and shown again counts as late"
    replay.add([achieved(number, "a") for number in range(10, 9 + KEPT)])
    assert len(replay.kept) == KEPT and next(iter(replay.kept)) == "1"


def test_nothing_is_kept_where_nothing_is_drawn():
    none = Replay(count=0)
    none.add([achieved(1, "way")])
    assert none.kept == {} and none.drawn(np.random.default_rng(0)) == []


def test_its_state_is_plain_and_is_restored_in_its_order():
    replay = Replay(count=2)
    replay.add([achieved(2, "one", "two"), achieved(1, "three")])
    other = Replay(count=2)
    other.restore(json.loads(json.dumps(replay.state())))
    assert other == replay and list(other.kept) == ["2", "1"]
