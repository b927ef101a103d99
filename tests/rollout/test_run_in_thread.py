"""Envs whose steps wait for something outside: side by side, and the same bits as one by one."""

import asyncio
import random
import threading
import time

import pytest

from turnwise.engines import ScriptedEngine, run
from turnwise.engines.base import Request
from turnwise.engines.loop import MOST_ASIDE
from turnwise.envs import FrozenLake, FrozenLakeConfig, guarded
from turnwise.errors import StuckEnvError
from turnwise.rollout.run_in_thread import run_in_thread
from turnwise.types import EpisodeId, Sampling, TurnId

OPEN = FrozenLakeConfig(map=("SFFF", "FFFF", "FFFF", "FFFG"), slippery=True)
MOVES = {"DOWN": 0.4, "RIGHT": 0.4, "UP": 0.2}


class Waiting(FrozenLake):
    """A lake whose steps wait as `wait` says."""

    blocking = True

    def __init__(self, wait):
        super().__init__(OPEN)
        self.wait = wait

    def step(self, state, role, action, noise):
        self.wait()
        return super().step(state, role, action, noise)


def test_steps_are_made_side_by_side(make_runner, table):
    meeting = threading.Barrier(8)  # nobody passes before all have come
    env = guarded(Waiting(lambda: meeting.wait(20)), timeout=30)
    episodes = make_runner(env, lambda request: {(1,): 1.0}).play(8)
    assert all(episode.error.kind == "parse" for episode in episodes)

    def once(request):
        return table({"DOWN": 1.0})(request) if request.id.turn == 0 else (1,)

    episodes = make_runner(env, once).play(8)
    assert [len(episode.turns) for episode in episodes] == [2] * 8


def test_episodes_are_those_of_an_env_that_does_not_wait(make_runner, table):
    def sometimes():
        time.sleep(random.random() * 0.01)

    script = table(MOVES)
    expected = make_runner(FrozenLake(OPEN), script, noise="independent")
    found = make_runner(Waiting(sometimes), script, noise="independent")
    assert found.play(4, visits=4) == expected.play(4, visits=4)
    asked = [request.id for request in found.engine.requests]
    assert asked == [request.id for request in expected.engine.requests]


def test_a_step_that_hangs_is_left_to_itself(make_runner, says):
    over = threading.Event()
    env = guarded(Waiting(lambda: over.wait(60)), timeout=0.1)
    began = time.monotonic()
    try:
        episodes = make_runner(env, says(["DOWN"])).play(2)
        assert all("did not return within 0.1 s" in episode.error.message for episode in episodes)
        with pytest.raises(StuckEnvError, match="3 times in a row"):
            make_runner(env, says(["DOWN"])).play(1)
    finally:
        over.set()
    assert time.monotonic() - began < 10


def test_what_a_step_raises_is_told(make_runner, says):
    def breaks():
        raise TimeoutError("the server is silent")

    (episode,) = make_runner(guarded(Waiting(breaks), timeout=5), says(["DOWN"])).play()
    assert "TimeoutError: the server is silent" in episode.error.message
    (episode,) = make_runner(Waiting(breaks), says(["DOWN"])).play()
    assert episode.error.message == "TimeoutError: the server is silent"


class Counting(ScriptedEngine):
    """An engine that knows which calls were aside when it worked."""

    def __init__(self, *, deterministic):
        super().__init__(lambda request: (1,))
        self.deterministic = deterministic
        self.steps = 0

    def advance(self):
        worked = super().advance()
        self.steps += worked
        return worked


@pytest.mark.parametrize("deterministic", [True, False])
def test_a_deterministic_engine_waits_for_them(deterministic):
    engine = Counting(deterministic=deterministic)
    turn = TurnId(
        episode=EpisodeId(iteration=0, visit=0, task="t", member=0), role="player", turn=0
    )
    asked = Request(id=turn, stream="train", policy="main", prompt_ids=(1, 2), sampling=Sampling())
    seen = []

    def call():
        time.sleep(0.2)
        seen.append(engine.steps)

    async def main():
        await asyncio.gather(run_in_thread(call), engine.generate(asked))

    run(main(), engine)
    assert seen == [0 if deterministic else 1]


def test_only_so_many_at_once():
    now, most, lock = 0, 0, threading.Lock()

    def call():
        nonlocal now, most
        with lock:
            now, most = now + 1, max(most, now + 1)
        time.sleep(0.01)
        with lock:
            now -= 1

    async def main():
        await asyncio.gather(*(run_in_thread(call) for _ in range(3 * MOST_ASIDE)))

    run(main(), ScriptedEngine(lambda request: (1,)))
    assert 1 < most <= MOST_ASIDE
