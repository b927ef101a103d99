"""What observations hide, and whether the past helps: envs in which it does and does not."""

from __future__ import annotations

from dataclasses import dataclass, replace

import numpy as np
import pytest

import turnwise as tw
from turnwise.credit.state_values import PRIOR as CREDIT_PRIOR
from turnwise.envs import survey_groups
from turnwise.envs.guard import guarded
from turnwise.envs.hidden_state import Visit, hidden_share, rounded
from turnwise.envs.past_helps import NOT_COMPARED, SURE, SeenTurn, past_excess, past_helps
from turnwise.envs.survey import survey
from turnwise.envs.survey_groups import PRIOR
from turnwise.errors import IllegalActionError
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
                SeenTurn(
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


class Told(Secret):
    """The key holds all that decides, the number of the turn as well."""

    name = "told"

    def state_key(self, state, role):
        return f"{state.at} {state.secret} {state.turns}"


class Turned(Secret):
    """The hidden number decides where one comes to."""

    name = "turned"

    def step(self, state, role, action, noise):
        found = super().step(state, role, action, noise)
        to = (state.at + state.secret) % 4
        return replace(found, state=replace(found.state, at=to), rewards={})


class Code(Base):
    """A code of two letters is guessed; only the last answer is shown."""

    name = "code"
    words = tuple(a + b for a in "abcd" for b in "abcd")

    def generate(self, rng):
        return {"secret": int(rng.integers(16)), "seed": int(rng.integers(2**31))}

    def text(self, state):
        return state.said or "guess"

    def step(self, state, role, action, noise):
        code = self.words[state.secret]
        said = f"{sum(a == b for a, b in zip(code, action, strict=True))} right"
        after = replace(state, said=said, turns=state.turns + 1)
        return self.ended(after, action == code, over=action == code or after.turns == 5)


class Maps(Base):
    """Every task has a map of its own, which is not seen; the key is the place on it."""

    name = "maps"

    def generate(self, rng):
        return {"secret": int(rng.integers(1, 4)), "seed": int(rng.integers(2**31))}

    def text(self, state):
        return "somewhere"

    def state_key(self, state, role):
        return str(state.at)

    def step(self, state, role, action, noise):
        to = (state.at + state.secret * (1 + self.words.index(action))) % 5
        after = replace(state, at=to, turns=state.turns + 1)
        return self.ended(after, to == 4, over=to == 4, cut=after.turns == 9)


class Refusing(Base):
    """In some states an action is refused, which is not seen."""

    name = "refusing"

    def step(self, state, role, action, noise):
        if state.secret == 0 and action == "a":
            raise IllegalActionError("not here")
        return self.ended(replace(state, turns=state.turns + 1), False, over=state.turns == 3)


@pytest.mark.parametrize(
    ("kind", "shown", "key"),
    [
        (Shown, True, True),
        (Grid, False, False),  # a cut by a limit says nothing
        (Ending, True, True),
        (Clock, False, False),
        (Guess, True, True),  # the fourth try is the last, which is not seen
        (Code, True, True),
        (Bandit, False, False),
        (OtherBandit, True, True),
        (Secret, True, True),
        (Told, True, False),
        (Turned, True, True),
        (Maps, True, True),
        (OneTurn, False, False),
        (TwoHands, True, True),
        (Refusing, True, True),
    ],
)
def test_states_that_look_alike_and_behave_differently_are_found(kind, shown, key):
    for seed in range(3):
        found = groups(kind(), seed)
        assert (found.hidden > 0.01) is shown
        if not shown:
            assert found.hidden == 0
        assert key or found.hidden_by_key == 0


class Noted(Guess):
    """Every observation holds all turns before it."""

    name = "noted"

    def step(self, state, role, action, noise):
        found = super().step(state, role, action, noise)
        said = f"{state.said} {action} {found.state.said}".strip()
        return replace(found, state=replace(found.state, said=said))


def test_observations_that_hold_the_past_are_found():
    assert [groups(kind()).shows_past for kind in (Noted, Guess, Code, Grid)] == [True] + 3 * [
        False
    ]
    assert not groups(Unique()).shows_past  # no observation is seen twice
    assert groups(Noted()).hidden > 0.01


def test_keys_that_tell_states_apart_are_finer():
    assert [groups(kind()).finer_keys for kind in (Secret, Clock, Maps)] == [True, True, True]
    assert [groups(kind()).finer_keys for kind in (Grid, Code)] == [False, False]


def test_what_cannot_be_compared_is_not_known():
    class Once(Grid):
        branching = "none"

    for kind in (Unique, Once):
        found = groups(kind())
        assert found.hidden is None
        assert found.hidden_by_key is None
    few = survey(Grid(), GeneratedTasks(Grid(), "train", seed=0).take(1), seed=0).groups
    assert few.hidden is None  # one task: what is hidden may be the same in all of its games


def test_a_rare_state_that_hides_something_is_found():
    """The hidden number decides in one state of forty, the last one."""

    class Late(Base):
        name = "late"

        def text(self, state):
            return "now" if state.turns == 39 else "wait"

        def step(self, state, role, action, noise):
            after = replace(state, turns=state.turns + 1)
            right = after.turns == 40 and action == self.words[state.secret]
            return self.ended(after, right, over=after.turns == 40)

    assert groups(Late()).hidden > 0.01


def test_values_are_known_where_states_recur():
    assert groups(Grid()).known > 0.9
    assert groups(Unique()).known < 0.1  # first states alone recur
    assert groups(Clock()).known_by_key < groups(Clock()).known
    assert PRIOR == CREDIT_PRIOR


class Doors(Base):
    """A door is chosen and shown once; it decides all rewards. Other readings never recur."""

    name = "doors"

    def step(self, state, role, action, noise):
        turns, door = state.turns + 1, state.at
        if state.turns == 0:
            door = self.words.index(action)
        right = turns > 2 and action == self.words[door]
        said = f"door {door}" if turns == 1 else f"reading {noise.random()}"
        after = replace(state, at=door, turns=turns, said=said)
        return self.ended(after, right, over=turns == 8)

    def text(self, state):
        return state.said or "choose"


class Session(Base):
    """A simulator that holds one game: only the state that it is in can be stepped."""

    name = "session"

    def reset(self, task):
        self.now = World(task.data["secret"])
        return self.now

    def step(self, state, role, action, noise):
        if state is not self.now:
            raise RuntimeError("this state is over")
        self.now = replace(state, at=int(noise.integers(3)), turns=state.turns + 1)
        right = action == self.words[state.secret]
        return self.ended(self.now, right, over=self.now.turns == 5)


class AtOnce(Base):
    """Two seats choose at once, and neither sees what the other has chosen; then both are shown."""

    name = "at-once"
    words = ("rock", "paper", "scissors")
    seats = {"first": "player", "second": "player"}  # noqa: RUF012

    def acting(self, state):
        return ("second",) if "," in state.said else ("first", "second")

    def text(self, state):
        return f"round {state.turns} {state.at}"

    def step(self, state, role, action, noise):
        if role == "first":
            return self.ended(replace(state, said=f"{action},"), False, over=False)
        one, other = (self.words.index(word) for word in (state.said[:-1], action))
        after = replace(state, said="", at=3 * one + other, turns=state.turns + 1)
        return self.ended(after, (one - other) % 3 == 1, over=after.turns == 8)


class Paid(Base):
    """Three seats are paid sums of 0 in one order or another, which nothing shows or needs."""

    name = "paid"
    seats = {"one": "player", "two": "player", "three": "player"}  # noqa: RUF012

    def acting(self, state):
        return (("one", "two", "three")[state.turns % 3],)

    def text(self, state):
        return f"turn {state.turns}"

    def step(self, state, role, action, noise):
        pays = ((0.1, 0.2, -0.3), (0.1, -0.1, 0.0))[state.secret % 2]
        after = replace(state, turns=state.turns + 1)
        over = after.turns == 9
        rewards = {"right": pays[state.turns % 3]}
        return tw.Step(state=after, rewards=rewards, terminated=over, truncated=False)


def test_a_few_states_that_recur_do_not_tell_of_the_others():
    found = groups(Doors())
    assert found.recurring > 0
    assert found.hidden is None
    assert not found.shows_past


def test_states_that_cannot_be_stepped_again_are_not_alike():
    assert groups(guarded(Session(), timeout=60)).hidden is None


def test_seats_that_move_at_once_hide_nothing():
    found = groups(AtOnce())
    assert (found.hidden, found.hidden_by_key) == (0, 0)
    assert (found.length, found.seats, found.own_length) == (16, 2, 8)


def test_sums_of_rewards_in_another_order_are_equal():
    """Until a seat acts again, the sum of all pays is 0 in one and 5e-17 in the other."""
    assert rounded({"a": 0.1 + 0.2 - 0.3}) == rounded({"a": 0.1 - 0.1}) == ()
    assert rounded({"b": -1.0, "a": 2.0}) == (("a", 2.0), ("b", -1.0))
    visits = [
        Visit(
            game=game,
            task=game,
            label=turns,
            seat="one",
            action="a",
            first=not turns,
            state=World(game, turns=turns),
        )
        for game in range(120)
        for turns in (0, 3)
    ]
    assert hidden_share(Paid(), visits, 0) == 0


class OwnReward(Grid):
    """What a step pays depends on how often the env was stepped."""

    name = "own-reward"
    count = 0

    def step(self, state, role, action, noise):
        self.count += 1
        found = super().step(state, role, action, noise)
        return replace(found, rewards={"right": float(self.count)})


def test_an_env_repeats_only_if_rewards_do_and_something_was_compared(monkeypatch):
    assert groups(Grid()).repeats
    assert not groups(OwnReward()).repeats
    monkeypatch.setattr(survey_groups, "REPEATING", -1.0)
    assert not groups(Grid()).repeats


class Endless(Grid):
    """It ends with 1 % of its steps; the cap is 1,000 turns."""

    name = "endless"
    max_turns = 1000
    chance = 0.01

    def step(self, state, role, action, noise):
        after = replace(state, turns=state.turns + 1)
        return self.ended(after, False, over=noise.random() < self.chance)


def test_the_length_of_games_that_were_left_is_estimated():
    assert 60 < groups(Endless()).length < 160  # and not the mean of at most 100 turns, about 63
    env = Endless()
    env.chance = 0.0
    assert groups(env).length == 1000


def test_the_length_of_games_that_had_no_time_to_end_is_a_guess():
    assert survey_groups._mean_length([3], 1, 100) == 6
    assert survey_groups._mean_length([3], 1, 4) == 4
    assert survey_groups._mean_length([], 0, 100) == 1


class Coloured(Grid):
    """Each task has a house whose colour is shown and decides nothing; keys do not hold it."""

    name = "coloured"

    def reset(self, task):
        return World(task.data["seed"] % 2, at=task.data["secret"])

    def text(self, state):
        return f"the {self.words[state.secret]} house, {super().text(state)}"

    def state_key(self, state, role):
        return super().text(state)


def test_keys_hide_nothing_that_only_texts_show():
    assert groups(Grid()).hidden_by_key == 0
    assert groups(Coloured()).hidden_by_key == 0


def test_an_end_of_which_nothing_is_known_is_not_compared():
    """The end of games of two turns depends on their number, which the past tells."""
    rng, ends = np.random.default_rng(0), {"told": (True, ""), "not told": NOT_COMPARED}
    for what, end in ends.items():
        turns = []
        for game in range(200):
            past = ()
            for step in range(2):
                action = "ab"[rng.integers(2)]
                after = end if step else (False, "same")
                followed = ((), after)
                turns.append(
                    SeenTurn(
                        game=game, observation="same", action=action, followed=followed, past=past
                    )
                )
                past = (*past, ("same", action))
        found = past_excess(turns, 0)
        assert (found > SURE) == (what == "told"), (what, found)
