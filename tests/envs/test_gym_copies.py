"""Gymnasium envs whose odd state shows late: saved as it is, replayed, or refused."""

from __future__ import annotations

import array
import collections
import functools
import itertools
import queue
import random
import weakref

import gymnasium
import numpy as np
import pytest
from gymnasium import spaces
from gymnasium.wrappers import (
    FlattenObservation,
    FrameStackObservation,
    NormalizeObservation,
    RecordEpisodeStatistics,
    TimeLimit,
    TransformObservation,
)

from turnwise.envs import make_env
from turnwise.envs.gymnasium.contents import NotCopiedError
from turnwise.envs.gymnasium.copies import Copies
from turnwise.envs.gymnasium.outside_state import Outside
from turnwise.envs.gymnasium.registry import find_spec
from turnwise.errors import ConfigError, EnvError
from turnwise.seeding import generator
from turnwise.types import Task

LATE, STEPS = 165, 168
"""The step that shows what was kept, and the most steps of an episode."""


class Late(gymnasium.Env):
    """A walk by ones, whose reward says at step `LATE` alone what the subclasses keep."""

    observation_space = spaces.Box(-np.inf, np.inf, (1,), np.float64)
    action_space = spaces.Discrete(2)

    def reset(self, *, seed=None, options=None):
        super().reset(seed=seed)
        self.at, self.time = 0.0, 0
        self.begin(float(self.np_random.normal()))
        return np.array([self.at]), {}

    def step(self, action):
        self.time += 1
        self.at += 1.0 if action else -1.0
        self.change()
        return np.array([self.at]), self.kept() if self.time == LATE else 0.0, False, False, {}

    def begin(self, drawn):
        self.drawn = drawn

    def change(self):
        pass

    def kept(self):
        return 0.0


class FlatView(Late):
    def begin(self, drawn):
        self.grid, self.drawn = np.zeros((4, 50)), drawn
        self.flat, self.row, self.odd = self.grid.ravel(), self.grid[1], self.grid.T[::2]

    def change(self):
        self.flat[self.time % 200] += self.drawn
        self.odd += 0.1
        self.row[::2] *= 1.01

    def kept(self):
        return float(self.grid.sum())


class BufferView(Late):
    def begin(self, drawn):
        self.bytes, self.numbers = bytearray(80), array.array("d", [drawn])
        self.view, self.array = memoryview(self.bytes), np.frombuffer(self.numbers)
        self.start = int(drawn * 1000) % 256

    def change(self):
        self.view[0] = (self.view[0] + self.start) % 256
        self.array += 1.0

    def kept(self):
        return self.bytes[0] + self.numbers[0]


class TableRow(Late):
    def begin(self, drawn):
        self.P = {state: [[drawn, state]] for state in range(50)}
        self.row = self.P[2][0]

    def change(self):
        self.row[0] += 1.0

    def kept(self):
        return self.P[2][0][0]


class SameTables(Late):
    """`==` does not tell apart what changes in its table: types, signs, order, aliases."""

    def begin(self, drawn):
        self.P = {key: [0.0, 1] for key in range(40)}
        self.words = dict.fromkeys(map(str, range(40)), drawn)

    def change(self):
        number = self.time % 40
        if self.np_random.random() < 0.5:
            self.P[number] = [-0.0, True]
        if self.np_random.random() < 0.5:
            self.P[number] = self.P.pop(number)
            self.words[str(self.time)] = self.words.pop(next(iter(self.words)))
        if self.np_random.random() < 0.2:
            self.P[number] = self.P[(number + 1) % 40]

    def kept(self):
        signs = [
            np.copysign(1.0, zero) * (2 - isinstance(one, bool)) for zero, one in self.P.values()
        ]
        order = [key * place for place, key in enumerate(self.P)]
        order += [int(word) * place for place, word in enumerate(self.words)]
        return float(
            np.dot(signs, range(40)) + sum(order) + 1e6 * len(set(map(id, self.P.values())))
        )


class Hits:
    def __init__(self, drawn):
        self.drawn, self.hits = drawn, 0


class Forgets(Hits):
    def __getstate__(self):
        return {"drawn": self.drawn, "hits": 0}


class Keeps(Hits):
    def __deepcopy__(self, memo):
        return self


class SlotHits:
    __slots__ = ("__drawn", "hits")

    def __init__(self, drawn):
        self.__drawn, self.hits = drawn, 0

    @property
    def drawn(self):
        return self.__drawn


class Objects(Late):
    def begin(self, drawn):
        self.all = [kind(drawn) for kind in (Hits, Forgets, Keeps, SlotHits)]
        self.weak = weakref.ref(self.all[0])
        self.method = self.all[1].__getstate__

    def change(self):
        for hits in self.all:
            hits.hits += 1
        self.weak().hits += 1
        self.all[2].__class__ = Hits if self.time % 2 else Keeps

    def kept(self):
        found = sum(place * hits.hits * hits.drawn for place, hits in enumerate(self.all, 1))
        return found + isinstance(self.all[2], Keeps) + self.method()["drawn"]


class Containers(Late):
    def begin(self, drawn):
        self.last = collections.deque([drawn], maxlen=9)
        self.counts, self.lists = collections.Counter(), collections.defaultdict(list)
        self.ordered = collections.OrderedDict((key, drawn) for key in range(9))
        self.queue, self.dice = queue.Queue(), random.Random(int(abs(drawn) * 1e6))
        self.places, self.names = {0}, dict.keys(self.counts)

    def change(self):
        self.last.append(self.dice.random())
        self.counts[round(self.at)] += 1
        self.lists[self.time % 7].append(self.at)
        self.ordered.move_to_end(self.dice.randrange(9))
        self.queue.put(self.at)
        self.places.add(int(self.at))

    def kept(self):
        order = sum(key * 2.0**place for place, key in enumerate(self.ordered))
        lists = sum(map(sum, self.lists.values())) + self.queue.qsize() + len(self.names)
        return sum(self.last) + max(self.counts.values()) + order + lists + len(self.places)


class Cells(Late):
    def begin(self, drawn):
        seen, count = [], 0

        def look():
            nonlocal count
            count += 1
            seen.append(drawn * count)

        self.look, self.total = look, functools.partial(sum, seen)

    def change(self):
        self.look()

    def kept(self):
        return self.total()


class Torch(Late):
    def begin(self, drawn):
        torch = pytest.importorskip("torch")
        self.board, self.dice = torch.zeros(4, 4), torch.Generator()
        self.row, self.drawn = self.board[1], drawn
        self.layer = torch.nn.Linear(1, 1)
        self.layer.weight.data.fill_(drawn)
        self.dice.manual_seed(int(abs(drawn) * 1e6))
        self.rand = torch.rand

    def change(self):
        self.row += self.drawn
        self.layer.weight.data += float(self.rand((), generator=self.dice))

    def kept(self):
        return float(self.board.sum() + self.layer.weight.detach())


COPIED = (FlatView, BufferView, TableRow, SameTables, Objects, Containers, Cells, Torch)


class Iterator(Late):
    def begin(self, drawn):
        self.numbers = itertools.count(int(drawn * 1000))

    def change(self):
        self.number = next(self.numbers)

    def kept(self):
        return float(self.number)


class LateIterator(Iterator):
    """Holds what cannot be copied from the middle of an episode on."""

    def begin(self, drawn):
        self.drawn, self.number = drawn, 0

    def change(self):
        if self.time == 160:
            self.numbers = iter(range(int(self.drawn * 1000), 9**9))
        if self.time > 160:
            self.number = next(self.numbers)


class LateCache(Late):
    @functools.lru_cache(maxsize=None)  # noqa: B019, UP033
    def kept(self):
        return self.drawn


REPLAYED = {
    Iterator: r"Iterator\.numbers holds a count",
    LateIterator: r"LateIterator\.numbers holds a range_iterator",
    LateCache: r"LateCache\.kept caches by `self`",
}


class LateCounter(Late):
    counts: collections.Counter = collections.Counter()  # noqa: RUF012

    def change(self):
        if self.time > 160:
            self.counts[round(self.at)] += 1


class LateAttribute(Late):
    best = 0.0

    def change(self):
        if self.time > 160:
            type(self).best += 1.0


SCORES = np.zeros(9)
COUNT = 0


def note():
    global COUNT
    COUNT += 1


class LateGlobal(Late):
    def change(self):
        if self.time > 160:
            SCORES[2] += 1.0


class LateRebound(Late):
    def change(self):
        if self.time > 160:
            note()


class LateDefault(Late):
    def change(self, seen=[]):  # noqa: B006
        if self.time > 160:
            seen.append(self.at)


class LateRandom(Late):
    def kept(self):
        return random.random()


REFUSED = {
    LateCounter: r"LateCounter\.counts",
    LateAttribute: r"LateAttribute\.best",
    LateGlobal: "the global SCORES",
    LateRebound: "the global COUNT",
    LateDefault: r"LateDefault\.change",
    LateRandom: "the generator of Python's random",
}
CACHE: dict[str, list[float]] = {}


class Caches(Late):
    """Fills a cache as it goes, and a name that was None: the same for all episodes."""

    table = None

    def change(self):
        CACHE.setdefault(f"{self.at:.0f}", [self.at])
        if Caches.table is None:
            Caches.table = tuple(range(9))

    def kept(self):
        return sum(map(sum, ([self.at], self.table)))


def named(kind, **options):
    options = {"steps": STEPS, "worst": -5.0, "best": 5.0} | options
    return make_env("gymnasium", id=f"{__file__}:{kind.__name__}", **options)


def task(seed):
    return Task(id=str(seed), env="gymnasium", seed=0, data={"seed": seed})


def action(seed, number):
    return int(generator(seed, "action", number).integers(2))


def alone(kind, seed):
    env = kind()
    env.reset(seed=seed)
    rewards = []
    for number in range(STEPS):
        env.unwrapped.np_random = generator(seed, number)
        rewards.append(env.step(action(seed, number))[1])
    return rewards


def assert_alike(kind, env, seeds):
    """Episodes side by side, with steps back, are what gymnasium shows of each alone."""
    order = generator(0, "side by side")
    states = {seed: [env.reset(task(seed))] for seed in seeds}
    rewards = {seed: [] for seed in seeds}

    def step(seed, number):
        word = env.answers.words[action(seed, number)]
        return env.step(states[seed][number], "player", word, generator(seed, number))

    going = list(seeds)
    while going:
        seed = going[int(order.integers(len(going)))]
        done = step(seed, len(states[seed]) - 1)
        states[seed].append(done.state)
        rewards[seed].append(sum(done.rewards.values()))
        if order.random() < 0.02:
            step(seed, int(order.integers(len(states[seed]) - 1)))
        if done.truncated:
            going.remove(seed)
    for seed in seeds:
        np.testing.assert_array_equal(rewards[seed], alone(kind, seed), err_msg=f"seed {seed}")
        if env.branching == "copy":
            late = step(seed, LATE - 1)
            assert sum(late.rewards.values()) == rewards[seed][LATE - 1]


@pytest.mark.parametrize("kind", COPIED)
def test_references_between_objects_are_kept(kind):
    env = named(kind)
    assert env.branching == "copy"
    assert_alike(kind, env, range(20, 23))


@pytest.mark.parametrize("kind", REPLAYED)
def test_what_cannot_be_saved_is_named_and_replayed(kind):
    env = named(kind)
    assert env.branching == "replay"
    assert_alike(kind, env, range(20, 22))
    with pytest.raises(ConfigError, match=REPLAYED[kind]):
        named(kind, branching="copy")


@pytest.mark.parametrize("kind", REFUSED)
def test_what_is_changed_late_outside_the_instance_is_refused_by_name(kind):
    with pytest.raises(ConfigError, match=f"keep all of its state on self.*{REFUSED[kind]}"):
        named(kind)


def test_caches_outside_the_instance_are_allowed():
    env = named(Caches)
    assert env.branching == "copy"
    assert_alike(Caches, env, range(20, 22))


class Much(Late):
    """Changes a class attribute only when told to, which no trial does."""

    log: list = []  # noqa: RUF012
    on = False

    def change(self):
        if self.on:
            self.log.append(self.at)


def test_a_change_outside_the_instance_that_the_trial_did_not_meet_stops_the_play(monkeypatch):
    env = named(Much)
    state = env.reset(task(0))
    state = env.step(state, "player", "1", generator(0)).state
    monkeypatch.setattr(type(env._world._env), "on", True)
    with pytest.raises(EnvError, match=r"changed Much\.log, which all episodes share"):
        for number in range(40):
            state = env.step(state, "player", "1", generator(number)).state


def test_outside_names_what_changed_and_lets_caches_grow():
    class Watched:
        names: list = []  # noqa: RUF012
        cache: dict = {}  # noqa: RUF012

    outside = Outside([Watched])
    assert outside.changed() == []
    Watched.cache["a"] = [1]
    assert outside.changed() == []
    Watched.cache["a"].append(2)
    Watched.names += ["x"]
    assert sorted(outside.changed()) == ["Watched.cache", "Watched.names"]
    assert outside.changed() == []


WRAPPED = {
    "stack": lambda: FlattenObservation(FrameStackObservation(gymnasium.make("CartPole-v1"), 3)),
    "statistics": lambda: RecordEpisodeStatistics(TimeLimit(gymnasium.make("CartPole-v1"), 50)),
    "normalized": lambda: NormalizeObservation(gymnasium.make("Acrobot-v1")),
    "transformed": lambda: TransformObservation(
        gymnasium.make("CartPole-v1"), lambda seen: seen * 2.0, None
    ),
    "taxi": lambda: gymnasium.make(find_spec("Taxi")),
    "blackjack": lambda: gymnasium.make("Blackjack-v1"),
    "pendulum": lambda: gymnasium.make("Pendulum-v1"),
}


@pytest.mark.parametrize("name", WRAPPED)
def test_gymnasiums_envs_and_wrappers_are_saved_and_restored(name):
    env = WRAPPED[name]()
    env.reset(seed=1)
    copies = Copies(env)
    saved, shown = copies.save(), []
    for _ in range(2):
        copies.restore(saved)
        env.unwrapped.np_random = generator(0)
        env.action_space.seed(0)
        shown.append([repr(env.step(env.action_space.sample())[:4]) for _ in range(5)])
    assert shown[0] == shown[1]


def test_what_cannot_be_saved_is_found_where_it_lies():
    env = Late()
    env.reset(seed=0)
    env.parts = {"rooms": [1, Hits(2.0)]}
    env.parts["rooms"][1].noise = (number for number in range(9))
    with pytest.raises(
        NotCopiedError, match=r"Late\.parts\['rooms'\]\[1\]\.noise holds a generator"
    ):
        Copies(env).save()
