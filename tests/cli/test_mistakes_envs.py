"""Envs of one's own that raise, hang or return nonsense: the run stops with one sentence.

What a run saved before stays, and the run goes on once the env is mended.
"""

from __future__ import annotations

import json

import pytest

OWN = '''
import time

import numpy as np

from turnwise.envs import Env, Observation, Step
from turnwise.settings import Settings


class Options(Settings):
    harm: str = ""
    from_seed: int = 0


class Guess(Env):
    name = "guess"
    components = {"hit": "agent"}
    config_class = Options

    def __init__(self, config):
        super().__init__(config)
        self.harm("init", None)

    def harm(self, place, otherwise, seed=10**10):
        """Do what the option says at its place, to tasks whose seed is large enough."""
        where, _, what = self.config.harm.partition(":")
        if where != place or seed < self.config.from_seed:
            return otherwise
        if what == "hang":
            with open("hangs", "a") as file:
                print(place, file=file)
            time.sleep(60)
        if what == "raise":
            raise KeyError("the table")
        return eval(what)

    def reset(self, task):
        return self.harm("reset", task.data["seed"], task.data["seed"])

    def observe(self, state, role):
        return self.harm("observe", Observation(text=f"guess {state}", legal_actions=()), state)

    def step(self, state, role, action, noise):
        made = Step(state=state, rewards={"hit": 1.0}, terminated=True, truncated=False)
        reward = self.harm("reward", 1.0, state)
        if reward != 1.0:
            return Step(state=state, rewards={"hit": reward}, terminated=True, truncated=False)
        return self.harm("step", made, state)

    def score(self, state):
        return self.harm("score", 1.0, state)

    def random_action(self, state, role, rng):
        return str(rng.integers(10))
'''
RECIPE = """
name = "own"

[env]
name = "own.py:Guess"
timeout = 0.4

[agents.player]
reply = "whole"
max_tokens = 4

[policies.main]
model = "nano"
device = "cpu"
nano = { hidden = 16, layers = 1, heads = 2, kv_heads = 1, head_dim = 8, intermediate = 16 }

[trainer]
iterations = 2
tasks_per_iteration = 2
group_size = 3

[credit]
scheme = "grpo"
rewards = { hit = 1.0 }

[engine]
probe_tokens = 64

[forest]
probe_tokens = 64

[evaluation]
every = 1
validation_tasks = 2
test_tasks = 3
"""
HARMS = {
    "init:raise": "making the env raised KeyError: 'the table' (own.py:",
    "reset:raise": "Guess.reset raised KeyError: 'the table' (own.py:",
    "observe:raise": "Guess.observe raised KeyError: 'the table' (own.py:",
    "step:raise": "12 of 12 games of random play broke: Guess.step raised KeyError: 'the table'",
    "score:raise": "12 of 12 games of random play broke: Guess.score raised KeyError",
    "reset:hang": "Guess.reset did not return within 0.4 s (own.py:",
    "step:hang": "Guess.step did not return within 0.4 s (own.py:",
    "reset:None": "Guess: reset returns None: return the first state",
    "observe:'you'": "Guess: observe returns str: return an Observation",
    "step:(1, 0.0)": "Guess: step returns tuple of 2 values: return a Step",
    "reward:'1'": "Guess: reward 'hit' is '1': return a finite float",
    "reward:None": "Guess: reward 'hit' is None: return a finite float",
    "reward:float('nan')": "Guess: reward 'hit' is nan: return a finite float",
    "reward:np.float32(2)": "Guess: reward 'hit' is np.float32(2.0): return a finite float",
    "score:float('nan')": "Guess: score is nan: return a float from 0 to 1",
}


@pytest.fixture
def own(tmp_path, monkeypatch):
    """A folder with an env and its recipe."""
    monkeypatch.chdir(tmp_path)
    (tmp_path / "own.py").write_text(OWN)
    (tmp_path / "own.toml").write_text(RECIPE)
    return tmp_path


def harm(what, *more):
    return ["--set", f'env.options.harm="{what}"', *more]


@pytest.mark.parametrize("case", HARMS)
def test_an_env_that_breaks_every_episode_stops_the_run(turnwise, is_one_sentence, own, case):
    result = turnwise("train", "own.toml", *harm(case), "--run", "run")
    is_one_sentence(result, HARMS[case])
    by_itself = case.endswith((":raise", ":hang"))  # other mistakes have cures of their own
    assert ("fix it; `turnwise check` tries every call" in result.stderr) == by_itself


def test_the_same_env_is_trained_where_nothing_harms_it(turnwise, own):
    result = turnwise("train", "own.toml", "--run", "run", "--json")
    assert result.exit_code == 0, result.output
    assert json.loads(result.stdout)["scores"]["score"] == 1.0


def test_what_hangs_is_waited_for_twice_only(turnwise, is_one_sentence, own):
    result = turnwise("train", "own.toml", *harm("step:hang"))
    is_one_sentence(result, HARMS["step:hang"])
    assert (own / "hangs").read_text().split() == ["step"] * 2


@pytest.mark.parametrize("place", ["reset", "observe", "step", "score"])
def test_check_says_which_call_hangs(turnwise, is_one_sentence, own, place):
    options = ["--timeout", "0.2", "--set", f'harm="{place}:hang"']
    result = turnwise("check", "own.py:Guess", *options)
    is_one_sentence(result, f"Guess.{place} did not return within 0.2 s (own.py:")
    assert "checking: what the env declares" in result.stderr


CAPPED = """

class Capped(Guess):
    def turn_cap(self):
        return self.harm("turn_cap", 3)

    def baselines(self):
        return {"random": lambda state, rng: str(rng.integers(10))}
"""


def test_no_command_waits_for_a_cap_that_hangs(turnwise, is_one_sentence, own):
    with (own / "own.py").open("a") as file:
        file.write(CAPPED)
    play = ("play", "own.py:Capped", "--baseline", "random", "--timeout", "0.2")
    result = turnwise(*play, "--set", "harm=turn_cap:hang")
    is_one_sentence(result, "Capped.turn_cap did not return within 0.2 s")
    result = turnwise("check", "own.py:Capped", "--timeout", "0.2", "--set", "harm=turn_cap:hang")
    is_one_sentence(result, "Capped.turn_cap did not return within 0.2 s")


ENDLESS = """

class Endless(Guess):
    def step(self, state, role, action, noise):
        return Step(state=state, rewards={"hit": 1.0}, terminated=False, truncated=False)
"""


def test_an_env_that_never_ends_is_cut_counted_and_warned_of(turnwise, own):
    (own / "own.py").write_text(OWN + ENDLESS)
    sets = ("env.name=own.py:Endless", "env.max_turns=3", "trainer.iterations=1")
    result = turnwise("train", "own.toml", "--run", "run", "--json",
                      *(part for each in sets for part in ("--set", each)))  # fmt: skip
    assert result.exit_code == 0, result.output
    (record,) = [json.loads(line) for line in (own / "run" / "metrics.jsonl").open()]
    assert record["rollout/capped_share"] == record["rollout/truncated_share"] == 1.0
    assert record["rollout/turns"] == 18
    assert "100% of the episodes were cut after 3 turns, the cap of guess" in result.stderr
    assert "100% of the episodes were cut at the cap" in (own / "run" / "report.md").read_text()


def test_check_and_play_keep_to_the_cap(turnwise, is_one_sentence, own):
    (own / "own.py").write_text(OWN + ENDLESS)
    result = turnwise("check", "own.py:Endless")
    is_one_sentence(result, "still plays after 100 steps: end episodes at a limit")
    assert "declare max_turns" in result.stderr
    declared = ENDLESS.replace("(Guess):", "(Guess):\n    max_turns = 4\n")
    (own / "own.py").write_text(OWN + declared)
    from turnwise.utils import user_code

    user_code._module_of_file.cache_clear()
    assert turnwise("check", "own.py:Endless").exit_code == 0
    played = turnwise("play", "own.py:Endless", "--baseline", "random").stdout
    assert "cut after 4 steps, the env's max_turns, score 1" in played


def test_nothing_is_lost_and_the_mended_env_goes_on(turnwise, is_one_sentence, own):
    """The env breaks in the second iteration: its first one is kept, and not trained again."""
    text = (own / "own.py").read_text()
    count = "self.calls = vars(self).get('calls', 0) + 1; self.calls > 12 and time.no_such_thing"
    broken = text.replace("        made = Step(", f"        {count}\n        made = Step(")
    (own / "own.py").write_text(broken)
    result = turnwise(
        "train", "own.toml", "--run", "run", *harm("", "--set", "trainer.iterations=9")
    )
    is_one_sentence(
        result, "broke: Guess.step raised AttributeError: module 'time' has no attribute"
    )
    lines = (own / "run" / "metrics.jsonl").read_text().splitlines()
    assert lines
    saved = [path.name for path in (own / "run" / "checkpoints").iterdir() if path.is_dir()]
    assert any(name.endswith(f"-train-{len(lines)}") for name in saved)
    recorded = sorted(path.name for path in (own / "run" / "episodes").iterdir())
    assert recorded[-1] == f"train-{len(lines):06d}.jsonl", "the broken iteration can be read"

    from turnwise.utils import user_code

    user_code._module_of_file.cache_clear()
    (own / "own.py").write_text(text)
    result = turnwise("resume", "run", "--json")
    assert result.exit_code == 0, result.output
    after = (own / "run" / "metrics.jsonl").read_text().splitlines()
    assert after[: len(lines)] == lines
    assert len(after) == 9


def test_an_env_that_breaks_some_episodes_is_counted_and_warned_of(turnwise, own):
    sets = harm("step:raise", "--set", f"env.options.from_seed={2**30}")
    result = turnwise("train", "own.toml", "--run", "run", *sets, "--set", "trainer.iterations=4",
                      "--set", "trainer.tasks_per_iteration=6", "--json")  # fmt: skip
    assert result.exit_code == 0, result.output
    metrics = [json.loads(line) for line in (own / "run" / "metrics.jsonl").open()]
    shares = [record["rollout/broken_share"] for record in metrics]
    assert 0 < sum(shares) / len(shares) < 1
    assert json.loads(result.stdout)["scores"]["broken"] > 0
    assert "ended by the env or the engine" in (own / "run" / "report.md").read_text()


@pytest.mark.parametrize(
    ("name", "text", "words"),
    [
        ("own.py:Gues", OWN, "unknown name 'Gues': did you mean 'Guess'"),
        ("nowhere.py:Guess", OWN, "no file at"),
        ("own.py:Guess", "def x(:", "importing it raised SyntaxError"),
        (
            "own.py:Guess",
            "1 / 0",
            "importing it raised ZeroDivisionError: division by zero (own.py:1)",
        ),
        ("own.py:Options", OWN, "is not an env: expected a class derived from turnwise.Env"),
    ],
)
def test_a_name_that_leads_to_no_env(turnwise, is_one_sentence, own, name, text, words):
    (own / "own.py").write_text(text)
    is_one_sentence(turnwise("train", "own.toml", "--set", f"env.name={name}"), words)
    assert not (own / "runs").exists()


@pytest.mark.parametrize("command", ["check", "play"])
def test_an_env_that_raises_is_a_sentence_in_every_command(turnwise, is_one_sentence, own, command):
    sets = ["--set", 'harm="score:raise"']
    more = ["--baseline", "random"] if command == "play" else []
    result = turnwise(command, "own.py:Guess", *sets, *more)
    is_one_sentence(result, "raised KeyError: 'the table' (own.py:")


def test_a_file_without_a_class_and_an_env_in_place_of_a_recipe(turnwise, is_one_sentence, own):
    result = turnwise("check", "own.py")
    is_one_sentence(result, "name the class in it, own.py:Guess")
    result = turnwise("train", "own.py:Guess")
    is_one_sentence(result, "turnwise.train('nano', env='own.py:Guess')")
