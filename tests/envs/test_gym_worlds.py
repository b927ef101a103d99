"""Gymnasium envs that keep their state in odd places: played as alone, or refused."""

from __future__ import annotations

import enum
import functools
import random
import threading

import gymnasium
import numpy as np
import pytest
from gymnasium import spaces
from gymnasium.envs.toy_text.frozen_lake import FrozenLakeEnv, generate_random_map

from turnwise.envs import check_env, make_env
from turnwise.errors import ConfigError, EnvError
from turnwise.seeding import generator
from turnwise.types import Task

STEPS = 25


class Walk(gymnasium.Env):
    """A walk on the integers, whose step lengths the subclasses keep somewhere."""

    observation_space = spaces.Box(-np.inf, np.inf, (2,), np.float64)
    action_space = spaces.Discrete(2)

    def reset(self, *, seed=None, options=None):
        super().reset(seed=seed)
        self.at = 0.0
        self.begin()
        return self.seen(), {}

    def step(self, action):
        self.at += self.length() * (1 if action else -1)
        return self.seen(), float(self.at), False, False, {}

    def seen(self):
        return np.array([self.at, self.shown()])

    def begin(self):
        pass

    def length(self):
        return self.np_random.normal()

    def shown(self):
        return 0.0


class MapAtReset(FrozenLakeEnv):
    """Draws a map, and with it `P` and `desc`, at every reset."""

    def reset(self, *, seed=None, options=None):
        desc = generate_random_map(4, 0.7, seed=seed)
        FrozenLakeEnv.__init__(self, desc=desc, is_slippery=False)
        return super().reset(seed=seed)


class SameHoles(FrozenLakeEnv):
    """Moves the goal at reset, in place: maps differ where a short walk does not come."""

    def reset(self, *, seed=None, options=None):
        seen = super().reset(seed=seed)
        last = (self.ncol - 2 + int(self.np_random.integers(2))) * self.ncol + self.ncol - 1
        for state, row in self.P.items():
            for action, outcomes in row.items():
                row[action] = [(p, s, float(s == last != state), e) for p, s, _, e in outcomes]
        return seen


class Melts(FrozenLakeEnv):
    """A cell that was left becomes a hole: steps change the table."""

    def __init__(self):
        super().__init__(is_slippery=False, map_name="8x8")

    def reset(self, *, seed=None, options=None):
        FrozenLakeEnv.__init__(self, is_slippery=False, map_name="8x8")
        return super().reset(seed=seed)

    def step(self, action):
        before = self.s
        found = super().step(action)
        if self.s != before:
            self.desc[divmod(before, self.ncol)] = b"H"
            for row in self.P.values():
                for outcomes in row.values():
                    for k, (p, s, r, e) in enumerate(outcomes):
                        outcomes[k] = (p, s, r, e or s == before)
        return found


class OwnGenerator(Walk):
    """Draws from a generator of its own, seeded at reset."""

    def begin(self):
        self.dice = np.random.default_rng(self.np_random.integers(2**31))

    def length(self):
        return self.dice.normal()


class KeptGenerator(Walk):
    """Keeps the generator of the reset under another name."""

    def begin(self):
        self.dice = self.np_random

    def length(self):
        return self.dice.normal()


class DrawsFromSpace(Walk):
    """Draws from its action space, which it seeds at reset."""

    def begin(self):
        self.action_space = spaces.Discrete(9)
        self.action_space.seed(int(self.np_random.integers(1000)))

    def length(self):
        return float(self.action_space.sample())


class SharedList(Walk):
    """Two names for one list."""

    def begin(self):
        self.deck = [float(x) for x in self.np_random.permutation(500)]
        self.hand = {"deck": self.deck}

    def length(self):
        return self.hand["deck"].pop()

    def shown(self):
        return sum(self.deck)


class Cached(Walk):
    """Caches what a seed leads to, in a dict that grows."""

    def __init__(self):
        self.cache = {}

    def begin(self):
        key = float(self.np_random.normal())
        self.row = self.cache.setdefault(key, [key])

    def length(self):
        self.row.append(self.row[-1] * 1.1)
        return self.row[-1]


class Counts(Walk):
    """Gets harder with every episode that one instance plays."""

    episodes = 0

    def begin(self):
        self.episodes += 1

    def length(self):
        return float(self.episodes)


class Slotted(Walk):
    """Keeps its state in a slot."""

    __slots__ = ("hidden",)

    def begin(self):
        self.hidden = float(self.np_random.normal())

    def length(self):
        self.hidden += 1.0
        return self.hidden


class Back:
    def __init__(self, env):
        self.env, self.taken = env, 0

    def next(self):
        self.taken += 1
        return self.taken * self.env.scale


class BackReference(Walk):
    """A helper that refers to the env."""

    def begin(self):
        self.scale, self.helper = float(self.np_random.normal()), Back(self)

    def length(self):
        return self.helper.next()


class OneArray(Walk):
    """Returns the array that it goes on changing."""

    def begin(self):
        self.array = np.zeros(2)

    def seen(self):
        self.array[:] = self.at, self.array[1] + 1
        return self.array


class Filter(gymnasium.Wrapper):
    """A wrapper with state of its own: a running sum of what is seen."""

    def __init__(self):
        super().__init__(Walk())

    def reset(self, **options):
        seen, info = self.env.reset(**options)
        self.sum = seen[0]
        return seen, info

    def step(self, action):
        seen, *rest = self.env.step(action)
        self.sum += seen[0]
        return (np.array([seen[0], self.sum]), *rest)


class View(Walk):
    """An array and a view of it, which a copy must not part."""

    def begin(self):
        self.board = self.np_random.normal(size=(4, 4))
        self.row = self.board[1]

    def length(self):
        self.row += 1.0
        return float(self.board[1, 2])


class Locked(Walk):
    """Holds a lock, which no copy can be made of."""

    def __init__(self):
        self.window = threading.Lock()


class Closure(Walk):
    """Keeps its state in a closure."""

    def begin(self):
        count, scale = 0, float(self.np_random.normal())

        def following():
            nonlocal count
            count += 1
            return count * scale

        self.following = following

    def length(self):
        return self.following()


class Iterating(Walk):
    """Keeps its state in a generator function."""

    def begin(self):
        scale = float(self.np_random.normal())
        self.lengths = (scale * k for k in range(1000))

    def length(self):
        return next(self.lengths)


class OneWorld(Walk):
    """Keeps its world over resets, as BipedalWalker does."""

    def __init__(self):
        self.lock, self.world = threading.Lock(), []

    def begin(self):
        self.world.append(0.0)

    def length(self):
        self.world[-1] += 0.001
        return float(self.np_random.normal()) + sum(self.world) + len(self.world)


COPIED = (MapAtReset, SameHoles, Melts, OwnGenerator, KeptGenerator, DrawsFromSpace, SharedList,
          Cached, Counts, Slotted, BackReference, OneArray, Filter, View, Locked, Closure,
          OneWorld)  # fmt: skip


class OpenFile(Walk):
    """Keeps its world over resets, and beside it what cannot be copied."""

    def __init__(self):
        self.file, self.world = open(__file__), []  # noqa: SIM115

    def begin(self):
        self.world.append(0.0)

    def length(self):
        self.world[-1] += 0.001
        return float(self.np_random.normal()) + sum(self.world) + len(self.world)

    def close(self):
        self.file.close()


class CachedMethod(Walk):
    """Caches by `self` what a reset has drawn."""

    def begin(self):
        self.map = self.np_random.normal(size=20)

    @functools.lru_cache(maxsize=None)  # noqa: B019, UP033
    def height(self, place):
        return float(self.map[place % 20])

    def length(self):
        return self.height(int(self.at))


REPLAYED = (Iterating, OpenFile, CachedMethod)


class ClassState(Walk):
    """Keeps its state in the class."""

    shared: list = []  # noqa: RUF012

    def begin(self):
        self.shared[:] = [float(self.np_random.normal())]

    def length(self):
        self.shared[0] += 1.0
        return self.shared[0]


class ClassCount(Walk):
    """Counts episodes of all instances."""

    episodes = 0

    def begin(self):
        type(self).episodes += 1

    def length(self):
        return float(self.episodes)


WORLD: dict[str, float] = {}


class ModuleState(Walk):
    """Keeps its state in a global."""

    def begin(self):
        WORLD["scale"] = float(self.np_random.normal())

    def length(self):
        WORLD["scale"] += 1.0
        return WORLD["scale"]


class Late(Walk):
    """Shows a count that lies elsewhere, in one of eight episodes and after 45 steps."""

    def begin(self):
        self.time, self.shows = 0, self.np_random.integers(8) == 3
        self.count(0)

    def length(self):
        self.time += 1
        added = self.count(1)
        return added if self.shows and self.time > 45 else 1.0


class LateMethod(Late):
    """Keeps it on its method."""

    def count(self, by):
        LateMethod.count.found = LateMethod.count.found + by if by else 0
        return LateMethod.count.found


class Colour(enum.Enum):
    RED = 1


class LateMember(Late):
    """Keeps it on the member of an enum."""

    def count(self, by):
        Colour.RED.found = Colour.RED.found + by if by else 0
        return Colour.RED.found


class LateGlobal(Late):
    """Keeps it in a global that its code does not name."""

    def count(self, by):
        name = "_".join(("LATE", "COUNT"))
        globals()[name] = globals()[name] + by if by else 0
        return globals()[name]


class PythonsRandom(Walk):
    """Draws from Python's random, which it seeds at reset."""

    def begin(self):
        random.seed(int(self.np_random.integers(1000)))

    def length(self):
        return random.random()


class NumpysRandom(Walk):
    """Draws from numpy.random, which nobody seeds."""

    def length(self):
        return float(np.random.random())


REFUSED = {
    ClassState: "side by side differ .*ClassState.shared",
    ClassCount: "with equal seed and noise differ.*ClassCount.episodes",
    ModuleState: "side by side differ .*the global WORLD",
    LateMethod: "side by side differ .*LateMethod.count",
    LateMember: "side by side differ .*Colour._member_map_",
    LateGlobal: "side by side differ .*the global LATE_COUNT",
    PythonsRandom: "side by side differ .*Python's random",
    NumpysRandom: "with equal seed and noise differ.*numpy.random",
}


def named(kind, **options):
    options = {"steps": STEPS, "worst": -5.0, "best": 5.0} | options
    return make_env("gymnasium", id=f"{__file__}:{kind.__name__}", **options)


def task(seed):
    return Task(id=str(seed), env="gymnasium", seed=0, data={"seed": seed})


def alone(kind, seed):
    """The observations of an episode that gymnasium itself plays in a new env."""
    env = kind()
    seen, _ = env.reset(seed=seed)
    shown = [np.array(seen)]
    for number in range(STEPS):
        env.unwrapped.np_random = generator(seed, number)
        action = int(generator(seed, "action", number).integers(2))
        seen, reward, terminated, _, _ = env.step(action)
        shown += [np.array(seen), float(reward), terminated]
        if terminated:
            break
    return shown


def side_by_side(env, seeds):
    """The same episodes of one turnwise env, a random one's step at a time."""
    order = generator(0, "side by side")
    states = {seed: env.reset(task(seed)) for seed in seeds}
    shown = {seed: [states[seed].observation] for seed in seeds}
    going = list(seeds)
    while going:
        seed = going[int(order.integers(len(going)))]
        number = states[seed].steps
        word = env.answers.words[int(generator(seed, "action", number).integers(2))]
        step = env.step(states[seed], "player", word, generator(seed, number))
        states[seed] = step.state
        shown[seed] += [step.state.observation, sum(step.rewards.values()), step.terminated]
        if step.terminated or step.truncated:
            going.remove(seed)
    return shown


def assert_alike(kind, env):
    for _ in range(2):  # in envs that have been used, too
        found = side_by_side(env, range(12))
        for seed, shown in found.items():
            for left, right in zip(shown, alone(kind, seed), strict=True):
                np.testing.assert_allclose(left, right, err_msg=f"seed {seed}")


@pytest.mark.parametrize("kind", COPIED)
def test_whatever_an_instance_holds_is_copied(kind):
    env = named(kind)
    assert env.branching == "copy"
    assert_alike(kind, env)


@pytest.mark.parametrize("kind", REPLAYED)
def test_what_cannot_be_copied_is_replayed(kind):
    env = named(kind)
    assert env.branching == "replay"
    assert_alike(kind, env)


def test_a_replayed_env_has_a_new_env_for_every_episode():
    made = []
    env = named(OpenFile)
    own = env._world.make
    env._world.make = lambda: made.append(own()) or made[-1]
    states = [env.reset(task(seed)) for seed in (0, 1, 0)]
    assert len(made) == 3 == len({id(state.memory.live.env) for state in states})
    check_env(env, tasks=2)


@pytest.mark.parametrize("kind", REFUSED)
def test_state_outside_the_instance_is_refused_by_its_name(kind):
    with pytest.raises(ConfigError, match=REFUSED[kind]) as caught:
        named(kind)
    assert "\n" not in str(caught.value)


def test_a_table_that_changes_from_episode_to_episode_is_no_table():
    for kind in (MapAtReset, SameHoles, Melts):
        assert "optimal" not in named(kind).baselines()
    assert "optimal" in make_env("gymnasium", id="FrozenLake-v1").baselines()


def test_a_table_is_saved_only_when_it_has_changed():
    env = named(Melts)
    states = [env.reset(task(0))]
    for word in ("1", "0", "0", "0"):  # a step down, which melts a cell, and three into the wall
        states.append(env.step(states[-1], "player", word, generator(0)).state)
    tables = [max(state.memory.blocks, key=lambda block: len(block.nodes)) for state in states]
    assert len({id(table) for table in tables}) == 2
    known = make_env("gymnasium", id="FrozenLake-v1")
    assert not known.reset(task(0)).memory.blocks  # gymnasium's own class never writes it


class OldReset(Walk):
    def reset(self, *, seed=None, options=None):
        return super().reset(seed=seed)[0]


class OldStep(Walk):
    def step(self, action):
        seen, reward, terminated, _, info = super().step(action)
        return seen, reward, terminated, info


@pytest.mark.parametrize(
    ("kind", "words"), [(OldReset, r"OldReset\.reset returned ndarray: return \(observation, info"),
                        (OldStep, r"OldStep\.step returned 4 values: return \(observation, rew")]
)  # fmt: skip
def test_the_old_gyms_tuples_are_refused(kind, words):
    with pytest.raises(EnvError, match=words):
        named(kind)


class Unpaid(Walk):
    pays = np.nan

    def step(self, action):
        observation, _, terminated, truncated, info = super().step(action)
        return observation, self.pays, terminated, truncated, info


@pytest.mark.parametrize("pays", [np.nan, np.inf, -np.inf])
def test_a_reward_that_is_not_finite_is_refused_and_not_taken_for_0(pays, monkeypatch):
    monkeypatch.setattr(Unpaid, "pays", pays)
    with pytest.raises(EnvError, match=r"step returned the reward -?(nan|inf): return a finite"):
        game = named(Unpaid)
        game.step(game.reset(task(0)), "player", "1", generator(0))


class Short(Walk):
    """Raises beyond its limit, which is never reached."""

    def begin(self):
        self.left = STEPS

    def length(self):
        self.left -= 1
        if self.left < 0:
            raise RuntimeError("beyond the limit")
        return 1.0


def test_no_episode_is_played_beyond_the_limit():
    assert named(Short).max_turns == STEPS
