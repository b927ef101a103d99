"""Whether the past helps: envs in which it does and does not, and how often chance deceives."""

from __future__ import annotations

from dataclasses import dataclass, replace

import numpy as np
import pytest

import turnwise as tw
from turnwise.envs.past_helps import Transition, key_helps, past_helps
from turnwise.envs.survey import survey
from turnwise.tasks import GeneratedTasks


@dataclass(frozen=True)
class World:
    secret: int
    at: int = 0
    turns: int = 0
    said: str = ""


class Base(tw.Env):
    components = {"right": "agent"}  # noqa: RUF012
    words: tuple[str, ...] = ("a", "b", "c", "d")

    def generate(self, rng):
        return {"secret": int(rng.integers(4)), "seed": int(rng.integers(2**31))}

    def reset(self, task):
        return World(task.data["secret"])

    def observe(self, state, role):
        return tw.Observation(text=self.text(state), legal_actions=self.words)

    def text(self, state):
        return f"cell {state.at}"

    def ended(self, state, right, *, over, cut=False):
        rewards = {"right": float(right)}
        return tw.Step(state=state, rewards=rewards, terminated=over, truncated=cut and not over)

    def score(self, state):
        return 0.0


class Shown(Base):
    """A word is shown first, and asked for three turns later."""

    name = "shown"

    def text(self, state):
        return f"word {self.words[state.secret]}" if not state.turns else f"turn {state.turns}"

    def step(self, state, role, action, noise):
        after = replace(state, turns=state.turns + 1)
        right = after.turns == 4 and action == self.words[state.secret]
        return self.ended(after, right, over=after.turns == 4)


class Grid(Base):
    """A walk on a ring of eight cells that slips; the ninth turn is the last, by a limit."""

    name = "grid"
    words = ("left", "right")

    def reset(self, task):
        return World(0, at=task.data["secret"])

    def step(self, state, role, action, noise):
        to = (1 if action == "right" else -1) * (1 if noise.random() < 0.8 else -1)
        after = replace(state, at=(state.at + to) % 8, turns=state.turns + 1)
        return self.ended(after, after.at == 7, over=after.at == 7, cut=after.turns == 9)


class Ending(Grid):
    """The same, where the ninth turn is the end: the observation does not tell how near it is."""

    name = "ending"

    def step(self, state, role, action, noise):
        found = super().step(state, role, action, noise)
        return replace(found, terminated=found.terminated or found.truncated, truncated=False)


class Guess(Base):
    """A number from 1 to 8 is guessed; the env says higher or lower."""

    name = "guess"
    words = tuple(map(str, range(1, 9)))

    def generate(self, rng):
        return {"secret": int(rng.integers(1, 9)), "seed": int(rng.integers(2**31))}

    def text(self, state):
        return state.said or "guess"

    def step(self, state, role, action, noise):
        said = "higher" if int(action) < state.secret else "lower"
        after = replace(state, said=said, turns=state.turns + 1)
        right = int(action) == state.secret
        return self.ended(after, right, over=right or after.turns == 4)


class Bandit(Base):
    """One of four arms pays more often than the others, in all games the same."""

    name = "bandit"

    def best(self, state):
        return 2

    def text(self, state):
        return "pull"

    def step(self, state, role, action, noise):
        likely = 0.9 if action == self.words[self.best(state)] else 0.2
        after = replace(state, turns=state.turns + 1)
        return self.ended(after, noise.random() < likely, over=False, cut=after.turns == 6)


class OtherBandit(Bandit):
    """In every game another arm pays more often, which it says after the pull."""

    name = "other-bandit"

    def best(self, state):
        return state.secret

    def text(self, state):
        return state.said or "pull"

    def step(self, state, role, action, noise):
        found = super().step(state, role, action, noise)
        said = "paid" if found.rewards["right"] else "nothing"
        return replace(found, state=replace(found.state, said=said))


class Unique(Base):
    """No observation is ever seen twice."""

    name = "unique"

    def text(self, state):
        return f"{state.secret} {state.turns}"

    def generate(self, rng):
        return {"secret": int(rng.integers(2**31))}

    def step(self, state, role, action, noise):
        secret = int(noise.integers(2**31))
        after = replace(state, secret=secret, turns=state.turns + 1)
        return self.ended(after, False, over=after.turns == 5)


class OneTurn(Base):
    """There is no past."""

    name = "one-turn"

    def step(self, state, role, action, noise):
        return self.ended(state, action == "a", over=True)


class TwoHands(Base):
    """Each of two seats is shown its own word, and is asked for that of the other: its own past
    tells nothing, though that of both does."""

    name = "two-hands"
    roles = ("one", "two")

    def generate(self, rng):
        return {"secret": int(rng.integers(16)), "seed": int(rng.integers(2**31))}

    def acting(self, state):
        return (self.roles[state.turns % 2],)

    def observe(self, state, role):
        hand = divmod(state.secret, 4)[self.roles.index(role)]
        text = f"word {self.words[hand]}" if state.turns < 2 else "and the other's?"
        return tw.Observation(text=text, legal_actions=self.words)

    def step(self, state, role, action, noise):
        after = replace(state, turns=state.turns + 1)
        other = divmod(state.secret, 4)[1 - self.roles.index(role)]
        right = state.turns >= 2 and action == self.words[other]
        return self.ended(after, right, over=after.turns == 4)


class OwnHand(TwoHands):
    """Each of two seats is asked for the word that it was shown."""

    name = "own-hand"

    def step(self, state, role, action, noise):
        found = super().step(state, role, action, noise)
        own = divmod(state.secret, 4)[self.roles.index(role)]
        right = state.turns >= 2 and action == self.words[own]
        return replace(found, rewards={"right": float(right)})


def groups(env, seed=0):
    return survey(env, GeneratedTasks(env, "train", seed=seed).take(100), seed=seed).groups


@pytest.mark.parametrize(
    ("kind", "helps"),
    [
        (Shown, True),
        (Grid, False),
        (Guess, True),
        (Bandit, False),
        (OtherBandit, True),
        (Unique, None),
        (OneTurn, False),
        (TwoHands, False),
        (OwnHand, True),
    ],
)
def test_the_past_helps_where_it_tells_more_than_the_observation(kind, helps):
    assert groups(kind()).past_helps is helps


def games(seed, count=150, *, hidden=0.0):
    """Return turns of random walks on a ring of six cells.

    With the chance `hidden` a turn goes where the turn before it went, whatever the action.
    """
    rng, turns = np.random.default_rng(seed), []
    for game in range(count):
        at, past = int(rng.integers(6)), []
        for _ in range(8):
            action = ("left", "right")[int(rng.integers(2))]
            goes = past[-1][1] if past and rng.random() < hidden else action
            slips = rng.random() < 0.2
            to = (at + (1 if (goes == "right") != slips else -1)) % 6
            turns.append(
                Transition(
                    game=game,
                    observation=str(at),
                    action=action,
                    followed=((), str(to)),
                    past=tuple(past),
                )
            )
            past.append((str(at), action))
            at = to
    return turns


def test_chance_deceives_in_no_run_of_a_markov_env():
    assert [past_helps(games(seed), seed) for seed in range(30)] == 30 * [False]


def test_a_weak_dependence_is_found_in_every_run():
    assert [past_helps(games(seed, hidden=0.5), seed) for seed in range(5)] == 5 * [True]


def test_the_result_is_a_function_of_the_turns_and_the_seed():
    turns = games(1, hidden=0.2)
    assert past_helps(turns, 4) == past_helps(list(turns), 4)


def test_few_turns_and_turns_that_were_cut_off_say_nothing():
    turns = games(0, hidden=1.0)
    assert past_helps(turns, 0) is True
    assert past_helps(turns[:64], 0) is None
    assert past_helps([], 0) is None
    assert past_helps([replace(turn, followed=None) for turn in turns], 0) is None


def test_turns_that_recur_within_one_game_alone_say_nothing():
    turns = games(0, hidden=1.0)
    own = [replace(turn, observation=f"{turn.game} {turn.observation}") for turn in turns]
    assert past_helps(own, 0) is None
    recurring = [turn for turn in turns if turn.game < 40]
    rare = [replace(turn, observation=f"{n}") for n, turn in enumerate(turns)] * 2
    assert past_helps(recurring, 0) is not None
    assert past_helps(recurring + rare, 0) is None  # less than a fifth of the turns are alike


def test_a_limit_of_turns_does_not_count_and_an_end_does():
    """At the limit a cell is followed by nothing, which depends on how long the past is."""
    assert groups(Grid()).past_helps is False
    assert groups(Ending()).past_helps is True


class Clock(Grid):
    """The key of a state has the number of the turn, too."""

    name = "clock"

    def state_key(self, state, role):
        return f"{state.at} {state.turns}"


class Secret(Base):
    """A hidden number decides which action is right; the state's key holds it."""

    name = "secret"

    def step(self, state, role, action, noise):
        after = replace(state, at=int(noise.integers(3)), turns=state.turns + 1)
        right = action == self.words[state.secret]
        return self.ended(after, right, over=after.turns == 5)

    def state_key(self, state, role):
        return f"{state.at} {state.secret}"


class Unasked(Secret):
    """The same hidden number, which decides nothing."""

    name = "unasked"

    def step(self, state, role, action, noise):
        return replace(super().step(state, role, action, noise), rewards={"right": 0.0})


class Turned(Secret):
    """The hidden number decides where one comes to."""

    name = "turned"

    def step(self, state, role, action, noise):
        found = super().step(state, role, action, noise)
        to = (state.at + state.secret) % 4
        return replace(found, state=replace(found.state, at=to), rewards={})


@pytest.mark.parametrize(
    ("kind", "helps"),
    [
        (Secret, True),
        (Turned, True),
        (Unasked, False),
        (Grid, False),  # the key is the observation
        (Clock, False),
        (Unique, False),
        (OneTurn, False),
        (Bandit, False),
    ],
)
def test_the_key_helps_where_it_tells_more_than_the_observation(kind, helps):
    for seed in range(3):
        assert groups(kind(), seed).key_helps is helps


def keyed(turns, key):
    return [replace(turn, key=key(number, turn)) for number, turn in enumerate(turns)]


def test_chance_deceives_in_no_run_where_the_key_has_a_clock():
    clock = lambda number, turn: f"{turn.observation} {len(turn.past)}"  # noqa: E731
    assert [key_helps(keyed(games(seed), clock), seed) for seed in range(30)] == 30 * [False]


def test_keys_that_are_all_equal_or_all_different_tell_nothing():
    turns = games(0, hidden=1.0)
    for key in (lambda number, turn: "", lambda number, turn: str(number)):
        assert key_helps(keyed(turns, key), 0) is False


def test_a_key_that_holds_what_decides_helps_in_every_run():
    """What came before decides half of the turns here, and is in the key."""
    last = lambda number, turn: str(turn.past[-1:])  # noqa: E731
    found = [key_helps(keyed(games(seed, hidden=0.5), last), seed) for seed in range(5)]
    assert found == 5 * [True]


def test_without_turns_that_are_alike_no_key_helps():
    assert key_helps([], 0) is False
    turns = keyed(games(0, hidden=1.0), lambda number, turn: str(turn.past[-1:]))
    assert key_helps([replace(turn, followed=None) for turn in turns], 0) is False
    own = [replace(turn, observation=f"{turn.game} {turn.observation}") for turn in turns]
    assert key_helps(own, 0) is False


def test_a_key_with_a_clock_helps_where_a_game_ends_by_it():
    """The ninth turn is the end: only the key tells how near it is."""

    class Timed(Ending):
        name = "timed"

        def state_key(self, state, role):
            return f"{state.at} {state.turns}"

    assert groups(Timed()).key_helps
