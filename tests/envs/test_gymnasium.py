"""The gymnasium adapter: gymnasium's own dynamics, as values, in words, with chance by place."""

from __future__ import annotations

import importlib.util
import itertools

import gymnasium
import numpy as np
import pytest
from gymnasium import spaces

from turnwise.envs import check_env, make_env, score_baselines
from turnwise.envs.gymnasium.known import CARDS, KNOWN, MOST, _add, _hit, _stick, basic_strategy
from turnwise.envs.gymnasium.spaces import check_readable, observation_text
from turnwise.errors import (
    ConfigError,
    DataError,
    EnvError,
    IllegalActionError,
    MissingDependencyError,
)
from turnwise.seeding import generator
from turnwise.tasks import GeneratedTasks
from turnwise.types import Task

NAMES = ("Taxi", "CliffWalking", "Blackjack", "FrozenLake", "CartPole", "MountainCarContinuous")
OPTIONS = {"MountainCarContinuous": {"repeat": 20}}


def gym_env(name, **options):
    return make_env("gymnasium", id=name, **(OPTIONS.get(name, {}) | options))


def task(**data):
    return Task(id="t", env="gymnasium", seed=0, data={"seed": 0, **data})


def newest(name):
    found = [n for n in gymnasium.registry if n.rpartition("-v")[0] == name]
    return max(found, key=lambda n: int(n.rpartition("-v")[2]))


@pytest.mark.parametrize("name", NAMES)
@pytest.mark.parametrize("branching", ["copy", "replay"])
def test_the_envs_keep_the_contract(name, branching):
    env = gym_env(name, branching=branching, steps=40)
    assert check_env(env, tasks=1).steps > 0
    assert env.branching == branching


@pytest.mark.parametrize("name", NAMES)
def test_the_dynamics_are_gymnasiums_own(name):
    env, own = gym_env(name, repeat=1), gymnasium.make(newest(name)).unwrapped
    rng = generator(0, "test", name)
    for seed in range(3):
        state = env.reset(task(seed=seed))
        seen, _ = own.reset(seed=seed)
        total = 0.0
        for number in range(60):
            assert np.array_equal(state.observation, seen)
            word = env.random_action(state, "player", rng)
            action = env.answers.read(word)
            step = env.step(state, "player", word, generator(seed, number))
            own.np_random = generator(seed, number)
            seen, reward, terminated, truncated, _ = own.step(action)
            total += reward
            assert sum(step.rewards.values()) == pytest.approx(reward)
            assert step.rewards["gain"] >= 0 >= step.rewards["cost"]
            assert (step.terminated, step.truncated) == (terminated, truncated)
            state = step.state
            if terminated:
                break
        assert np.array_equal(state.observation, seen)
        assert state.total == pytest.approx(total)


@pytest.mark.parametrize("branching", ["copy", "replay"])
@pytest.mark.parametrize("name", ["FrozenLake", "Blackjack", "CartPole"])
def test_states_are_values_however_episodes_interleave(name, branching):
    env = gym_env(name, branching=branching)
    rng = generator(1, "interleave")
    states = [env.reset(task(seed=seed)) for seed in range(3)]
    seen = []
    for number in range(40):
        state = states[int(rng.integers(len(states)))]
        if state.ended:
            continue
        word = env.random_action(state, "player", rng)
        step = env.step(state, "player", word, generator(number))
        seen.append((state, word, number, step))
        states.append(step.state)
    for state, word, number, step in reversed(seen):
        again = env.step(state, "player", word, generator(number))
        assert dict(again.rewards) == dict(step.rewards)
        assert (again.terminated, again.truncated) == (step.terminated, step.truncated)
        assert env.state_key(again.state, "player") == env.state_key(step.state, "player")


def test_chance_is_the_generators_alone():
    env = gym_env("FrozenLake")
    state = env.reset(task())

    def lands(*place):
        return env.step(state, "player", "DOWN", generator(0, *place)).state.observation

    assert [lands(i) for i in range(30)] == [lands(i) for i in range(30)]
    assert len({lands(i) for i in range(30)}) > 1


def test_tables_give_the_exact_optimum():
    """FrozenLake is 0.744 worth from its first cell with 100 steps; CliffWalking takes 13."""
    lake, cliff, taxi = gym_env("FrozenLake"), gym_env("CliffWalking"), gym_env("Taxi")
    assert lake._values[100, 0].max() == pytest.approx(0.74419, abs=1e-5)
    assert cliff._values[100, 36].max() == -13
    first = taxi._table.first
    mean = float((first * taxi._values[200].max(axis=1)).sum())
    assert mean == pytest.approx(7.93, abs=0.6)
    tasks = GeneratedTasks(taxi, "test", 0).take(20)
    scores = score_baselines(taxi, tasks, 0, names=["optimal", "random"])
    exact = [(taxi._values[200, t.data["first"]].max() + 200) / 215 for t in tasks]
    assert scores["optimal"].scores == pytest.approx(exact)
    assert scores["random"].mean < 0.2


def test_the_optimum_plans_with_the_steps_left_and_with_repeats():
    near = gym_env("CliffWalking", steps=3)
    assert near._values[3, 36].max() == -3
    twice = gym_env("CliffWalking", repeat=2, steps=100)
    task0 = GeneratedTasks(twice, "test", 0).task(0)
    found = score_baselines(twice, [task0], 0, names=["optimal"])["optimal"]
    assert found.mean == pytest.approx((twice._values[50, 36].max() + 100) / 87)


def test_a_table_that_steps_do_not_keep_to_is_no_table():
    env = gym_env("Taxi", kwargs={"fickle_passenger": True})
    assert "optimal" not in env.baselines()
    with pytest.raises(ConfigError, match="needs an env with a table"):
        gym_env("Taxi", kwargs={"fickle_passenger": True}, start="anywhere")


def test_basic_strategy_is_the_known_one():
    assert basic_strategy((16, 10, 0)) == "HIT"
    assert basic_strategy((16, 6, 0)) == "STICK"
    assert basic_strategy((12, 4, 0)) == "STICK"
    assert basic_strategy((12, 3, 0)) == "HIT"
    assert basic_strategy((18, 9, 1)) == "HIT"
    assert basic_strategy((18, 8, 1)) == "STICK"
    assert basic_strategy((17, 1, 0)) == "STICK"


def test_basic_strategy_is_worth_what_its_own_values_say():
    """-0.0431 a hand by gymnasium's rules: an infinite deck, and two cards of 21 beat all else."""
    worth = 0.0
    for first, second, dealer in itertools.product(CARDS, repeat=3):
        total, ace = _add(*_add(0, False, first), second)
        open_card = _add(0, False, dealer)
        if total == MOST:
            beaten = sum(_add(*open_card, card)[0] == MOST for card in CARDS) / len(CARDS)
            worth += 1.0 - beaten
        else:
            worth += max(_stick(total, dealer), _hit(total, ace, dealer))
    assert worth / len(CARDS) ** 3 == pytest.approx(-0.0431, abs=5e-5)


def test_players_that_need_no_model_score_as_they_should():
    blackjack = gym_env("Blackjack")
    found = score_baselines(blackjack, GeneratedTasks(blackjack, "test", 0).take(2000), 0)
    returns = {name: 2 * score.mean - 1 for name, score in found.items()}
    assert returns["basic-strategy"] == pytest.approx(-0.043, abs=0.06)
    assert returns["random"] == pytest.approx(-0.39, abs=0.06)
    car = gym_env("MountainCarContinuous", repeat=10)
    task0 = GeneratedTasks(car, "test", 0).task(0)
    found = score_baselines(car, [task0], 0)
    assert found["push-with-velocity"].mean > 0.85
    assert found["always-high"].mean == found["always-middle"].mean == 0.0


def test_the_score_is_linear_between_worst_and_best_and_clipped():
    env = gym_env("CartPole", worst=10.0, best=20.0)
    state = env.reset(task())
    scores = []
    for number in range(30):
        step = env.step(state, "player", ("LEFT", "RIGHT")[number % 2], generator(0))
        state = step.state
        scores.append((step.info["return"], env.score(state)))
        if step.terminated:
            break
    assert scores[4] == (5.0, 0.0)
    assert scores[14] == (15.0, 0.5)
    assert scores[-1][1] == 1.0


@pytest.mark.parametrize(("bonus", "rewards"), [(0.5, (1.5, 0.0)), (-2.0, (1.0, -2.0))])
def test_a_bonus_comes_with_termination_and_no_score_counts_it(bonus, rewards):
    env, plain = gym_env("CartPole", bonus=bonus), gym_env("CartPole")
    state, other = env.reset(task()), plain.reset(task())
    for _ in range(100):
        step = env.step(state, "player", "LEFT", generator(0))
        state, other = step.state, plain.step(other, "player", "LEFT", generator(0)).state
        assert env.score(state) == plain.score(other)
        if step.terminated:
            break
        assert step.rewards == {"gain": 1.0, "cost": 0.0}
    assert step.terminated
    assert (step.rewards["gain"], step.rewards["cost"]) == rewards
    short = gym_env("CartPole", bonus=bonus, steps=1)
    cut = short.step(short.reset(task()), "player", "LEFT", generator(0))
    assert cut.truncated and cut.rewards == {"gain": 1.0, "cost": 0.0}


def test_repeat_sums_rewards_and_never_passes_the_limit():
    env, once = gym_env("CartPole", repeat=4, steps=6), gym_env("CartPole", steps=6)
    state = env.step(env.reset(task()), "player", "LEFT", generator(0)).state
    assert (state.steps, state.total) == (4, 4.0)
    step = env.step(state, "player", "RIGHT", generator(0))
    assert (step.state.steps, step.rewards["gain"], step.truncated) == (6, 2.0, True)
    with pytest.raises(EnvError, match="the episode is over"):
        env.step(step.state, "player", "LEFT", generator(0))
    other = once.reset(task())
    for word in ("LEFT",) * 4 + ("RIGHT",) * 2:
        other = once.step(other, "player", word, generator(0)).state
    assert np.array_equal(other.observation, step.state.observation)


HOSTILE = (
    *("nan", "NaN", "inf", "-inf", "1e999", "1e0", "0x1", "1_0", "٣", "__import__('os')"),
    *("", " ", "+", ".", "--1", "1.5.2", "1 1", "0,0", "1.01", "-2", "9" * 5000, "0." + "0" * 5000),
)


@pytest.mark.parametrize("text", HOSTILE, ids=range(len(HOSTILE)))
def test_what_is_no_number_in_bounds_is_refused_in_one_short_sentence(text):
    env = gym_env("MountainCarContinuous")
    with pytest.raises(IllegalActionError, match="give a number from -1 to 1") as caught:
        env.step(env.reset(task()), "player", text, generator(0))
    assert len(str(caught.value)) < 120


@pytest.mark.parametrize(
    ("text", "value"), [("-0.7", -0.7), ("+1", 1), ("0", 0), (".5", 0.5), (" [-1.0] ", -1)]
)
def test_numbers_are_read_as_written(text, value):
    env = gym_env("MountainCarContinuous")
    assert env.answers.read(text).tolist() == pytest.approx([value])
    assert env.answers.read(text).dtype == np.float32


class Several(gymnasium.Env):
    """Takes two numbers, shows a dict; its chance is its own."""

    observation_space = spaces.Dict(
        {"at": spaces.Box(-1.0, 1.0, (2,)), "door": spaces.MultiDiscrete([2, 3])}
    )
    action_space = spaces.Box(np.float32([-1, 0]), np.float32([1, 10]))

    def reset(self, *, seed=None, options=None):
        super().reset(seed=seed)
        self.at = self.np_random.uniform(-1, 1, 2)
        return self._seen(), {}

    def _seen(self):
        return {"at": self.at, "door": np.array([1, 2])}

    def step(self, action):
        self.at = np.clip(self.at + action * self.np_random.uniform(0, 0.1), -1, 1)
        return self._seen(), float(self.at[0]), False, False, {}


class Uncontrolled(Several):
    def step(self, action):
        self.at = np.random.default_rng().uniform(-1, 1, 2)
        return self._seen(), 0.0, False, False, {}


class Uncopied(Several):
    """Holds what cannot be copied."""

    def __init__(self):
        self.lines = (line for line in "abc")


class Pictures(Several):
    observation_space = spaces.Box(0, 255, (64, 64, 3), np.uint8)


class Pixels(Pictures):
    def _seen(self):
        return np.full((64, 64, 3), 7, np.uint8)


class Unbounded(Several):
    action_space = spaces.Box(-np.inf, np.inf, (1,))


class Many(Several):
    action_space = spaces.Discrete(5000)


class Switches(Several):
    action_space = spaces.MultiBinary(3)


class Wide(Several):
    action_space = spaces.Box(-1.0, 1.0, (9,))


BOUNDS = {"steps": 5, "worst": 0.0, "best": 1.0}


def own(kind, **options):
    return make_env("gymnasium", id=f"{__file__}:{kind.__name__}", **(BOUNDS | options))


def test_an_env_class_of_ones_own_with_several_numbers():
    env = own(Several, action_decimals=2)
    report = check_env(env)
    assert (report.longest, env.branching, env.single_task) == (5, "copy", False)
    state = env.reset(task())
    at, door = env.observe(state, "player").text.splitlines()
    assert at.startswith("at ") and door == "door 1 2"
    with pytest.raises(IllegalActionError, match=r"give 2 numbers, from -1 to 1, 0 to 10"):
        env.step(state, "player", "0.5", generator(0))
    assert env.step(state, "player", "[0.5, 7.25]", generator(0)).state.steps == 1
    assert set(env.baselines()) == {"random", "always-low", "always-middle", "always-high"}


def test_what_cannot_be_copied_is_replayed():
    env = own(Uncopied)
    assert env.branching == "replay"
    check_env(env)
    with pytest.raises(ConfigError, match="branching = 'copy' does not come back"):
        own(Uncopied, branching="copy")


RENDERERS = """
def picture(seen):
    return f"mean {seen.mean():.0f}", "dark" if seen.mean() < 100 else "bright"

def number(seen):
    return 3

def broken(seen):
    return seen["nowhere"]
"""


def test_a_renderer_of_ones_own_may_describe(tmp_path):
    file = tmp_path / "texts.py"
    file.write_text("def text(s):\n    return f'cell {s}', 'first' if s == 0 else 'later'\n")
    env = gym_env("FrozenLake", renderer=f"{file}:text", actions=("w", "s", "e", "n"))
    seen = env.observe(env.reset(task()), "player")
    assert (seen.text, seen.description) == ("cell 0", "first")
    assert seen.legal_actions == ("w", "s", "e", "n")
    assert {"cell", "first", "later", "w"} <= set(env.vocabulary())
    check_env(env, tasks=1)


REFUSED = {
    "a misspelt id": ({"id": "Blackjak-v1"}, "did you mean 'Blackjack-v1'"),
    "another version": ({"id": "CartPole-v7"}, "did you mean 'CartPole-v1'"),
    "an unknown namespace": ({"id": "ALE/Pong-v5"}, "name the package"),
    "a missing package": ({"id": "nowhere:Maze-v0"}, "importing 'nowhere' raised"),
    "a wrong argument": ({"id": "Taxi", "kwargs": {"rain": 1}}, "'rain'"),
    "a wrong number of words": ({"id": "Taxi", "actions": ["A", "B"]}, "6 different words"),
    "equal words": ({"id": "CartPole-v1", "actions": ["go", "GO"]}, "2 different words"),
    "words for numbers": ({"id": "Pendulum-v1", "actions": ["A"]}, "name discrete actions"),
    "a misspelt renderer": ({"id": "Taxi", "renderer": "taxy"}, "did you mean 'taxi'"),
    "decimals for words": ({"id": "Taxi", "decimals": 2}, "do not apply to renderer = 'taxi'"),
    "decimals for cells": ({"id": "FrozenLake", "decimals": 2}, "apply to a Box of numbers"),
    "too few decimals": ({"id": "CartPole", "decimals": [1, 2]}, "the Box has 4"),
    "too many decimals": ({"id": "CartPole", "decimals": 9}, "from 0 to 6"),
    "bounds upside down": ({"id": "Taxi", "worst": 3.0, "best": 1.0}, "must be below best"),
    "bounds below the known": ({"id": "Taxi", "worst": 20.0}, "must be below best = 15"),
    "both kinds of starts": ({"id": "Taxi", "start": "anywhere", "wander": 3}, "drop one"),
    "resets without anywhere": ({"id": "Taxi", "resets": 0.2}, "use start = 'anywhere'"),
    "graded and wander": ({"id": "Taxi", "start": "graded", "wander": 3}, "drop one"),
    "graded without a table": ({"id": "CartPole", "start": "graded"}, "use wander"),
    "to wander with a table": ({"id": "Taxi", "wander": 3}, "use start = 'anywhere'"),
    "anywhere without a table": ({"id": "CartPole", "start": "anywhere"}, "use wander"),
    "no class": ({"id": f"{__file__}:own"}, "no class derived from gymnasium.Env"),
}  # fmt: skip


@pytest.mark.parametrize("case", REFUSED)
def test_what_cannot_work_is_one_sentence(case):
    options, words = REFUSED[case]
    with pytest.raises(ConfigError) as caught:
        make_env("gymnasium", **options)
    assert words in str(caught.value)
    assert "\n" not in str(caught.value)


@pytest.mark.parametrize(
    ("kind", "options", "words"),
    [
        (Pictures, {}, r"shape \(64, 64, 3\), 12288 numbers.*give `renderer`"),
        (Unbounded, {}, "actions have no bounds"),
        (Many, {}, "5000 discrete actions are too many"),
        (Switches, {}, "actions are a MultiBinary"),
        (Wide, {}, "actions are 9 numbers, and 1 to 8"),
        (Uncontrolled, {}, "differ: let it draw only from self.np_random"),
        (Several, {"steps": None}, "has no step limit: give `steps`"),
        (Several, {"worst": None}, "needs `worst` and `best`.*random play returned -"),
        (Several, {"decimals": 1}, "shows a Dict: leave them out"),
    ],
)
def test_envs_that_cannot_be_told_or_judged_are_refused(kind, options, words):
    given = {k: v for k, v in (BOUNDS | options).items() if v is not None}
    with pytest.raises(ConfigError, match=words):
        make_env("gymnasium", id=f"{__file__}:{kind.__name__}", **given)


def test_a_renderer_that_fails_is_named(tmp_path):
    file = tmp_path / "texts.py"
    file.write_text(RENDERERS)
    pictures = own(Pixels, renderer=f"{file}:picture")
    seen = pictures.observe(pictures.reset(task()), "player")
    assert (seen.text, seen.description) == ("mean 7", "dark")
    with pytest.raises(EnvError, match="number' returned 3: return text"):
        gym_env("FrozenLake", renderer=f"{file}:number")
    with pytest.raises(EnvError, match="broken' raised TypeError"):
        gym_env("FrozenLake", renderer=f"{file}:broken")


def test_what_is_not_installed_says_what_to_install():
    if importlib.util.find_spec("jax"):
        pytest.skip("jax is installed")
    with pytest.raises(MissingDependencyError, match=r"needs a package .* 'jax'"):
        make_env("gymnasium", id="phys2d/CartPole-v1")


def test_problems_are_first_states_seeds_or_fixed():
    taxi, cards, cliff = gym_env("Taxi"), gym_env("Blackjack"), gym_env("CliffWalking")
    data = taxi.generate(generator(0))
    assert taxi.canonical({"seed": 1, "first": data["first"]}) == taxi.canonical(data)
    assert taxi.reset(task(seed=data["seed"])).observation == data["first"]
    assert cards.canonical({"seed": 1}) != cards.canonical({"seed": 2})
    assert (taxi.single_task, cards.single_task, cliff.single_task) == (False, False, True)
    assert GeneratedTasks(cliff, "test", 0).seen
    starts = {split: {t.data["first"] for t in GeneratedTasks(taxi, split, 0).take(200)}
              for split in ("train", "validation", "test")}  # fmt: skip
    assert not starts["train"] & starts["test"]
    assert not starts["validation"] & starts["test"]


def test_starts_anywhere_are_states_that_play_can_reach():
    env = gym_env("Taxi", start="anywhere")
    found = [t.data["state"] for t in GeneratedTasks(env, "train", 0).take(300)]
    assert all(env.reset(task(state=s)).observation == s for s in found[:20])
    ended = [s for s in range(500) if (s // 4) % 5 == s % 4]
    assert not set(found) & set(ended)
    assert any((s // 4) % 5 == 4 for s in found)
    with pytest.raises(DataError, match="no state of 'Taxi'"):
        env.reset(task(state=ended[0]))
    with pytest.raises(DataError, match="give a whole number"):
        env.reset(task(seed=-1))


def test_a_share_of_starts_anywhere_is_where_scores_are_taken():
    env = gym_env("CliffWalking", start="anywhere", resets=0.5)
    drawn = [env.generate(np.random.default_rng(seed)) for seed in range(200)]
    firsts = [data["first"] for data in drawn if "first" in data]
    assert set(firsts) == {36} and 70 < len(firsts) < 130
    assert len({data["state"] for data in drawn if "state" in data}) > 25


def test_graded_starts_are_drawn_evenly_over_what_they_are_worth():
    env = gym_env("CliffWalking", start="graded", steps=40)
    states = [env.generate(np.random.default_rng(seed))["state"] for seed in range(3000)]
    left = [abs(3 - s // 12) + abs(11 - s % 12) if s < 36 else 13 for s in states]
    shares = np.bincount(left, minlength=15)[1:] / len(states)
    assert shares.min() > 0.05 and shares.max() < 0.1  # 14 distances of 1 to 14 steps
    assert set(states) == set(env._table.reachable)


def test_training_anywhere_meets_the_one_state_that_scores_are_taken_from():
    tasks = GeneratedTasks(gym_env("CliffWalking", start="anywhere", resets=0.2), "train", seed=0)
    begun = [tasks.task(i).data for i in range(400)]
    assert {data["state"] for data in begun if "state" in data} == set(range(37))
    assert 50 < sum("first" in data for data in begun) < 110


def test_wandering_begins_later_and_counts_from_there():
    env = gym_env("CartPole", wander=8)
    tasks = GeneratedTasks(env, "train", 0).take(20)
    states = [env.reset(t) for t in tasks]
    assert all((s.steps, s.total, s.ended) == (0, 0.0, False) for s in states)
    assert any(abs(s.observation[3]) > 0.06 for s in states)
    check_env(env, tasks=3)


def test_keys_hold_the_clock_unless_told_not_to():
    for clock, same in ((True, False), (False, True)):
        env = gym_env("CliffWalking", clock=clock)
        first = env.reset(task())
        bumped = env.step(first, "player", "LEFT", generator(0)).state
        keys = {env.state_key(state, "player") for state in (first, bumped)}
        assert (len(keys) == 1) is same


@pytest.mark.parametrize(
    ("space", "value", "text"),
    [
        (spaces.Discrete(5), np.int64(3), "state 3"),
        (spaces.MultiDiscrete([3, 4]), np.array([2, 1]), "2 1"),
        (spaces.MultiBinary(3), np.array([1, 0, 1]), "1 0 1"),
        (spaces.Box(-1, 1, (2, 2)), np.eye(2), "\n1.00 0.00\n0.00 1.00"),
        (spaces.Box(0, 9, (2,), np.int32), np.array([3, 4]), "3 4"),
        (spaces.Box(-np.inf, np.inf, (1,)), np.array([-0.001]), "0.00"),
        (spaces.Tuple((spaces.Discrete(3), spaces.Text(4))), (2, "abc"), "0 2\n1 abc"),
        (spaces.Dict({"a": spaces.Dict({"b": spaces.Discrete(2)})}), {"a": {"b": 1}}, "a b 1"),
    ],
)
def test_observations_are_told_by_their_space(space, value, text):
    check_readable(space)
    assert observation_text(space, value) == text


def test_spaces_without_a_text_are_refused():
    with pytest.raises(ConfigError, match="a Graph, which has no text"):
        check_readable(spaces.Graph(spaces.Discrete(2), None))
    with pytest.raises(ConfigError, match=r"\['view'\] are arrays"):
        check_readable(spaces.Dict({"view": spaces.Box(0, 1, (90, 90))}))


@pytest.mark.parametrize("name", sorted(KNOWN))
def test_known_envs_are_told_in_words_of_their_own(name):
    env = gym_env(name)
    seen = env.observe(env.reset(task()), "player")
    words = set(env.vocabulary())
    assert {w for w in seen.text.split() if not w.isdigit()} <= words
    assert set(seen.legal_actions) <= words
    assert env.render(env.reset(task())).endswith("steps left")
