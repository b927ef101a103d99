"""Two seats of one role in one episode: who is recorded where, and in which round."""

from __future__ import annotations

import time
from dataclasses import replace

import pytest

from turnwise.envs import FrozenLake, FrozenLakeConfig, guarded
from turnwise.envs.relay import Relay, RelayConfig
from turnwise.types import Media, Prompt, Task, TaskVisit

LEGS = 3
TASK = Task(id="t", env="relay", seed=0, data={"treasures": [[0, 0]] * LEGS})
WORDS = {"scout": "bim", "digger": "r0 c0"}


@pytest.fixture
def relay(make_runner, renderer):
    """An episode of three legs, and the engine's requests."""

    def script(request):
        return renderer.completion_ids(f"<answer> {WORDS[request.id.role]} </answer>")

    made = make_runner(Relay(RelayConfig(size=2, legs=LEGS, roles="one")), script)
    (episode,) = made.runner.collect([TaskVisit(iteration=0, visit=0, task=TASK)], "train")
    assert episode.error is None and episode.score == 1.0
    return episode, made.engine.requests


def test_a_seat_counts_its_own_calls_and_the_episode_its_rounds(relay):
    episode, requests = relay
    expected = [(seat, leg, leg) for leg in range(LEGS) for seat in WORDS]
    assert [(r.id.role, r.id.turn, r.id.round) for r in requests] == expected
    turns = sorted(episode.turns, key=lambda turn: turn.order)
    assert [turn.order for turn in turns] == list(range(2 * LEGS))
    assert [turn.id for turn in turns] == [request.id for request in requests]


def test_a_trajectory_has_the_role_of_its_seat(relay):
    episode, _ = relay
    names = [(each.role, each.seat, len(each.turns)) for each in episode.trajectories]
    assert names == [("player", "scout", LEGS), ("player", "digger", LEGS)]
    assert {turn.id.role for turn in episode.trajectories[1].turns} == {"digger"}


class Shown(FrozenLake):
    """Shows a picture of each position."""

    def observe(self, state, role):
        picture = Media(kind="image/png", data=self.state_key(state, role).encode())
        return replace(super().observe(state, role), media=(picture,))


class Sees:
    """A renderer of a model that takes pictures beside its tokens."""

    def __init__(self, renderer):
        self._renderer = renderer

    def __getattr__(self, name):
        return getattr(self._renderer, name)

    def prompt_ids(self, prompt):
        return self._renderer.prompt_ids(Prompt(messages=prompt.messages))


def test_what_an_agent_is_shown_is_part_of_its_request_and_of_its_turn(make_runner, renderer, says):
    env = Shown(FrozenLakeConfig(map=("SFF", "FHF", "FFG")))
    made = make_runner(env, says(["DOWN", "DOWN", "RIGHT", "RIGHT"]), renderer=Sees(renderer))
    (episode,) = made.play()
    assert episode.error is None and len(episode.turns) == 4
    shown = [turn.media for turn in episode.turns]
    assert len(set(shown)) == 4 and all(len(media) == 1 for media in shown)
    assert [request.media for request in made.engine.requests] == shown
    assert [request.prompt_key.media for request in made.engine.requests] == shown


def test_a_step_that_did_not_return_in_time_is_not_waited_for_again(make_runner, says):
    made = []

    class Hangs(FrozenLake):
        blocking = True

        def step(self, state, role, action, noise):
            made.append(1)
            time.sleep(0.3)

    env = guarded(Hangs(FrozenLakeConfig(map=("SFF", "FHF", "FFG"))), timeout=0.05)
    (episode,) = make_runner(env, says(["DOWN"])).play()
    assert episode.broken and "did not return within 0.05 s" in episode.error.message
    assert len(made) == 1
