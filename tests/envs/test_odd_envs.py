"""Envs with odd numbers, read-only declarations and many seats: refused in a line, or played."""

from __future__ import annotations

from dataclasses import replace

import numpy as np
import pytest

from turnwise.envs import Env, Observation, Step, check_env, first_turn, guarded
from turnwise.errors import BrokenEnvError, ConfigError, EnvError
from turnwise.types import Message, Task

TASK = Task(id="t", env="pair", seed=0, data={"seed": 1})
RNG = np.random.default_rng(0)


class Pair(Env[str]):
    """Two seats say A or B in turn, twice each."""

    name = "pair"
    roles = ("one", "two")
    components = {"done": "team"}  # noqa: RUF012
    reward: object = 1.0

    def reset(self, task):
        return ""

    def acting(self, state):
        return (self.roles[len(state) % 2],)

    def observe(self, state, role):
        return Observation(text=f"{state} {role}", legal_actions=("A", "B"))

    def step(self, state, role, action, noise):
        over = len(state) == 3
        return Step(
            state=state + action, rewards={"done": self.reward}, terminated=over, truncated=False
        )

    def score(self, state):
        return 0.5


class Endless(Pair):
    reward = 10**400


class Huge(Pair):
    reward = 1e308  # finite, and the sum of two is not


class Wordless:
    def __repr__(self):
        raise ValueError("no words")


class Unspeakable(Pair):
    reward = Wordless()


class Capped(Pair):
    @property
    def max_turns(self):
        return 6


class Crowd(Pair):
    """Only one of forty seats of the first role ever has a turn."""

    @property
    def seats(self):
        return {f"one-{number}": "one" for number in range(40)} | {"two": "two"}

    def acting(self, state):
        return (("one-7", "two")[len(state) % 2],)


@pytest.mark.parametrize("kind", [Endless, Huge])
def test_a_reward_that_no_float_holds_or_whose_sums_are_infinite_is_refused(kind):
    with pytest.raises(EnvError, match="return a finite float of at most 1e[+]18 in size"):
        check_env(kind())
    with pytest.raises(BrokenEnvError, match="expected rewards that are finite floats, of at most"):
        guarded(kind(), 5).step("", "one", "A", RNG)


HALF = "half \ud800"


class Halves(Pair):
    """Half of a character in one of the texts; the others are right."""

    def __init__(self, where):
        super().__init__()
        self.where = where

    def observe(self, state, role):
        seen = super().observe(state, role)
        if self.where in ("text", "description"):
            return replace(seen, **{self.where: HALF})
        if self.where == "messages":
            return replace(seen, messages=(Message(role="tool", content=HALF),))
        if self.where in ("legal_actions", "tools"):
            return replace(seen, **{self.where: (HALF,)})
        return seen

    def _other(self, where, right):
        return HALF if self.where == where else right

    def state_key(self, state, role):
        return self._other("state_key", super().state_key(state, role))

    def render(self, state):
        return self._other("render", super().render(state))

    def canonical(self, data):
        return self._other("canonical", super().canonical(data))

    def vocabulary(self):
        return (self._other("vocabulary", "A"),)

    def random_action(self, state, role, rng):
        return self._other("random_action", super().random_action(state, role, rng))


OBSERVED = ("text", "description", "messages", "legal_actions", "tools")
CALLS = {
    **{name: lambda env: env.observe("", "one") for name in OBSERVED},
    "state_key": lambda env: env.state_key("", "one"),
    "render": lambda env: env.render(""),
    "canonical": lambda env: env.canonical({}),
    "vocabulary": lambda env: env.vocabulary(),
    "random_action": lambda env: env.random_action("", "one", np.random.default_rng(0)),
}


@pytest.mark.parametrize("where", CALLS)
def test_half_of_a_character_is_no_text(where):
    """Tokenizers and files take no lone surrogate: in a run such an episode is broken."""
    with pytest.raises(BrokenEnvError, match=r"half \\ud800.* expected text of valid Unicode"):
        CALLS[where](guarded(Halves(where), 5))
    with pytest.raises(EnvError, match=r"return text of valid Unicode|has blank ends|are legal"):
        check_env(Halves(where))


def test_an_exception_with_half_of_a_character_is_told_in_escapes():
    class Raises(Pair):
        def step(self, state, role, action, noise):
            raise RuntimeError(HALF)

    with pytest.raises(BrokenEnvError) as caught:
        guarded(Raises(), 5).step("", "one", "A", RNG)
    assert "half \\ud800" in str(caught.value)
    assert str(caught.value).encode()


def test_a_value_that_cannot_be_shown_is_refused_all_the_same():
    with pytest.raises(BrokenEnvError, match=r"Unspeakable.__repr__ raised ValueError: no words"):
        guarded(Unspeakable(), 5).step("", "one", "A", RNG)


def test_a_declaration_that_cannot_be_set_says_so():
    env = guarded(Capped(), 5)
    assert env.max_turns == 6
    with pytest.raises(ConfigError, match=r"Capped\.max_turns cannot be set to 3 \(.*no setter"):
        env.max_turns = 3


@pytest.mark.parametrize("name", ["a\nb", "a\0", "\u202e", " ", ""])
def test_roles_and_seats_have_names_of_one_line(name):
    class Roles(Pair):
        roles = (name, "two")

    class Seats(Pair):
        @property
        def seats(self):
            return {name: "one", "two": "two"}

    for kind, said in ((Roles, r"Roles: roles = .*on one line"), (Seats, "Seats: seats = ")):
        with pytest.raises(EnvError, match=said):
            check_env(kind())


@pytest.mark.parametrize("seed", range(6))
def test_the_one_seat_of_a_role_that_acts_is_found(seed):
    state, seat = first_turn(Crowd(), TASK, "one", np.random.default_rng(seed))
    assert seat == "one-7"
    assert len(state) % 2 == 0
