"""Tasks of a user's own: few policies, no pictures, rewards that no mean can hold."""

from __future__ import annotations

import json
import math

import gymnasium
import numpy as np
import pytest
from gymnasium import spaces
from gymnasium.envs.toy_text.frozen_lake import FrozenLakeEnv

from turnwise.app.search import search_policy
from turnwise.errors import ConfigError, EnvError, UnknownNameError
from turnwise.report.search import FILM, REPORT
from turnwise.report.search_film import FRAMES, _frames
from turnwise.search import problem
from turnwise.search.config import SearchConfig
from turnwise.search.history import HISTORY
from turnwise.search.tasks import find_task
from turnwise.settings import parse

from .conftest import line_of, says

SAFE = (0, 3, 3, 3, 0, 0, 0, 0, 3, 1, 0, 0, 0, 2, 1, 0)
"""The best stationary policy of the 4x4 lake."""
BUDGET = {"iterations": 9, "episodes": 2, "warmup": 2, "recheck": 4, "best": 2, "fresh": 3}


class Two(gymnasium.Env):
    """Two states and two actions, so that there are four policies; no pictures."""

    observation_space, action_space = spaces.Discrete(2), spaces.Discrete(2)
    steps = 0

    def reset(self, *, seed=None, options=None):
        super().reset(seed=seed)
        self.steps = 0
        return 0, {}

    def step(self, action):
        self.steps += 1
        return self.steps % 2, float(action), self.steps == 4, False, {}


@pytest.fixture(autouse=True)
def two():
    gymnasium.register("Two-v0", entry_point=Two, max_episode_steps=9)
    yield
    del gymnasium.registry["Two-v0"]


def searching(task="Two-v0", method="random", **settings):
    who = {"method": method} if method else {}
    return parse(SearchConfig, {"task": task, "budget": BUDGET, **who, **settings}, "the search")


def lines(folder):
    return [json.loads(line) for line in (folder / HISTORY).read_text().splitlines()]


@pytest.mark.timeout(60)
@pytest.mark.parametrize("method", ["random", "hill-climbing", "cem", "cma-es"])
def test_a_task_with_few_policies_is_searched_to_its_end(method, tmp_path):
    if method == "cma-es":
        pytest.importorskip("cma")
    found = search_policy(searching(method=method), tmp_path / "a").result
    assert (found.policies, found.evaluations, found.params) == (4, 10, [1, 1])
    assert found.episodes == 10 * 2
    kinds = [line["kind"] for line in lines(tmp_path / "a")]
    assert kinds == ["try"] * 3 + ["again", "try"] + ["again"] * 5


def test_a_model_is_not_asked_for_policies_that_do_not_exist(server, tmp_path):
    there = server(lambda n: says(lambda prompt: line_of(prompt, count=2, actions=2)))
    where = {"base_url": there.url, "model": "small"}
    budget = BUDGET | {"warmup": 9}
    config = searching(method=None, endpoint=where, budget=budget)
    found = search_policy(config, tmp_path / "a").result
    assert (found.policies, found.evaluations, found.lost) == (4, 9, 0)
    assert len(there.asked) == 0
    warm = [line["params"] for line in lines(tmp_path / "a") if line["kind"] == "try"]
    assert sorted(warm) == [[0, 0], [0, 1], [1, 0], [1, 1]]


class Point(Two):
    """Two inputs and two outputs, without an end; its pictures are none."""

    metadata = {"render_modes": ["rgb_array"]}  # noqa: RUF012
    observation_space, action_space = spaces.Box(-1, 1, (2,)), spaces.Box(-1, 1, (2,))

    def __init__(self, render_mode=None, picture=None):
        self.render_mode, self.picture = render_mode, picture

    def reset(self, *, seed=None, options=None):
        super().reset(seed=seed)
        return self.np_random.uniform(-1, 1, 2).astype(np.float32), {}

    def step(self, action):
        return np.zeros(2, np.float32), -1.0, False, False, {}

    def render(self):
        return self.picture


def test_an_env_that_cannot_be_made_or_drawn_is_named(tmp_path, monkeypatch):
    def made(render_mode="", **wrong):
        if wrong:
            raise OSError("no map")
        if render_mode:
            raise AttributeError("no screen")
        return Point()

    monkeypatch.setattr(problem, "LONGEST", 50)
    gymnasium.register("Point-v0", entry_point=made)
    found = search_policy(searching("Point-v0"), tmp_path / "a")
    assert "AttributeError('no screen')" in (found.folder / REPORT).read_text()
    del gymnasium.registry["Point-v0"]
    gymnasium.register("Point-v0", entry_point=made, kwargs={"wrong": 1})
    with pytest.raises(ConfigError, match=r"'Point-v0' cannot be made \(OSError\('no map'\)\)"):
        search_policy(searching("Point-v0"), tmp_path / "b")
    del gymnasium.registry["Point-v0"]


@pytest.mark.parametrize("picture", [None, np.zeros((8, 8, 3))])
def test_any_env_has_a_report_and_a_film_ends(picture, tmp_path, monkeypatch):
    monkeypatch.setattr(problem, "LONGEST", 50)
    kwargs = {"picture": picture}
    gymnasium.register("Point-v0", entry_point=Point, kwargs=kwargs)
    found = search_policy(searching("Point-v0"), tmp_path / "a")
    del gymnasium.registry["Point-v0"]
    text = (found.folder / REPORT).read_text()
    assert ("its picture is no array [height, width, 3]" in text) == (picture is None)
    assert (found.folder / FILM).is_file() == (picture is not None)
    assert found.result.score == -50.0


def test_an_env_without_pictures_has_a_report(tmp_path):
    found = search_policy(searching(), tmp_path / "a")
    assert "the env draws no pictures" in (found.folder / REPORT).read_text()


class Long(Two):
    """An episode of 700 steps whose picture is the number of the step."""

    def step(self, action):
        self.steps += 1
        return 0, 0.0, self.steps == 700, False, {}

    def render(self):
        return np.full((1, 1, 3), self.steps)


def test_a_long_episode_is_filmed_evenly_to_its_end():
    shown = [int(frame[0, 0, 0]) for frame in _frames(Long(), lambda seen: 0, 0)]
    assert (shown[0], shown[-1], len(shown)) == (0, 700, FRAMES)
    assert set(np.diff(shown)) <= {4, 8}


class Shaped(FrozenLakeEnv):
    """A lake of which each step costs, but for its table."""

    def step(self, a):
        after, reward, *rest = super().step(a)
        return after, reward - 0.01, *rest


class Renumbered(gymnasium.ObservationWrapper):
    """Numbers states from the other end, but not those of the table."""

    def observation(self, observation):
        return 15 - observation


def test_an_env_that_differs_from_its_table_has_no_exact_value():
    exact = []
    for entry in (FrozenLakeEnv, Shaped, lambda: Renumbered(FrozenLakeEnv())):
        gymnasium.register("Lake-v0", entry_point=entry, max_episode_steps=100)
        lake = problem.Problem(find_task("Lake-v0"), 0)
        exact.append((lake.exact(SAFE), lake.optimum()))
        del gymnasium.registry["Lake-v0"]
    assert exact == [pytest.approx((0.7402, 0.7442), abs=1e-4), (None, None), (None, None)]


class Rewarding(Two):
    """Each step gives the same."""

    def __init__(self, reward):
        self.reward = reward

    def step(self, action):
        return *super().step(action)[:1], self.reward, self.steps == 4, False, {}


class Odd(Two):
    """Returns what it is given from `step`."""

    def __init__(self, result):
        self.result = result

    def step(self, action):
        return self.result


class Loud:
    """Cannot be shown as text."""

    def __repr__(self):
        raise RuntimeError("no text")


@pytest.mark.parametrize(
    ("result", "told"),
    [
        ((0, None, True, False, {}), r"truncated\) = \(None, True, False\), expected a number"),
        (
            (0, "much", True, False, {}),
            r"\('much', True, False\), expected a number and two bools: mend",
        ),
        ((0, 1.0, np.ones(2), False, {}), r"\(1.0, array\(\[1., 1.\]\), False\), expected a"),
        ((0, 1.0, True, {}), r"returned 4 values, expected \(observation, reward, terminated"),
        ("01101", "returned str, expected"),
        (None, "returned NoneType, expected"),
        ((0, Loud(), True, False, {}), "its env raised RuntimeError: no text"),
        ((1.7, 1.0, True, False, {}), "the observation 1.7 is none of Discrete"),
        (("1", 1.0, True, False, {}), "the observation '1' is none of Discrete"),
    ],
    ids=range(9),
)
def test_a_wrong_result_of_a_step_is_named(result, told, tmp_path):
    gymnasium.register("Odd-v0", entry_point=Odd, kwargs={"result": result})
    with pytest.raises(EnvError, match=f"'Odd-v0': .*{told}"):
        search_policy(searching("Odd-v0", "random"), tmp_path / "a")
    del gymnasium.registry["Odd-v0"]


@pytest.mark.parametrize("method", ["random", "q-learning"])
@pytest.mark.parametrize("reward", [math.inf, math.nan, -1e200])
def test_rewards_that_no_mean_can_hold_are_refused(method, reward, tmp_path):
    gymnasium.register("Rewarding-v0", entry_point=Rewarding, kwargs={"reward": reward})
    with pytest.raises(EnvError, match="'Rewarding-v0': a return or a reward is .*mend the env"):
        search_policy(searching("Rewarding-v0", method), tmp_path / "a")
    del gymnasium.registry["Rewarding-v0"]


class Failing(Two):
    """Fails in one of its methods, or shows a state that it does not have."""

    def __init__(self, how):
        self.how = how

    def reset(self, *, seed=None, options=None):
        if self.how == "reset":
            raise SystemExit(3)
        return super().reset(seed=seed)

    def step(self, action):
        if self.how == "step":
            raise KeyError("door")
        seen, *others = super().step(action)
        seen = {"state": -1, "none": None, "text": "door"}.get(self.how, seen)
        return seen, *others


@pytest.mark.parametrize("method", ["random", "q-learning"])
@pytest.mark.parametrize(
    ("how", "told"),
    [
        ("reset", "its env raised SystemExit: 3 .*test_small_tasks.py.*--resume"),
        ("step", "its env raised KeyError: 'door' .*test_small_tasks.py.*mend it"),
        ("state", "the observation -1 is none of Discrete.2.: mend the env"),
        ("none", "the observation None is none of Discrete.2.: mend the env"),
        ("text", "the observation 'door' is none of Discrete.2.: mend the env"),
    ],
)
def test_an_error_of_the_env_is_told_in_one_sentence(method, how, told, tmp_path):
    gymnasium.register("Failing-v0", entry_point=Failing, kwargs={"how": how})
    with pytest.raises(EnvError, match=f"task 'Failing-v0': {told}"):
        search_policy(searching("Failing-v0", method), tmp_path / "a")
    del gymnasium.registry["Failing-v0"]


class Vectors(gymnasium.Env):
    """Shows vectors of two numbers, but for the one that is given."""

    observation_space = gymnasium.spaces.Box(-1.0, 1.0, (2,))
    action_space = gymnasium.spaces.Discrete(2)

    def __init__(self, seen, first=False):
        self.seen, self.first = np.array(seen), first

    def reset(self, *, seed=None, options=None):
        super().reset(seed=seed)
        self.steps = 0
        return (self.seen if self.first else np.zeros(2)), {}

    def step(self, action):
        self.steps += 1
        return self.seen, 0.0, self.steps == 4, False, {}


@pytest.mark.parametrize("first", [True, False])
@pytest.mark.parametrize("seen", [[0.0] * 3, [0.0], 0.0, [math.nan, 0.0], [0.0, math.inf]], ids=str)
def test_vectors_of_another_shape_or_without_finite_values_are_refused(seen, first, tmp_path):
    given = {"seen": seen, "first": first}
    gymnasium.register("Vectors-v0", entry_point=Vectors, kwargs=given)
    with pytest.raises(EnvError, match="observation .* with finite values: mend"):
        search_policy(searching("Vectors-v0", "random"), tmp_path / "a")
    del gymnasium.registry["Vectors-v0"]


def test_an_id_of_a_module_names_its_other_ids_and_a_file_has_to_register_one(
    tmp_path, monkeypatch
):
    (tmp_path / "corridors.py").write_text(
        "import gymnasium\nfrom gymnasium.envs.toy_text import FrozenLakeEnv\n"
        "class Corridor(FrozenLakeEnv):\n    pass\n"
        "gymnasium.register('Corridor-v0', entry_point=Corridor, max_episode_steps=20)\n"
    )
    monkeypatch.syspath_prepend(tmp_path)
    assert find_task("corridors:Corridor-v0").env == "corridors:Corridor-v0"
    with pytest.raises(UnknownNameError, match="did you mean 'corridors:Corridor-v0'"):
        find_task("corridors:Coridor-v0")
    with pytest.raises(ConfigError, match=r"register in that file, and name it as 'corridors:"):
        find_task("corridors.py:Corridor")
    with pytest.raises(ConfigError, match="run the command in its folder, or install it"):
        find_task("coridors:Corridor-v0")
    del gymnasium.registry["Corridor-v0"]
