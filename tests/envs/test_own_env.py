"""An env that a user writes: four methods, defaults for the rest, found by "file.py:Class"."""

from __future__ import annotations

from dataclasses import dataclass

import numpy as np
import pytest

from turnwise.envs import Env, Observation, Step, check_env, make_env
from turnwise.errors import ConfigError, EnvError, IllegalActionError
from turnwise.tasks import GeneratedTasks
from turnwise.types import Task

OWN = """
from turnwise.envs import Env, Observation, Step
from turnwise.settings import Settings


class Options(Settings):
    rounds: int = 1


class Guess(Env):
    name = "guess"
    components = {"hit": "agent"}
    config_class = Options

    def reset(self, task):
        return (task.data["seed"] % 3, 0, 0)

    def observe(self, state, role):
        return Observation(text=f"number {state[0]} round {state[1]} hits {state[2]}",
                           legal_actions=("0", "1", "2"))

    def step(self, state, role, action, noise):
        number, turn, hits = state
        if action not in ("0", "1", "2"):
            raise IllegalActionError(f"{action!r} is no number")
        hit = int(action == str(number))
        after = (number, turn + 1, hits + hit)
        return Step(state=after, rewards={"hit": float(hit)},
                    terminated=after[1] >= self.config.rounds, truncated=False)

    def score(self, state):
        return state[2] / self.config.rounds


class Unfinished(Env):
    name = "unfinished"
    components = {}

    def reset(self, task):
        return 0


not_an_env = 3
""".replace("IllegalActionError(", "__import__('turnwise.errors').errors.IllegalActionError(")


@pytest.fixture
def own(tmp_path):
    (tmp_path / "own.py").write_text(OWN)
    return f"{tmp_path / 'own.py'}:"


def test_an_env_made_by_its_class_has_its_default_options(own):
    kind = type(make_env(f"{own}Guess"))
    assert kind().config.rounds == 1
    assert kind({"rounds": 3}).config.rounds == 3
    assert check_env(kind()).longest == 1
    with pytest.raises(ConfigError, match="env Guess: unknown key 'round', did you mean 'rounds'"):
        kind({"round": 3})


def test_an_env_of_ones_own_is_found_by_file_and_keeps_the_contract(own):
    env = make_env(f"{own}Guess", rounds=2)
    report = check_env(env)
    assert (report.name, report.longest) == ("guess", 2)
    assert list(env.baselines()) == ["random"]
    task = GeneratedTasks(env, "train", seed=0).task(5)
    state = env.reset(task)
    assert env.state_key(state, "player") == env.observe(state, "player").text
    assert env.canonical({"b": 1, "a": 2}) == '{"a": 2, "b": 1}'


def test_one_file_is_one_module(own):
    assert type(make_env(f"{own}Guess")) is type(make_env(f"{own}Guess"))


@pytest.mark.parametrize(
    ("name", "sentence"),
    [
        ("Gues", "unknown name 'Gues': did you mean 'Guess'"),
        ("Unfinished", "does not define observe, score, step: write it"),
        ("not_an_env", "is not an env: expected a class derived from"),
    ],
)
def test_a_name_that_leads_to_no_env_is_a_sentence(own, name, sentence):
    with pytest.raises(ConfigError, match=sentence):
        make_env(f"{own}{name}")


def test_files_that_are_missing_or_raise_are_a_sentence(tmp_path):
    with pytest.raises(ConfigError, match=r"no file at .*nowhere\.py"):
        make_env(f"{tmp_path}/nowhere.py:Env")
    (tmp_path / "broken.py").write_text("import surely_no_such_module\n")
    with pytest.raises(ConfigError, match="importing it raised ModuleNotFoundError"):
        make_env(f"{tmp_path}/broken.py:Env")


@dataclass(frozen=True)
class Doubled:
    number: int
    said: float | None = None


class Double(Env[Doubled]):
    """Any number may be an answer."""

    name = "double"
    components = {"near": "agent"}  # noqa: RUF012

    def reset(self, task: Task) -> Doubled:
        return Doubled(number=task.data["seed"] % 7)

    def observe(self, state, role):
        return Observation(text=f"twice {state.number}, said {state.said}", legal_actions=())

    def step(self, state, role, action, noise):
        try:
            said = float(action)
        except ValueError:
            raise IllegalActionError(f"{action!r} is no number") from None
        after = Doubled(number=state.number, said=said)
        return Step(state=after, rewards={"near": -abs(said - 2 * state.number)}, terminated=True,
                    truncated=False)  # fmt: skip

    def score(self, state):
        return float(state.said == 2 * state.number)


class DoubleAtRandom(Double):
    def random_action(self, state, role, rng):
        return str(rng.integers(14))


def test_where_any_text_may_be_an_answer_the_env_says_what_chance_does():
    with pytest.raises(EnvError, match="any text may be an answer: override random_action"):
        check_env(Double())
    assert check_env(DoubleAtRandom()).longest == 1


def test_step_says_what_is_an_answer():
    env = DoubleAtRandom()
    state = env.reset(Task(id="t", env="double", seed=0, data={"seed": 3}))
    assert env.score(env.step(state, "player", "6", np.random.default_rng(0)).state) == 1.0
    with pytest.raises(IllegalActionError, match="'six' is no number"):
        env.step(state, "player", "six", np.random.default_rng(0))
