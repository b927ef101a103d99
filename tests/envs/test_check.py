from dataclasses import replace
from typing import ClassVar

import numpy as np
import pytest

from turnwise.envs import (
    Env,
    FrozenLake,
    FrozenLakeConfig,
    Observation,
    Step,
    check_env,
    guarded,
)
from turnwise.envs.checks.check import EnvReport
from turnwise.errors import BrokenEnvError, EnvError, IllegalActionError
from turnwise.types import Task


@pytest.mark.parametrize(
    "options",
    [
        {},
        {"slippery": True},
        {"size": 7, "start": "random"},
        {"solvable": False},
        {"map": ("SFFF", "FHFH", "FFFH", "HFFG"), "slippery": True},
    ],
)
def test_frozen_lake_keeps_the_contract(options):
    report = check_env(FrozenLake(FrozenLakeConfig(**options)))
    assert report.tasks == 5 and report.steps > 5
    assert set(report.costs) == {"reset", "observe", "step", "branch"}
    assert all(0 <= cost < 10_000 for cost in report.costs.values())


def test_a_report_is_printed_as_a_sentence():
    costs = {"reset": 3.14159, "step": 12.0}
    text = str(EnvReport(name="walk", tasks=2, steps=9, longest=5, costs=costs))
    assert text == (
        "walk keeps the contract: 9 steps over 2 tasks, the longest episode 5 turns; "
        "microseconds a call: reset 3.1, step 12.0"
    )


class NoComponents(Env):
    name = "none"
    generate = canonical = reset = observe = step = score = state_key = baselines = None


class OddLevel(FrozenLake):
    components: ClassVar = {"goal": "agents"}


class OddBranching(FrozenLake):
    branching = "sometimes"


class NoRandom(FrozenLake):
    def baselines(self):
        return {"left": lambda state, rng: "LEFT"}


class GlobalChance(FrozenLake):
    def __init__(self):
        super().__init__()
        self.rng = np.random.default_rng(0)

    def generate(self, rng):
        return super().generate(self.rng)


class TupleData(FrozenLake):
    def generate(self, rng):
        data = super().generate(rng)
        return data | {"map": tuple(data["map"])}


class NumpyData(FrozenLake):
    def generate(self, rng):
        return super().generate(rng) | {"limit": np.int64(8)}


class WanderingCanonical(FrozenLake):
    def canonical(self, data):
        self.count = vars(self).get("count", 0) + 1
        return f"{super().canonical(data)}{self.count}"


class WanderingReset(FrozenLake):
    def reset(self, task):
        self.count = vars(self).get("count", 0) + 1
        return replace(super().reset(task), limit=20 + self.count)


class BlankText(FrozenLake):
    def observe(self, state, role):
        return replace(super().observe(state, role), text=" ")


class ListLegal(FrozenLake):
    def observe(self, state, role):
        return Observation(text="lake", legal_actions=["LEFT"])


class SameWords(FrozenLake):
    def observe(self, state, role):
        return replace(super().observe(state, role), legal_actions=("LEFT", "left"))


class TakesAnything(FrozenLake):
    def step(self, state, role, action, noise):
        known = action if action in ("LEFT", "DOWN", "RIGHT", "UP") else "UP"
        return super().step(state, role, known, noise)


class KeyErrors(FrozenLake):
    def step(self, state, role, action, noise):
        {"LEFT": 0, "DOWN": 1, "RIGHT": 2, "UP": 3}[action]
        return super().step(state, role, action, noise)


class StepChanging(FrozenLake):
    """Changes what `step` returns, by `change(step)`."""

    def step(self, state, role, action, noise):
        return self.change(super().step(state, role, action, noise))


class TupleStep(StepChanging):
    def change(self, step):
        return (step.state, 0.0, step.terminated, step.truncated, {})


class NumpyFlag(StepChanging):
    def change(self, step):
        return replace(step, terminated=np.bool_(step.terminated))


class UndeclaredReward(StepChanging):
    def change(self, step):
        return replace(step, rewards={"gaol": 1.0})


class InfiniteReward(StepChanging):
    def change(self, step):
        return replace(step, rewards={"goal": float("nan")})


class OwnChance(StepChanging):
    rng = np.random.default_rng(0)

    def change(self, step):
        return replace(step, rewards={"goal": float(self.rng.random())})


class HiddenCounter(StepChanging):
    def change(self, step):
        self.count = vars(self).get("count", 0) + 1
        return replace(step, truncated=not step.terminated and self.count % 3 == 0)


class Mutates(FrozenLake):
    def step(self, state, role, action, noise):
        made = super().step(state, role, action, noise)
        object.__setattr__(state, "steps", state.steps + 1)
        return made


class WildScore(FrozenLake):
    def score(self, state):
        return 2.0


class PoorKey(FrozenLake):
    def state_key(self, state, role):
        return state.lake.name(state.position)


class NumberKey(FrozenLake):
    def state_key(self, state, role):
        return 7


class StrangePlayer(FrozenLake):
    def baselines(self):
        return {**super().baselines(), "strange": lambda state, rng: "down"}


class Endless(FrozenLake):
    def step(self, state, role, action, noise):
        super().step(state, role, action, noise)
        return Step(state=state, rewards={}, terminated=False, truncated=False)


class GoesOn(FrozenLake):
    def step(self, state, role, action, noise):
        if not state.ended:
            return super().step(state, role, action, noise)
        return Step(state=state, rewards={}, terminated=False, truncated=False)


class RaisesAfterEnd(FrozenLake):
    def step(self, state, role, action, noise):
        if state.ended:
            raise ValueError("over")
        return super().step(state, role, action, noise)


class NoEntry(FrozenLake):
    def step(self, state, role, action, noise):
        if state.ended:
            return {}["next"]
        return super().step(state, role, action, noise)


class ReturnText(FrozenLake):
    scored_by = "return"

    def score(self, state):
        return float("nan")


@pytest.mark.parametrize(
    ("env", "sentence"),
    [
        (NoComponents, "has no class attribute 'components': declare"),
        (OddLevel, "component 'goal' has level 'agents': use one of process, agent, team"),
        (OddBranching, "branching = 'sometimes': use one of pure"),
        (NoRandom, r"has no baseline 'random' \(has: left\): add one"),
        (GlobalChance, "different data for equal generators: draw only from"),
        (TupleData, "change when written as JSON and read again: use lists"),
        (NumpyData, "are not JSON .*int64.*: use finite numbers"),
        (WanderingCanonical, "canonical is not stable: compute it from the data"),
        (WanderingReset, "reset returns different states for one task: let reset depend"),
        (BlankText, "text is ' ': say what the role sees"),
        (ListLegal, r"legal_actions = \['LEFT'\]: give a tuple"),
        (SameWords, "has equal words: answers ignore case"),
        (TakesAnything, "step takes an illegal action: raise IllegalActionError"),
        (KeyErrors, "an illegal action raises KeyError: raise IllegalActionError"),
        (TupleStep, "step returns tuple of 5 values: return a Step.*make_env"),
        (NumpyFlag, r"terminated is .* of type numpy\.bool: return a bool"),
        (UndeclaredReward, "reward 'gaol' is not a declared component .*: declare it"),
        (InfiniteReward, "reward 'goal' is nan: return a finite float"),
        (OwnChance, "twice with equal noise gives different results: keep nothing"),
        (HiddenCounter, "twice with equal noise gives different results: keep nothing"),
        (Mutates, "step changes the state that it is given: build a new state"),
        (WildScore, "score is 2.0: return a float from 0 to 1"),
        (PoorKey, "look different to 'player' share the key 'r0c0': put everything Markov"),
        (NumberKey, "state_key returns int: return a string"),
        (StrangePlayer, "baseline 'strange' answers 'down' where LEFT, .* are legal: choose"),
        (Endless, "still plays after 200 steps: end episodes at a limit"),
        (GoesOn, "an episode goes on after its end: raise EnvError"),
        (
            RaisesAfterEnd,
            r"after the end of an episode raises ValueError\('over'\): raise EnvError",
        ),
        (NoEntry, r"after the end of an episode raises KeyError\('next'\): raise EnvError"),
        (ReturnText, "score is nan: return a finite float"),
    ],
)
def test_each_broken_promise_is_one_sentence_with_its_cure(env, sentence):
    if env is NoComponents:
        env.__abstractmethods__ = frozenset()
    with pytest.raises(EnvError, match=rf"^{env.__name__}: .*{sentence}") as caught:
        check_env(env(), most_steps=200)
    assert "\n" not in str(caught.value)


class Duel(Env):
    """Two roles move in turn; the last role's step resolves both."""

    name = "duel"
    roles = ("left", "right")
    components: ClassVar = {"win": "team"}

    def acting(self, state):
        return self.roles[len(state[1]) :] or self.roles

    def generate(self, rng):
        return {"target": int(rng.integers(5))}

    def canonical(self, data):
        return str(data["target"])

    def reset(self, task):
        return (task.data["target"], ())

    def observe(self, state, role):
        return Observation(text=f"{role} {state}", legal_actions=("0", "1", "2"))

    def step(self, state, role, action, noise):
        if action not in ("0", "1", "2"):
            raise IllegalActionError(f"got {action!r}, expected 0, 1 or 2")
        target, said = state
        after = (target, (*said, int(action)))
        over = len(after[1]) >= 2
        won = float(over and sum(after[1]) == target)
        return Step(state=after, rewards={"win": won}, terminated=over, truncated=False)

    def score(self, state):
        return float(sum(state[1]) == state[0])

    def state_key(self, state, role):
        return f"{role}{state}"

    def baselines(self):
        return {"random": lambda state, rng: str(rng.integers(3))}


def test_two_roles_and_given_tasks_are_checked_too():
    report = check_env(Duel(), tasks=[Task(id="a", env="duel", seed=0, data={"target": 2})])
    assert (report.tasks, report.longest) == (1, 2)
    with pytest.raises(EnvError, match="give one task or more"):
        check_env(Duel(), tasks=0)


class Loss(FrozenLake):
    """The score is the return; what `score` says is not used."""

    scored_by = "return"

    def score(self, state):
        return -7.0


def test_a_score_that_is_not_used_may_be_any_number():
    assert check_env(Loss(), tasks=2).tasks == 2
    lake = Loss()
    state = lake.reset(
        Task(id="t", env="lake", seed=0, data=lake.generate(np.random.default_rng(0)))
    )
    assert guarded(lake, timeout=60).score(state) == -7.0
    with pytest.raises(BrokenEnvError, match="score returned nan .* expected a finite float"):
        guarded(ReturnText(), timeout=60).score(state)
