"""Faults of a user's env are reported before anything is made for its training."""

from __future__ import annotations

import random
import time
from dataclasses import dataclass

import pytest

import turnwise as tw
from turnwise.errors import EnvError, IllegalActionError
from turnwise.recipe.sections import EnvChoice


@dataclass
class At:
    n: int
    k: int = 0


class Right(tw.Env):
    name = "count"
    components = {"r": "agent"}  # noqa: RUF012

    def generate(self, rng):
        return {"n": int(rng.integers(0, 1000))}

    def reset(self, task):
        return At(task.data["n"])

    def observe(self, state, role):
        return tw.Observation(
            text=f"number {state.n} step {state.k}", legal_actions=("odd", "even")
        )

    def step(self, state, role, action, noise):
        if action not in ("odd", "even"):
            raise IllegalActionError("say odd or even")
        after = At(state.n, state.k + 1)
        return tw.Step(state=after, rewards={"r": 1.0}, terminated=after.k > 3, truncated=False)

    def score(self, state):
        return 0.5


class Mutates(Right):
    def step(self, state, role, action, noise):
        state.k += 1
        return tw.Step(state=state, rewards={}, terminated=state.k > 2, truncated=False)


class SelfState(Right):
    k = 0

    def step(self, state, role, action, noise):
        self.k += 1
        after = At(state.n, self.k)
        return tw.Step(state=after, rewards={}, terminated=False, truncated=self.k % 3 == 0)


class WrongLevel(Right):
    components = {"r": "step"}  # noqa: RUF012


class ListOfComponents(Right):
    components = ["r"]  # noqa: RUF012


class Sized(Right):
    def __init__(self, size):
        super().__init__()
        self.size = size


class NumpyData(Right):
    def generate(self, rng):
        return {"n": rng.integers(0, 1000)}


class GlobalRandom(Right):
    def reset(self, task):
        return At(random.randrange(10**9))


class ScoreNone(Right):
    def score(self, state):
        pass


class ScoreOfSeven(Right):
    def score(self, state):
        return 7


class MutatesUnscored(Right):
    """Its score raises before the end, so that the first look has to go on without it."""

    def step(self, state, role, action, noise):
        state.k += 1
        return tw.Step(state=state, rewards={}, terminated=state.k > 9, truncated=False)

    def score(self, state):
        if state.k <= 9:
            raise ValueError("the episode is not over")
        return 1.0


class Nameless(tw.Env):
    components = {}  # noqa: RUF012
    reset, observe, step, score = Right.reset, Right.observe, Right.step, Right.score


class Arguments(Right):
    def observe(self, state):
        return tw.Observation(text="x", legal_actions=("odd", "even"))


class RaisesAlways(Right):
    def step(self, state, role, action, noise):
        raise KeyError("the database")


class RaisesAtTheSecondStep(Right):
    def step(self, state, role, action, noise):
        if state.k:
            raise KeyError("the database")
        return super().step(state, role, action, noise)


class RaisesInReset(Right):
    def reset(self, task):
        raise KeyError("the database")


class RaisesInScore(Right):
    def score(self, state):
        raise KeyError("the database")


class RaisesInGenerate(Right):
    def generate(self, rng):
        raise KeyError("the database")


WRONG = {
    Mutates: "Mutates: step changes the state that it is given, in place",
    MutatesUnscored: "MutatesUnscored: step changes the state that it is given, in place",
    SelfState: "SelfState: stepping one state twice with equal noise gives different results",
    WrongLevel: "WrongLevel: component 'r' has level 'step': use one of process, agent, team",
    ListOfComponents: r"ListOfComponents: components = \['r'\]: give a dict",
    Sized: "Sized: __init__ takes 'size', and the env declares no options",
    NumpyData: "NumpyData: generate's data are not JSON",
    GlobalRandom: "GlobalRandom: reset returns different states for one task",
    ScoreNone: "ScoreNone: score is None: return a float from 0 to 1",
    ScoreOfSeven: "ScoreOfSeven: score is 7: return a float from 0 to 1",
    Nameless: "Nameless: has no class attribute 'name'",
    Arguments: r"Arguments: observe\(state\) cannot be called",
    RaisesAlways: "12 of 12 games of random play broke: RaisesAlways.step raised KeyError",
    RaisesAtTheSecondStep: "12 of 12 games .* RaisesAtTheSecondStep.step raised KeyError",
    RaisesInReset: "12 of 12 games .* RaisesInReset.reset raised KeyError",
    RaisesInScore: "12 of 12 games .* RaisesInScore.score raised KeyError",
    RaisesInGenerate: "RaisesInGenerate.generate raised KeyError",
}


@pytest.mark.parametrize("kind", WRONG)
def test_train_refuses_a_wrong_env_and_leaves_no_folder(kind, tmp_path):
    with pytest.raises(EnvError, match=WRONG[kind]):
        tw.train("nano", env=kind, root=tmp_path / "runs", progress=False)
    assert not (tmp_path / "runs").exists()


@pytest.mark.parametrize("kind", [Mutates, ScoreOfSeven, NumpyData])
def test_a_recipe_is_refused_too(kind, tmp_path):
    env = {"env.name": f"{__file__}:{kind.__name__}", "credit.rewards": {"r": 1.0}}
    recipe = tw.load_recipe("frozen-lake", env | {"env.options": {}, "env.training": {}})
    with pytest.raises(EnvError, match=kind.__name__):
        tw.train(recipe, root=tmp_path / "runs", progress=False)
    assert not list(tmp_path.glob("runs/*"))


def test_an_instance_with_options_of_its_own_is_taken_as_it_is():
    from turnwise.recipe.from_python import env_section
    from turnwise.utils.user_code import load_object

    sized = Sized(3)
    assert load_object(env_section(sized)["name"]) is sized


class Refuses(Right):
    """Offers what it refuses."""

    def step(self, state, role, action, noise):
        if action == "even" and state.k:
            raise IllegalActionError("not now")
        return super().step(state, role, action, noise)


class NeverEnds(Right):
    def step(self, state, role, action, noise):
        after = At(state.n, state.k + 1)
        return tw.Step(state=after, rewards={"r": 1.0}, terminated=False, truncated=False)


class Slow(Right):
    def step(self, state, role, action, noise):
        time.sleep(0.1)
        return super().step(state, role, action, noise)


class RaisesInAThird(Right):
    def step(self, state, role, action, noise):
        if state.n % 3 == 0:
            raise KeyError("the database")
        return super().step(state, role, action, noise)


class RaisesOnce(Right):
    raised = False

    def observe(self, state, role):
        if not self.raised:
            self.raised = True
            raise KeyError("the database")
        return super().observe(state, role)


class RendersNothing(Right):
    def render(self, state):
        raise KeyError("the picture")


BORNE = [Right, Refuses, NeverEnds, Slow, RaisesInAThird, RaisesOnce, RendersNothing]


@pytest.mark.parametrize("kind", BORNE)
def test_what_a_run_bears_is_no_mistake(kind):
    for seed in range(1 if kind is Slow else 5):
        began = time.monotonic()
        EnvChoice(name=f"{__file__}:{kind.__name__}").look("training", seed)
        assert time.monotonic() - began < 20, "a look takes about a second"


class MutatesInSomeGames(Mutates):
    """One of its first games breaks, and the others are to be checked all the same."""

    def step(self, state, role, action, noise):
        if state.n % 3 == 0:
            raise KeyError("the database")
        return super().step(state, role, action, noise)


def test_a_broken_game_hides_no_fault_of_the_others():
    choice = EnvChoice(name=f"{__file__}:MutatesInSomeGames")
    for seed in range(5):
        with pytest.raises(EnvError, match="step changes the state that it is given, in place"):
            choice.look("training", seed)
