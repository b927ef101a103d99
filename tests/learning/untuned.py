"""Small multi-turn envs as a user writes them, with nothing for the model's convenience."""

from __future__ import annotations

from dataclasses import dataclass, replace
from typing import Literal

import gymnasium
import numpy as np

import turnwise as tw


@dataclass(frozen=True)
class Heap:
    sticks: int
    result: str = ""


class Nim(tw.Env[Heap]):
    """Take one to three sticks in turn with an opponent who plays at random; the last one wins."""

    name = "nim"
    components = {"won": "agent"}  # noqa: RUF012

    def generate(self, rng):
        return {"sticks": int(rng.integers(5, 12)), "seed": int(rng.integers(2**31))}

    def reset(self, task):
        return Heap(task.data["sticks"])

    def observe(self, state, role):
        legal = ("1", "2", "3")[: max(1, state.sticks)]
        return tw.Observation(text=f"{state.sticks} sticks", legal_actions=legal)

    def step(self, state, role, action, noise):
        left = state.sticks - int(action)
        result = "won" if left <= 0 else ""
        if not result:
            left -= int(noise.integers(1, min(3, left) + 1))
            result = "lost" if left <= 0 else ""
        rewards = {"won": {"won": 1.0, "lost": -1.0, "": 0.0}[result]}
        return tw.Step(
            state=Heap(left, result), rewards=rewards, terminated=bool(result), truncated=False
        )

    def score(self, state):
        return float(state.result == "won")


@dataclass(frozen=True)
class Secret:
    number: int
    low: int = 1
    high: int = 16
    tries: int = 0
    answer: str = ""


class Guess(tw.Env[Secret]):
    """Guess a number from 1 to 16 in four tries; each is answered with higher or lower."""

    name = "guess"
    components = {"right": "agent"}  # noqa: RUF012

    def generate(self, rng):
        return {"number": int(rng.integers(1, 17)), "seed": int(rng.integers(2**31))}

    def reset(self, task):
        return Secret(task.data["number"])

    def text(self, state):
        return state.answer or "a number from 1 to 16"

    def observe(self, state, role):
        return tw.Observation(
            text=self.text(state), legal_actions=tuple(str(n) for n in range(1, 17))
        )

    def step(self, state, role, action, noise):
        guess, tries = int(action), state.tries + 1
        if guess < state.number:
            after = replace(state, tries=tries, low=max(state.low, guess + 1), answer="higher")
        elif guess > state.number:
            after = replace(state, tries=tries, high=min(state.high, guess - 1), answer="lower")
        else:
            after = replace(state, tries=tries, answer="right")
        right = after.answer == "right"
        rewards = {"right": float(right)}
        return tw.Step(state=after, rewards=rewards, terminated=right or tries == 4,
                       truncated=False)  # fmt: skip

    def score(self, state):
        return float(state.answer == "right")


class GuessShown(Guess):
    """The same; the numbers that are left are shown."""

    name = "guess-shown"

    def text(self, state):
        return f"between {state.low} and {state.high}"


class Corridor(gymnasium.Env):
    """Walk to the end of a corridor of eight cells; there is a pit at the other end."""

    def __init__(self):
        self.observation_space = gymnasium.spaces.Discrete(8)
        self.action_space = gymnasium.spaces.Discrete(3)
        self.place = 0

    def reset(self, *, seed=None, options=None):
        super().reset(seed=seed)
        self.place = int(self.np_random.integers(1, 6))
        return self.place, {}

    def step(self, action):
        self.place += (-1, 0, 1)[int(action)]
        goal, pit = self.place == 7, self.place == 0
        return self.place, 1.0 if goal else -1.0 if pit else -0.02, goal or pit, False, {}


PEOPLE = ("ann", "bob", "cid")


@dataclass(frozen=True, kw_only=True)
class Call(tw.ToolState):
    book: dict[str, str]
    wanted: str
    right: bool = False


class PhoneBook(tw.ToolEnv[Call]):
    """What is somebody's number? The book tells."""

    name = "phone-book"
    components = {"right": "agent"}  # noqa: RUF012
    most_calls = 2

    @tw.tool
    def look_up(self, state: Call, person: Literal["ann", "bob", "cid"]) -> str:
        """Look up a number.

        Args:
            state: The book; no model sees this argument.
            person: Whose number.

        Returns:
            The number.
        """
        return state.book[person]

    def reset(self, task):
        rng = np.random.default_rng(task.data["seed"])
        book = {person: str(rng.integers(1, 5)) for person in PEOPLE}
        return Call(book=book, wanted=str(rng.choice(PEOPLE)))

    def ask(self, state, role):
        text = f"what is the number of {state.wanted} ?"
        return tw.Observation(text=text, legal_actions=("1", "2", "3", "4"))

    def answer(self, state, role, action, noise):
        right = action == state.book[state.wanted]
        after = replace(state, right=right)
        rewards = {"right": float(right)}
        return tw.Step(state=after, rewards=rewards, terminated=True, truncated=False)

    def score(self, state):
        return float(state.right)
