"""The survey of an env: its groups, and envs that are slow, that raise, and that block."""

from __future__ import annotations

from dataclasses import dataclass, replace

import numpy as np
import pytest

import turnwise as tw
from turnwise.envs import hidden_state as hidden_module
from turnwise.envs import survey as survey_module
from turnwise.envs import survey_groups as groups_module
from turnwise.envs.survey import survey
from turnwise.envs.survey_groups import GROUP, GROUP_TURNS, REPEATED, SECONDS, TURNS
from turnwise.errors import BrokenEnvError, IllegalActionError, StuckEnvError
from turnwise.tasks import GeneratedTasks


@dataclass(frozen=True)
class At:
    cell: int
    turns: int = 0


class Line(tw.Env):
    """A walk to the right of `length` cells; the task's number is part of the state key."""

    name = "line"
    components = {"pay": "agent"}  # noqa: RUF012
    length = 4

    def generate(self, rng):
        return {"number": int(rng.integers(2**31))}

    def reset(self, task):
        return At(0)

    def observe(self, state, role):
        return tw.Observation(text=f"cell {state.cell}", legal_actions=("go", "stay"))

    def step(self, state, role, action, noise):
        after = At(state.cell + (action == "go"), state.turns + 1)
        over = after.cell == self.length
        return tw.Step(state=after, rewards={"pay": float(over)}, terminated=over, truncated=False)

    def score(self, state):
        return 0.0


class Lonely(Line):
    """No state is visited twice."""

    name = "lonely"

    def observe(self, state, role):
        return replace(super().observe(state, role), text=f"{state.cell} {state.turns}")

    def step(self, state, role, action, noise):
        found = super().step(state, role, "go", noise)
        return replace(found, state=At(found.state.cell, int(noise.integers(2**31))))


def tasks_of(env, count=100):
    return GeneratedTasks(env, "train", seed=0).take(count)


def survey_of(env, count=100):
    return survey(env, tasks_of(env, count), seed=0)


def test_the_length_of_episodes_is_their_mean():
    groups = survey_of(Line()).groups
    assert groups.length == pytest.approx(8, rel=0.05)  # each step takes two turns in the mean
    assert survey_of(Lonely()).groups.length == 4


def test_states_recur_within_a_group_by_their_key():
    assert survey_of(Line()).groups.recurring > 0.9
    assert survey_of(Lonely()).groups.recurring == 0

    class OtherKey(Lonely):
        def state_key(self, state, role):
            return str(state.cell)

    assert survey_of(OtherKey()).groups.recurring == 1


def test_states_of_other_tasks_do_not_count():
    """Each episode of a group has states of its own, which are met again in the other groups."""

    class Counted(Line):
        """Each episode of a group counts its turns from another number, the same in all groups."""

        episodes = 0

        def reset(self, task):
            self.episodes += 1
            return At(0, 1000 * (self.episodes % GROUP))

        def state_key(self, state, role):
            return f"{state.cell} {state.turns}"

    groups = survey_of(Counted()).groups
    assert groups.recurring == 0


def test_the_survey_is_a_function_of_the_seed():
    """But for the time that it takes."""
    one, other = survey_of(Line()), survey_of(Line())
    assert 0 < one.groups.seconds < 0.01
    timeless = [replace(each, groups=replace(each.groups, seconds=0.0)) for each in (one, other)]
    assert timeless[0] == timeless[1]


def test_no_more_than_the_wanted_turns_are_played_in_groups():
    resets = []

    class Long(Line):
        length = 1000

        def reset(self, task):
            resets.append(task.id)
            return super().reset(task)

    groups = survey_of(Long()).groups
    assert groups.length == TURNS
    in_groups = GROUP * -(-GROUP_TURNS // (GROUP * TURNS))
    assert len(resets[1 + 32 + 2 :]) == in_groups + 2 * REPEATED


class Clock:
    """Seconds that pass only in the env."""

    def __init__(self):
        self.now = 100.0

    def perf_counter(self):
        return self.now


@pytest.mark.parametrize("blocking", [False, True])
@pytest.mark.parametrize("length", [4, 1000])
@pytest.mark.parametrize("where", ["reset", "step"])
def test_a_slow_env_is_surveyed_for_less_than_ten_seconds(monkeypatch, blocking, length, where):
    clock = Clock()
    for module in (survey_module, groups_module, hidden_module):
        monkeypatch.setattr(module, "time", clock)

    class Slow(Line):
        def reset(self, task):
            clock.now += 0.5 if where == "reset" else 0
            return super().reset(task)

        def step(self, state, role, action, noise):
            clock.now += 0.1 if where == "step" else 0
            return super().step(state, role, action, noise)

    env = Slow()
    env.blocking, env.length = blocking, length
    found = survey_of(env)
    assert clock.now - 100 <= 2 * SECONDS + 2
    assert clock.now - 100 < 10
    assert found.games
    assert found.groups.length > 1
    assert found.groups.past_helps is None or where == "reset"


def test_an_episode_that_ran_out_of_time_has_not_ended(monkeypatch):
    clock = Clock()
    for module in (survey_module, groups_module, hidden_module):
        monkeypatch.setattr(module, "time", clock)

    class Slow(Line):
        length = 20

        def step(self, state, role, action, noise):
            clock.now += SECONDS / 10
            return super().step(state, role, action, noise)

    found = survey_of(Slow())
    assert [len(game.words) for game in found.games] == [10]


class Fragile(Line):
    """It raises in the third turn of every other task."""

    name = "fragile"
    error: type[Exception] = BrokenEnvError

    def reset(self, task):
        return At(0, 1000 * (task.data["number"] % 2))

    def step(self, state, role, action, noise):
        if state.turns == 1002:
            raise self.error("broken")
        return super().step(state, role, action, noise)


@pytest.mark.parametrize("error", [BrokenEnvError, IllegalActionError])
def test_an_error_ends_the_episode_and_not_the_survey(error):
    env = Fragile()
    env.error = error
    found = survey_of(env)
    assert 2 < found.groups.length < 8
    lengths = {len(game.words) for game in found.games}
    assert {3, TURNS} <= lengths  # of broken ones, and of one that always stays
    env.error = StuckEnvError
    with pytest.raises(StuckEnvError):
        survey_of(env)


def test_the_first_task_that_begins_is_seen():
    class Late(Line):
        resets = 0
        breaks = 2

        def reset(self, task):
            self.resets += 1
            if self.resets <= self.breaks:
                raise BrokenEnvError("broken")
            return super().reset(task)

    assert survey_of(Late()).first.text == "cell 0"
    never = Late()
    never.breaks = 10**6
    with pytest.raises(BrokenEnvError, match="broken"):
        survey_of(never)


def test_an_env_that_breaks_at_once_has_no_groups():
    env = Fragile()
    broken = replace(survey_of(env).groups)

    class Never(Line):
        def step(self, state, role, action, noise):
            raise BrokenEnvError("broken")

    groups = survey_of(Never()).groups
    assert (groups.length, groups.recurring, groups.past_helps) == (1.0, 0.0, None)
    assert broken.length > 1


def test_a_blocking_env_plays_one_group():
    resets = []

    class Waiting(Line):
        blocking = True

        def reset(self, task):
            resets.append(task.id)
            return super().reset(task)

    found = survey_of(Waiting())
    assert len(resets) == 1 + 4 + GROUP
    assert len(set(resets[-GROUP:])) == 1
    assert found.groups.recurring > 0.5
    assert found.groups.past_helps is None, "some dozen turns tell nothing"


class Pair(Line):
    """Two seats walk in turn; the second one's turns are paid to the first one's last turn."""

    name = "pair"
    roles = ("one", "two")

    def acting(self, state):
        return (self.roles[state.turns % 2],)

    def observe(self, state, role):
        return replace(super().observe(state, role), text=f"{role} at {state.cell}")

    def step(self, state, role, action, noise):
        found = super().step(state, role, action, noise)
        return replace(found, rewards={"pay": 1.0 if role == "two" else 0.5})


def test_each_seat_has_its_own_past_and_the_rewards_until_its_next_turn():
    env = Pair()
    rng = np.random.default_rng(0)
    turns = list(groups_module._turns(env, tasks_of(env, 1)[0], rng, np.inf))
    found = groups_module._seen_turns(turns, 3)
    assert len(found) == len(turns)
    for turn in found:
        seat = turn.observation.partition("\n")[0]
        assert all(seen.startswith(seat) for seen, _ in turn.past)
        assert turn.followed is not None
        rewards, after = turn.followed
        assert after is None or after.startswith(seat)
        if after is not None:
            assert rewards == (("pay", 1.5),)
    lasts = [turn for turn in found if turn.followed and turn.followed[1] is None]
    assert len(lasts) == 2
    assert [turn.game for turn in found] == [3] * len(found)


def repeats(kind):
    return survey_of(kind()).groups.repeats


class Slipping(Line):
    """Some steps do not move, as the noise says."""

    def step(self, state, role, action, noise):
        found = super().step(state, role, action, noise)
        return found if noise.random() < 0.5 else replace(found, state=state, terminated=False)


def test_games_repeat_where_noise_and_actions_decide_all():
    assert repeats(Line)
    assert repeats(Lonely)
    assert repeats(Slipping)
    assert repeats(Pair)
    assert survey_of(tw.make_env("frozen-lake")).groups.repeats


class Counting(Line):
    """It shows how many games it has been through."""

    games = 0

    def reset(self, task):
        self.games += 1
        return super().reset(task)

    def observe(self, state, role):
        return replace(super().observe(state, role), text=f"game {self.games}")


class OwnChance(Line):
    """It draws its own random numbers."""

    chance = np.random.default_rng(0)

    def step(self, state, role, action, noise):
        found = super().step(state, role, action, noise)
        return found if self.chance.random() < 0.5 else replace(found, state=state)


class Secretly(Line):
    """The number of steps that were ever made is in the key of a state, and is not shown."""

    made = 0

    def step(self, state, role, action, noise):
        self.made += 1
        found = super().step(state, role, action, noise)
        return replace(found, state=At(found.state.cell, self.made))

    def state_key(self, state, role):
        return str(state)


class Shorter(Line):
    """Every second game is shorter."""

    games = 0

    def reset(self, task):
        self.games += 1
        self.length = 3 if self.games % 2 else 4
        return super().reset(task)


@pytest.mark.parametrize("kind", [Counting, OwnChance, Secretly, Shorter])
def test_games_do_not_repeat_where_the_env_remembers_or_draws_for_itself(kind):
    assert not repeats(kind)


@pytest.mark.parametrize(
    ("name", "value", "asked"),
    [("branching", "none", False), ("branching", "replay", True), ("blocking", True, False)],
)
def test_games_that_cannot_go_back_or_wait_for_something_are_not_asked(name, value, asked):
    env = Line()
    setattr(env, name, value)
    assert survey_of(env).groups.repeats == asked


@pytest.mark.parametrize("error", [BrokenEnvError, IllegalActionError])
def test_games_that_break_in_the_same_place_repeat(error):
    env = Fragile()
    env.error = error
    assert survey_of(env).groups.repeats


def test_the_time_of_a_turn_is_that_of_the_groups(monkeypatch):
    clock = Clock()
    for module in (survey_module, groups_module, hidden_module):
        monkeypatch.setattr(module, "time", clock)

    class Slow(Line):
        def step(self, state, role, action, noise):
            clock.now += 0.001
            return super().step(state, role, action, noise)

    assert survey_of(Slow()).groups.seconds == pytest.approx(0.001)
