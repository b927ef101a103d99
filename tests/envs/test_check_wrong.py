"""Envs with every mistake that a user makes: one sentence with the cure, never a raw exception."""

from __future__ import annotations

import copy
from dataclasses import dataclass, field, replace

import gymnasium
import numpy as np
import pytest

from turnwise.envs import Env, Observation, Step, check_env, make_env
from turnwise.errors import ConfigError, EnvError, IllegalActionError
from turnwise.settings import Settings
from turnwise.types import Task


@dataclass
class Game:
    number: int
    turn: int = 0
    hits: list[int] = field(default_factory=list)


class Guess(Env):
    """Keeps the contract; every mistake below is one change of it."""

    name = "guess"
    components = {"hit": "agent"}  # noqa: RUF012

    def reset(self, task):
        return Game(number=task.data["seed"] % 3)

    def observe(self, state, role):
        return Observation(text=f"turn {state.turn}", legal_actions=("A", "B", "C"))

    def state_key(self, state, role):
        return f"{state.number}{state.turn}"

    def step(self, state, role, action, noise):
        if action not in ("A", "B", "C"):
            raise IllegalActionError(f"{action!r} is none of A, B, C")
        after = self.after(state, action)
        hit = float("ABC".index(action) == state.number)
        return self.end(after, {"hit": hit}, after.turn >= 4)

    def after(self, state, action):
        return Game(state.number, state.turn + 1, [*state.hits, "ABC".index(action)])

    def end(self, state, rewards, over):
        return Step(state=state, rewards=rewards, terminated=over, truncated=False)

    def score(self, state):
        return sum(hit == state.number for hit in state.hits) / 4


def env_with(**members):
    """An env of another class, with these members."""
    return type("Own", (Guess,), members)()


def returning(value):
    return lambda self, *_: value


def seeing(**changes):
    return lambda self, state, role: replace(Guess.observe(self, state, role), **changes)


def ending(**changes):
    """`end` whose Step has other fields."""
    return lambda self, *given: replace(Guess.end(self, *given), **changes)


async def later(self, *_):
    return None


class Options(Settings):
    rounds: int = 1


def in_place(self, state, action):
    state.turn += 1
    state.hits.append("ABC".index(action))
    return state


def hidden_in_place(self, state, action):
    after = Guess.after(self, state, action)
    state.hits.append(9)
    return after


def shared_hits(self, state, action):
    """A shallow copy: the list is the old state's too."""
    after = copy.copy(state)
    after.turn += 1
    after.hits.append("ABC".index(action))
    return after


def counting_key(self, state, role):
    state.hits.append(0)
    return f"{state.number}{state.turn}"


def counting_score(self, state):
    state.hits.append(0)
    return 0.5


def changing_reset(self, task):
    task.data["seed"] += 1
    return Game(number=0)


class OneDict(Guess):
    """Returns the dict of rewards that it changes later."""

    def __init__(self):
        super().__init__()
        self.rewards = {}

    def end(self, state, rewards, over):
        self.rewards["hit"] = float(state.turn)
        return super().end(state, self.rewards, over)


class Hidden(Guess):
    """Keeps the number on self: right alone, wrong beside others."""

    def reset(self, task):
        self.number = task.data["seed"] % 3
        return Game(number=0)

    def after(self, state, action):
        return Game(self.number, state.turn + 1, [*state.hits, self.number])


class HiddenInClass(Hidden):
    numbers: list = []  # noqa: RUF012

    def reset(self, task):
        self.numbers[:] = [task.data["seed"] % 3]
        return Game(number=0)

    def after(self, state, action):
        return Game(self.numbers[0], state.turn + 1, [*state.hits, self.numbers[0]])


class GymStyle(Guess):
    """Written as a gymnasium.Env is."""

    def step(self, state, role, action, noise):
        return state, 0.0, False, False, {}


class OldGymStyle(Guess):
    def step(self, state, role, action, noise):
        return state, 0.0, False, {}


class GymReset(Guess):
    def reset(self, task):
        return super().reset(task), {}


class NoAnswers(Guess):
    """Raises what is no ValueError for what is illegal."""

    def step(self, state, role, action, noise):
        return Guess.end(self, state, {"hit": {"A": 1.0}[action]}, True)


class FewArguments(Guess):
    def step(self, state, action):
        return None


class MoreArguments(Guess):
    def reset(self, task, seed):
        return None


class NoConfig(Guess):
    config_class = Options

    def __init__(self, config=None):
        pass


NAN = float("nan")
MISTAKES = {
    "components a list": (env_with(components=["r"]), "components = ['r']: give a dict"),
    "components a text": (env_with(components="hit"), "components = 'hit': give a dict"),
    "components none": (env_with(components=None), "components = None: give a dict"),
    "a component's name": (env_with(components={1: "agent"}), "component 1 is no name"),
    "a component's level": (env_with(components={"hit": 1.0}), "has level 1.0: use one of"),
    "a level that is a list": (env_with(components={"hit": ["agent"]}), "has level ['agent']"),
    "a reserved component": (env_with(components={"invalid": "agent"}), "is reserved: give it"),
    "roles a list": (env_with(roles=["player"]), "roles = ['player']: give a tuple"),
    "roles a text": (env_with(roles="player"), "roles = 'player': give a tuple"),
    "roles of numbers": (env_with(roles=(1, 2)), "roles = (1, 2): give a tuple"),
    "equal roles": (env_with(roles=("a", "a")), "roles = ('a', 'a'): give a tuple of different"),
    "roles of lists": (env_with(roles=(["a"],)), "roles = (['a'],): give a tuple"),
    "no roles": (env_with(roles=None), "roles = None: give a tuple"),
    "a name of a number": (env_with(name=3), "name = 3: give it a short name"),
    "a blank name": (env_with(name=" "), "name = ' ': give it a short name"),
    "a timing": (env_with(reward_timing="late"), "reward_timing = 'late': use one of dense"),
    "a scoring": (env_with(scored_by=None), "scored_by = None: use one of score, return"),
    "waiting": (env_with(blocking="yes"), "blocking = 'yes': use True or False"),
    "a text for a cap": (env_with(max_turns="9"), "max_turns = '9': give a whole number"),
    "a cap of zero": (env_with(max_turns=0), "max_turns = 0: give a whole number from 1"),
    "a cap that is true": (env_with(max_turns=True), "max_turns = True: give a whole number"),
    "a dict of options": (env_with(config_class={}), "config_class = {}: derive a class"),
    "options of another class": (env_with(config_class=dict), "config_class = <class 'dict'>"),
    "files that are no options": (env_with(files=("x",)), "files = ('x',): give a tuple of opt"),
    "no super().__init__": (NoConfig(), "config is None: make it with make_env"),
    "a method that is none": (env_with(step=None), "step = None is no method: write def step("),
    "a method that is a value": (env_with(score=0.5), "score = 0.5 is no method: write def sco"),
    "async step": (env_with(step=later), "step is async, or yields: write def step(self, state"),
    "async reset": (env_with(reset=later), "reset is async, or yields: write def reset(self, "),
    "async observe": (env_with(observe=later), "observe is async, or yields"),
    "async score": (env_with(score=later), "score is async, or yields"),
    "hidden async": (env_with(reset=lambda self, task: later(self)), "reset returns coroutine"),
    "too few arguments": (FewArguments(), "step(state, action) cannot be called (too many pos"),
    "too many arguments": (MoreArguments(), "reset(task, seed) cannot be called (missing a req"),
    "fixed as a method": (
        env_with(single_task=lambda self: True),
        "single_task is a method: make it",
    ),
    "a vocabulary as a list": (
        env_with(vocabulary=returning(["A"])),
        "vocabulary() returns something else",
    ),
    "baselines a list": (env_with(baselines=returning(["random"])), "baselines() returns list"),
    "a baseline's action": (env_with(baselines=returning({"random": "A"})), "baseline 'random' is"),
    "an action of a number": (env_with(random_action=returning(1)), "answers 1 of type int"),
    "no action": (env_with(random_action=returning(None)), "answers None of type NoneType"),
    "an illegal random action": (env_with(random_action=returning("D")), "answers 'D' where A,"),
    "generate none": (env_with(generate=returning(None)), "generate returns NoneType: return a d"),
    "generate arrays": (env_with(generate=lambda s, rng: {"x": rng.random(3)}), "are not JSON"),
    "generate a set": (env_with(generate=returning({"x": {1}})), "generate's data are not JSON"),
    "canonical none": (env_with(canonical=returning(None)), "canonical returns NoneType"),
    "reset none": (env_with(reset=returning(None)), "reset returns None: return the first state"),
    "reset changes the task": (env_with(reset=changing_reset), "reset changes the task's data"),
    "observe a text": (env_with(observe=returning("you")), "observe returns str: return an Obs"),
    "observe a dict": (env_with(observe=returning({"text": "x"})), "observe returns dict"),
    "observe none": (env_with(observe=returning(None)), "observe returns NoneType"),
    "a text of a number": (env_with(observe=seeing(text=3)), "the observation's text is 3: say"),
    "a text of bytes": (env_with(observe=seeing(text=b"x")), "text is b'x': say what"),
    "a description of none": (env_with(observe=seeing(description=None)), "description is None"),
    "legal a list": (
        env_with(observe=seeing(legal_actions=["A"])),
        "legal_actions = ['A']: give a tuple",
    ),
    "legal a text": (
        env_with(observe=seeing(legal_actions="ABC")),
        "legal_actions = 'ABC': give a tuple",
    ),
    "legal none": (
        env_with(observe=seeing(legal_actions=None)),
        "legal_actions = None: give a tuple",
    ),
    "legal numbers": (
        env_with(observe=seeing(legal_actions=(1, 2))),
        "legal_actions = (1, 2): give a tuple",
    ),
    "legal an array": (
        env_with(observe=seeing(legal_actions=np.arange(2))),
        "legal_actions = array([0, 1]): gi",
    ),
    "a blank legal action": (env_with(observe=seeing(legal_actions=("A", " "))), "has blank ends"),
    "messages a list": (env_with(observe=seeing(messages=["x"])), "messages = ['x']: give a tu"),
    "tools a dict": (env_with(observe=seeing(tools={})), "tools = {}: give a tuple of str"),
    "media a string": (env_with(observe=seeing(media=("x",))), "media = ('x',): give a tu"),
    "raw a number": (env_with(observe=seeing(raw=1)), "raw = 1: use True or False"),
    "a key of a tuple": (env_with(state_key=returning((1,))), "state_key returns tuple"),
    "a score of none": (env_with(score=returning(None)), "score is None: return a float"),
    "a score of NaN": (env_with(score=returning(NAN)), "score is nan: return a float"),
    "a score that is true": (env_with(score=returning(True)), "score is True: return a float"),
    "numpy's float32 score": (env_with(score=returning(np.float32(0.5))), "score is np.float32"),
    "an array of scores": (env_with(score=returning(np.ones(2))), "score is array([1., 1.])"),
    "a percentage": (env_with(score=returning(55)), "score is 55: return a float from 0 to 1"),
    "render none": (env_with(render=returning(None)), "render returns NoneType: return a string"),
    "step none": (env_with(step=returning(None)), "step returns NoneType: return a Step"),
    "a gymnasium step": (GymStyle(), "step returns tuple of 5 values: return a Step, as in Step("),
    "an old gym step": (OldGymStyle(), "use make_env('gymnasium', id=...)"),
    "a gymnasium reset": (GymReset(), "reset returns a tuple of 2 with a dict: return the state"),
    "rewards a number": (env_with(end=ending(rewards=1.0)), "rewards = 1.0: give a dict of reward"),
    "rewards none": (env_with(end=ending(rewards=None)), "rewards = None: give a dict"),
    "rewards a list": (env_with(end=ending(rewards=[1.0])), "rewards = [1.0]: give a dict"),
    "a reward of NaN": (env_with(end=ending(rewards={"hit": NAN})), "reward 'hit' is nan: return"),
    "a reward of none": (env_with(end=ending(rewards={"hit": None})), "reward 'hit' is None"),
    "a reward in words": (env_with(end=ending(rewards={"hit": "1"})), "reward 'hit' is '1'"),
    "numpy's float32": (env_with(end=ending(rewards={"hit": np.float32(1)})), "np.float32(1.0)"),
    "numpy's truth": (env_with(end=ending(rewards={"hit": np.True_})), "reward 'hit' is np.True_"),
    "an array of rewards": (env_with(end=ending(rewards={"hit": np.ones(1)})), "is array([1.])"),
    "no such reward": (env_with(end=ending(rewards={"hti": 1.0})), "'hti' is not a declared comp"),
    "terminated a number": (env_with(end=ending(terminated=1)), "terminated is 1 of type int"),
    "truncated none": (env_with(end=ending(truncated=None)), "truncated is None of type NoneType"),
    "tasks as a generator": (
        env_with(tasks=lambda self, split: (task for task in ())),
        "tasks returns generator: return a list, not a generator",
    ),
    "terminated numpy's": (env_with(end=ending(terminated=np.True_)), "write bool(...) around"),
    "no next state": (env_with(end=ending(state=None)), "step returns no state: return Step("),
    "info a text": (env_with(end=ending(info="x")), "info = 'x': give a dict, or leave it out"),
    "an illegal action": (NoAnswers(), "an illegal action raises KeyError: raise IllegalActionE"),
    "refuses what is legal": (
        env_with(observe=seeing(legal_actions=("A", "B", "C", "D"))),
        "step refuses 'D', which random_action or a baseline answers",
    ),
    "changed in place": (env_with(after=in_place), "step changes the state that it is given, in p"),
    "changed unseen": (env_with(after=hidden_in_place), "step changes the state that it is given"),
    "a shallow copy": (env_with(after=shared_hits), "step changes the state that it is given"),
    "observe changes": (
        env_with(observe=lambda self, s, r: s.hits.append(0) or Guess.observe(self, s, r)),
        "observe changes the state that it is given",
    ),
    "state_key changes": (env_with(state_key=counting_key), "state_key changes the state"),
    "score changes": (env_with(score=counting_score), "score changes the state that it is given"),
    "one dict of rewards": (OneDict(), "the rewards that step returned is changed by later steps"),
    "state on self": (Hidden(), "an episode played beside others is not what it is alone"),
    "state in the class": (HiddenInClass(), "an episode played beside others is not what it is"),
}  # fmt: skip


def test_the_env_without_a_mistake_passes():
    assert check_env(Guess()).longest == 4


@pytest.mark.parametrize("case", MISTAKES)
def test_each_mistake_is_one_sentence_with_its_cure(case):
    env, words = MISTAKES[case]
    with pytest.raises(EnvError) as caught:
        check_env(env, tasks=2)
    said = str(caught.value)
    assert words in said
    assert "\n" not in said and len(said) < 400


RAISES = {
    "a misspelt attribute": (lambda self, s, r: s.nowhere, "AttributeError: 'Game' object has no"),
    "an index": (lambda self, s, r: [][s.turn], "IndexError"),
    "a division": (lambda self, s, r: 1 / s.turn, "ZeroDivisionError"),
    "nothing written": (lambda self, s, r: exec("raise NotImplementedError"), "NotImplemented"),
    "an exit": (lambda self, s, r: exit(), "SystemExit"),
    "endless recursion": (lambda self, s, r: self.observe(s, r), "RecursionError"),
}


@pytest.mark.parametrize("case", RAISES)
def test_what_an_env_raises_is_named_with_its_place(case):
    observe, words = RAISES[case]
    with pytest.raises(EnvError, match=rf"Own\.observe raised {words}.*test_check_wrong\.py:\d+\)"):
        check_env(env_with(observe=observe), tasks=1)


class Coin(gymnasium.Env):
    """A gymnasium env of the user's."""


def test_a_gymnasium_env_is_pointed_to_make_env(tmp_path):
    own = (
        r"Coin is a Gymnasium env, .* use make_env\('gymnasium', id='.*test_check_wrong\.py:Coin'\)"
    )
    for given in (Coin, Coin()):
        with pytest.raises(EnvError, match=own):
            check_env(given)
        with pytest.raises(ConfigError, match=own):
            make_env(given)
    with pytest.raises(EnvError, match=r"use make_env\('gymnasium', id='CartPole-v1'\)"):
        check_env(gymnasium.make("CartPole-v1"))
    with pytest.raises(ConfigError, match=own):
        make_env(f"{__file__}:Coin")


def test_what_is_no_env_is_said():
    for given, words in ((Guess, r"Guess is a class: give an instance, such as Guess\(\)"),
                         (3, "3 is not an env"), (None, "None is not an env"),
                         ("guess", "'guess' is not"), (int, "int is not an env"),
                         (Env, "Env does not define observe")):  # fmt: skip
        with pytest.raises(EnvError, match=words):
            check_env(given)
    with pytest.raises(ConfigError, match="got 3: give an env's name"):
        make_env(3)


@dataclass(eq=False)
class Board:
    """A state that cannot be compared: arrays, and no equality."""

    cells: np.ndarray
    turn: int = 0


class Boards(Guess):
    def reset(self, task):
        return Board(np.full(3, task.data["seed"] % 3))

    def state_key(self, state, role):
        return f"{state.cells[0]}{state.turn}"

    def step(self, state, role, action, noise):
        if action not in ("A", "B", "C"):
            raise IllegalActionError(action)
        after = Board(state.cells.copy() if self.copies else state.cells, state.turn + 1)
        after.cells[1] += 1
        return self.end(after, {"hit": 0.0}, after.turn >= 4)

    def score(self, state):
        return 0.0


def test_states_that_cannot_be_compared_are_looked_into():
    right, wrong = Boards(), Boards()
    right.copies, wrong.copies = True, False
    assert check_env(right).longest == 4
    with pytest.raises(EnvError, match="step changes the state that it is given"):
        check_env(wrong)


class Live:
    """A state that cannot be pickled."""

    def __init__(self, number, turn=0, hits=()):
        self.number, self.turn, self.hits = number, turn, list(hits)
        self.rule = lambda: number


class Lives(Guess):
    def reset(self, task):
        return Live(task.data["seed"] % 3)

    def after(self, state, action):
        after = Live(state.number, state.turn + 1, [*state.hits, 1])
        if self.wrong:
            state.hits.append(2)
        return after


def test_states_that_cannot_be_pickled_are_looked_into():
    right, wrong = Lives(), Lives()
    right.wrong, wrong.wrong = False, True
    assert check_env(right).longest == 4
    with pytest.raises(EnvError, match="step changes the state that it is given"):
        check_env(wrong)


def test_tasks_are_left_as_they_are():
    task = Task(id="t", env="guess", seed=0, data={"seed": 1})
    check_env(Guess(), tasks=[task])
    assert task.data == {"seed": 1}
