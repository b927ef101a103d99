import json
from collections import Counter
from typing import ClassVar

import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from turnwise.envs import (
    Env,
    FrozenLake,
    FrozenLakeConfig,
    Observation,
    Step,
    make_env,
    make_guarded,
)
from turnwise.envs.frozen_lake.data import VALUES, print_state
from turnwise.errors import ConfigError, UnknownNameError
from turnwise.tasks import GeneratedTasks, generated, split_of
from turnwise.tasks.counting import count_problems, unseen_bound

PINNED = {"": "test", "FFFF/FFFF/FFFF/FFFG": "train", "problem 10": "validation"}
SPLITS = ("train", "validation", "test")
PHASES = (
    {},
    {"start": "random"},
    {"solvable": False},
    {"slippery": True, "frozen_probability": 0.7},
)


def mirrored(data):
    return data | {"map": ["".join(column) for column in zip(*data["map"], strict=True)]}


@settings(max_examples=15, deadline=None)
@given(seeds=st.lists(st.integers(0, 10**6), min_size=3, max_size=3), size=st.integers(4, 5))
def test_no_problem_is_in_two_splits_whatever_phase_start_or_mirror_image(seeds, size):
    problems = {}
    for split, seed in zip(SPLITS, seeds, strict=True):
        found = set()
        for options in PHASES:
            env = make_env("frozen-lake", size=size, **options)
            for task in GeneratedTasks(env, split, seed).take(12):
                found |= {env.canonical(task.data), env.canonical(mirrored(task.data))}
        problems[split] = found
    assert not problems["train"] & problems["validation"]
    assert not problems["train"] & problems["test"]
    assert not problems["validation"] & problems["test"]


def test_split_shares_are_those_documented():
    splits = [split_of(f"problem-{number}") for number in range(20_000)]
    shares = [splits.count(split) / len(splits) for split in SPLITS]
    np.testing.assert_allclose(shares, [0.7, 0.1, 0.2], atol=0.01)


def test_the_hash_stays_the_same_for_ever():
    # Published scores are on tasks that this hash chose: a change would move tests to training.
    assert [split_of(text) for text in PINNED] == list(PINNED.values())


def test_tasks_are_functions_of_seed_split_and_index():
    env = make_env("frozen-lake")
    tasks = GeneratedTasks(env, "train", seed=3)
    assert tasks.take(5) == [tasks.task(index) for index in range(5)]
    assert tasks.take(5) == GeneratedTasks(make_env("frozen-lake"), "train", seed=3).take(5)
    assert tasks.take(5) != GeneratedTasks(env, "train", seed=4).take(5)
    drawn = tasks.take(50)
    assert len({task.id for task in drawn}) == 50
    assert all(split_of(env.canonical(task.data)) == "train" for task in drawn)
    same = {task.id.split("-")[2] for task in drawn}
    assert len(same) == len({env.canonical(task.data) for task in drawn})


def test_tasks_that_were_taken_are_not_drawn_again(monkeypatch):
    tasks = GeneratedTasks(make_env("frozen-lake", start="random"), "test", seed=0)
    first = tasks.take(3)
    drawn, generate = [], tasks.env.generate
    monkeypatch.setattr(tasks.env, "generate", lambda rng: drawn.append(rng) or generate(rng))
    assert tasks.take(2) == first[:2] and not drawn
    assert tasks.take(4)[:3] == first and drawn


def test_a_fixed_map_is_in_every_split_and_says_so():
    env = make_env("frozen-lake", map=["SFFF", "FHFH", "FFFH", "HFFG"])
    sources = [GeneratedTasks(env, split, seed=0) for split in SPLITS]
    assert [source.seen for source in sources] == [True] * 3
    assert len({tuple(source.task(0).data["map"]) for source in sources}) == 1
    assert not GeneratedTasks(make_env("frozen-lake"), "test", seed=0).seen


class Numbers(Env[int]):
    """Draws a number; `numbers` of them, or lists them."""

    name = "numbers"
    components: ClassVar = {"right": "agent"}

    def __init__(self, numbers, lists=None, weights=None):
        super().__init__()
        self.numbers, self.lists, self.weights = numbers, lists, weights

    def generate(self, rng):
        return {"n": int(rng.choice(self.numbers, p=self.weights))}

    def tasks(self, split):
        if self.lists is None:
            return None
        if isinstance(self.lists, dict):
            return [{"n": n} for n in self.lists[split]]
        every = [{"n": n} for n in range(self.numbers)]
        return [data for data in every if split_of(self.canonical(data)) == split]

    def reset(self, task):
        return task.data["n"]

    def observe(self, state, role):
        return Observation(text=str(state), legal_actions=("a", "b"))

    def step(self, state, role, action, noise):
        return Step(state=state, rewards={"right": 1.0}, terminated=True, truncated=False)

    def score(self, state):
        return 1.0


def met(env, split, count=400):
    return {task.data["n"] for task in GeneratedTasks(env, split, seed=5).take(count)}


@pytest.mark.parametrize("lists", [None, "by hash"])
@pytest.mark.parametrize("numbers", [1, 2, 16, 19])
def test_fewer_than_twenty_problems_are_in_every_split(numbers, lists):
    env = Numbers(numbers, lists)
    for split in SPLITS:
        tasks = GeneratedTasks(env, split, seed=0)
        assert tasks.seen
        assert tasks.problems.counts == dict.fromkeys(SPLITS, numbers)
        assert met(env, split) == set(range(numbers))
    assert (
        "every split has the same (fewer than 20, or 3 in one split, are not divided)"
        in tasks.problems.described
    )


@pytest.mark.parametrize("lists", [None, "by hash"])
@pytest.mark.parametrize("numbers", [40, 100])
def test_more_problems_are_divided_and_counted(numbers, lists):
    env = Numbers(numbers, lists)
    parts = [met(env, split, 3000) for split in SPLITS]
    assert set.union(*parts) == set(range(numbers))
    assert sum(map(len, parts)) == numbers
    tasks = GeneratedTasks(env, "test", seed=0)
    assert list(tasks.problems.counts.values()) == [len(part) for part in parts]
    assert not tasks.seen


@pytest.mark.parametrize("lists", [None, "by hash"])
def test_problems_of_which_a_split_would_have_few_are_not_divided(lists, monkeypatch):
    """The hash leaves 4 to 6 of 25 to 45 numbers for validation."""
    monkeypatch.setattr("turnwise.envs.split.LEAST", 6)
    divided = []
    for numbers in range(25, 46, 5):
        env = Numbers(numbers, lists)
        parts = [{n for n in range(numbers) if split_of(f'{{"n": {n}}}') == s} for s in SPLITS]
        few = min(map(len, parts)) < 6
        assert GeneratedTasks(env, "test", seed=0).seen == few
        assert met(env, "validation") == (set(range(numbers)) if few else parts[1])
        divided.append(not few)
    assert len(set(divided)) == 2


def test_a_division_of_the_envs_own_is_kept_and_what_it_shares_is_seen():
    apart = Numbers(9, {"train": [1, 2], "validation": [3], "test": [4, 4]})
    assert [met(apart, split) for split in SPLITS] == [{1, 2}, {3}, {4}]
    tasks = GeneratedTasks(apart, "test", seed=0)
    assert (tasks.seen, tasks.count, tasks.problems.counts["test"]) == (False, 2, 1)
    mixed = Numbers(9, {"train": [1, 2], "validation": [3], "test": [2, 4]})
    assert GeneratedTasks(mixed, "test", seed=0).seen
    assert not GeneratedTasks(mixed, "validation", seed=0).seen


def test_what_is_drawn_without_end_is_not_counted():
    tasks = GeneratedTasks(make_env("frozen-lake"), "test", seed=0)
    assert (tasks.problems.counts, tasks.problems.described, tasks.seen) == ({}, "", False)
    assert GeneratedTasks(Numbers(10_000), "test", seed=0).problems.counts == {}


def test_a_problem_that_is_seldom_drawn_is_counted():
    weights = np.array([0.9] + [0.1 / 9] * 9)
    problems = GeneratedTasks(Numbers(10, weights=weights), "train", seed=0).problems
    assert problems.counts["test"] == 10


def test_options_with_one_problem_have_it_in_every_split():
    env = make_env("frozen-lake", frozen_probability=1.0)
    for split in SPLITS:
        tasks = GeneratedTasks(env, split, seed=0)
        assert tasks.task(0).data["map"][0] == "SFFF"
        assert (tasks.seen, tasks.problems.counts) == (True, dict.fromkeys(SPLITS, 1))
    with pytest.raises(UnknownNameError, match="did you mean 'validation'"):
        GeneratedTasks(env, "valid", seed=0)


def test_an_env_without_problems_is_refused():
    none = Numbers(0, {split: [] for split in SPLITS})
    with pytest.raises(ConfigError, match="numbers lists no train problem: give it some"):
        GeneratedTasks(none, "train", seed=0).task(0)


class Bits(Numbers):
    """Twelve bits, each seldom set: 4,096 problems, of which one is most of what is drawn."""

    def __init__(self, set_share):
        super().__init__(4096)
        self.set_share = set_share

    def generate(self, rng):
        return {"n": int((rng.random(12) < self.set_share) @ (1 << np.arange(12)))}


def test_skewed_problems_are_counted_as_at_least_so_many_and_held_out():
    env = Bits(0.02)
    train, test = (GeneratedTasks(env, split, seed=0) for split in ("train", "test"))
    found = test.problems
    assert not test.seen and 20 <= sum(found.counts.values()) < 200
    assert found.described.startswith("distinct problems, at least: train ")
    assert 0.005 < found.others < 0.05
    assert not met(env, "train", 300) & met(env, "test", 300)
    assert train.problems.met([env.canonical(t.data) for t in test.take(50)]) == 0


def test_what_has_next_to_no_weight_does_not_stand_in_the_way_of_few_problems():
    """Twelve problems are 99.9 % of the draws: held-out ones would be drawn once in a thousand."""
    found = GeneratedTasks(Bits(1e-4), "test", seed=0).problems
    assert found.same and found.counts["test"] < 20
    assert found.others <= 0.0125
    assert "at least" in found.described and "others are at most" in found.described


@pytest.mark.parametrize("common", [3, 5, 12])
def test_a_split_that_would_hardly_be_drawn_is_not_made(common):
    """Some problems share 98 % of the draws; each of the others comes once."""
    rare = 5000
    weights = np.r_[np.full(common, 0.98 / common), np.full(rare, 0.02 / rare)]
    env = Numbers(common + rare, weights=weights)
    shares = dict.fromkeys(SPLITS, 0.0)
    for number, weight in enumerate(weights):
        shares[split_of(env.canonical({"n": number}))] += weight
    tasks = GeneratedTasks(env, "test", seed=0)
    assert tasks.seen == tasks.problems.same == (min(shares.values()) < 0.01)
    drawn = [env.canonical(task.data) for task in tasks.take(400)]
    if tasks.seen:
        assert "a split would be less than 1% of what is drawn" in tasks.problems.described
        assert 0.97 < tasks.problems.met(drawn) < 1
    else:
        assert tasks.problems.met(drawn) == 0


def test_the_bound_on_other_problems_holds():
    """The unseen share of the draws is known here, and below its bound nearly always."""
    rng = np.random.default_rng(0)
    held = []
    for _ in range(200):
        weights = rng.dirichlet(np.full(300, 0.05))
        seen = rng.multinomial(400, weights)
        counted = Counter({str(n): int(times) for n, times in enumerate(seen) if times})
        held.append(unseen_bound(counted) >= weights[seen == 0].sum())
    assert np.mean(held) >= 0.93
    assert unseen_bound(Counter({"a": 1000})) == 3 / 1000


def test_listed_problems_are_counted_and_not_estimated():
    problems = GeneratedTasks(Numbers(16, "by hash"), "test", seed=0).problems
    assert problems.others is None and "at least" not in problems.described


class Own(FrozenLake):
    """A user's env, whose code may read what no option names."""


@pytest.fixture
def counted(monkeypatch):
    """The names of the envs whose problems are counted."""
    names = []

    def count(env):
        names.append(env.name)
        return count_problems(env)

    monkeypatch.setattr(generated, "count_problems", count)
    monkeypatch.setattr(generated, "_BY_OPTIONS", {})
    return names


def test_the_problems_of_a_shipped_env_are_counted_once_for_its_options(counted):
    sources = [GeneratedTasks(make_env("frozen-lake", size=4), "train", seed) for seed in (0, 1)]
    guarded = GeneratedTasks(make_guarded("frozen-lake", {"size": 4}, 60.0), "test", 0)
    assert len(counted) == 1
    assert sources[0].problems is sources[1].problems is guarded.problems
    GeneratedTasks(make_env("frozen-lake", size=5), "train", 0)
    assert len(counted) == 2


def test_problems_that_options_do_not_decide_are_counted_for_each_instance(counted, tmp_path):
    for _ in range(2):
        GeneratedTasks(Own(FrozenLakeConfig()), "train", 0)
    assert len(counted) == 2
    state = {"state_str": print_state(("SFFF", "FHFH", "FFFH", "HFFG"), 0), "action": "1"}
    values = dict.fromkeys(VALUES, "0.5")
    path = tmp_path / "states.jsonl"
    path.write_text(json.dumps(state | values) + "\n")
    for _ in range(2):
        GeneratedTasks(make_env("frozen-lake", data=str(path)), "train", 0)
    assert len(counted) == 4
