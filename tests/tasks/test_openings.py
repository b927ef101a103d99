"""The moves to the state in which an episode begins: as JSON, and made again with their noise."""

from __future__ import annotations

import json

import pytest

from turnwise.envs import FrozenLake, FrozenLakeConfig
from turnwise.errors import EnvError, IllegalActionError
from turnwise.rollout.draws import Draws
from turnwise.tasks.openings import length_of, opening_as_json, opening_from_json, replayed
from turnwise.types import EpisodeId, Moves, Task

OPEN = ("SFFF", "FFFF", "FFFF", "FFFG")
MAP = ("SFF", "FHF", "FFG")


def moves(words, *, iteration=1, visit=0, member=0, task="t"):
    episode = EpisodeId(iteration=iteration, visit=visit, task=task, member=member)
    return Moves(episode=episode, actions=tuple(("player", word) for word in words))


def lake(rows, *, slippery=False):
    return FrozenLake(FrozenLakeConfig(map=rows, slippery=slippery))


def task_of(env, limit=8):
    data = {"map": list(env.config.map), "slippery": env.config.slippery, "limit": limit}
    return Task(id="t", env=env.name, seed=0, data=data)


def draws(seed=0, *, common=True):
    return Draws(seed=seed, stream="train", common_noise=common).of_step


def played(env, opening, rule):
    """Return the state after an opening, step by step, as an episode makes its steps."""
    state = env.reset(task_of(env))
    for part in opening:
        for number, (seat, action) in enumerate(part.actions):
            state = env.step(state, seat, action, rule(part.episode, number)).state
    return state


OPENINGS = [
    (),
    (moves(["DOWN"]),),
    (moves(["DOWN", "UP"], iteration=3, visit=17, member=5), moves([], visit=1), moves(["LEFT"])),
    (Moves(episode=moves([]).episode, actions=(("ant-3", 'say "ü"\n'), ("ant-1", ""))),),
]


@pytest.mark.parametrize("opening", OPENINGS, ids=map(length_of, OPENINGS))
def test_an_opening_is_read_as_it_was_written(opening):
    text = json.dumps(opening_as_json(opening))
    assert opening_from_json(json.loads(text), "t") == opening


def test_the_task_of_an_opening_is_told_to_the_reader():
    opening = (moves(["DOWN"], task="lake-3"),)
    assert opening_from_json(opening_as_json(opening), "lake-3") == opening
    assert opening_from_json(opening_as_json(opening), "lake-4") != opening


def test_the_length_is_the_number_of_steps_of_all_parts():
    assert [length_of(opening) for opening in OPENINGS] == [0, 1, 3, 2]


def test_without_moves_an_episode_begins_in_the_first_state():
    env = lake(MAP)
    assert replayed(env, task_of(env), (), draws()) == env.reset(task_of(env))


def test_the_moves_are_made_in_order_and_watched_before_they_are():
    env = lake(MAP)
    opening = (moves(["DOWN", "DOWN"]), moves(["RIGHT"]))
    seen = []

    def watch(state, seat, action):
        seen.append((state.position, seat, action))

    state = replayed(env, task_of(env), opening, draws(), watch)
    assert seen == [(0, "player", "DOWN"), (3, "player", "DOWN"), (6, "player", "RIGHT")]
    assert (state.position, state.steps) == (7, 3)


@pytest.mark.parametrize("common", [True, False])
def test_the_noise_is_that_of_the_steps_of_the_episodes_that_made_the_moves(common):
    """On slippery ice: each part has the draws of its own episode, numbered from 0."""
    env, differ = lake(OPEN, slippery=True), set()
    for number in range(20):
        first = moves(["DOWN", "RIGHT"], iteration=number, visit=3, member=1)
        then = moves(["DOWN", "RIGHT", "DOWN"], iteration=number + 1, visit=8, member=2)
        opening, rule = (first, then), draws(common=common)
        state = replayed(env, task_of(env), opening, rule)
        assert state == played(env, opening, rule)
        every = ["DOWN", "RIGHT", "DOWN", "RIGHT", "DOWN"]  # too few to come to the goal
        joined = (moves(every, iteration=number, visit=3, member=1),)
        differ.add(state == replayed(env, task_of(env), joined, rule))
    assert False in differ, "the second part has other noise than the third step of the first"


def test_members_of_a_group_share_their_noise_or_do_not():
    env, words = lake(OPEN, slippery=True), ["DOWN", "RIGHT"] * 2

    def ends(*, common):
        return {
            replayed(env, task_of(env), (moves(words, member=member),), draws(common=common))
            for member in range(8)
        }

    assert len(ends(common=True)) == 1
    assert len(ends(common=False)) > 1


@pytest.mark.parametrize(
    ("words", "limit"),
    [
        (["RIGHT", "DOWN"], 8),  # a hole
        (["DOWN", "DOWN", "RIGHT", "RIGHT"], 8),  # the goal
        (["LEFT", "LEFT"], 2),  # the limit
    ],
)
def test_moves_that_end_the_episode_are_an_error_of_the_env(words, limit):
    env = lake(MAP)
    replayed(env, task_of(env, limit), (moves(words[:-1]),), draws())
    with pytest.raises(EnvError, match=rf"{words[-1]}.* and now it ended the episode: let `step`"):
        replayed(env, task_of(env, limit), (moves(words),), draws())


def test_moves_that_are_refused_are_an_error_of_the_env():
    class Closed(FrozenLake):
        def step(self, state, role, action, noise):
            if action == "DOWN":
                raise IllegalActionError("no way down")
            return super().step(state, role, action, noise)

    env = Closed(FrozenLakeConfig(map=MAP))
    with pytest.raises(EnvError, match="'DOWN' was played before .* and now no way down"):
        replayed(env, task_of(env), (moves(["RIGHT", "DOWN"]),), draws())
