"""Envs whose steps run programs in the sandbox."""

from __future__ import annotations

from turnwise.envs import FrozenLake
from turnwise.errors import SandboxError
from turnwise.sandbox import Job, Limits
from turnwise.types import Failure

WINNING = ("DOWN", "DOWN", "RIGHT", "RIGHT")
SHORT = Limits(cpu=0.2, wall=5.0)


class Computed(FrozenLake):
    """A lake on which a program says whether the ice is there: a world that waits for answers."""

    blocking = True
    runs_programs = True

    def __init__(self, config, sandbox):
        super().__init__(config)
        self.sandbox = sandbox

    def step(self, state, role, action, noise):
        job = Job(program="result = len(word)", inputs={"word": action}, limits=SHORT)
        result = self.sandbox.submit(job).result()
        assert result.value == len(action), result
        return super().step(state, role, action, noise)


class Away:
    """A sandbox that fails in some of its runs."""

    def __init__(self, sandbox, failing):
        self.sandbox, self.failing, self.asked = sandbox, failing, 0

    def submit(self, job):
        self.asked += 1
        if self.asked in self.failing:
            raise SandboxError("no worker is left")
        return self.sandbox.submit(job)


def test_steps_that_run_programs_lead_where_others_do(make_runner, lake, says, isolated):
    plain = make_runner(lake, says(WINNING)).play(samples=4)
    assert make_runner(Computed(lake.config, isolated), says(WINNING)).play(samples=4) == plain


def test_a_sandbox_that_fails_is_tried_again_with_the_same_noise(make_runner, lake, says, isolated):
    plain = make_runner(lake, says(WINNING)).play(samples=2)
    env = Computed(lake.config, Away(isolated, failing={3, 6}))
    assert make_runner(env, says(WINNING)).play(samples=2) == plain


def test_a_sandbox_that_keeps_failing_costs_the_episode_and_nobody_is_to_blame(
    make_runner, lake, says, isolated
):
    env = Computed(lake.config, Away(isolated, failing=range(1, 999)))
    (episode,) = make_runner(env, says(WINNING)).play()
    assert episode.broken and episode.error == Failure(kind="engine", message="no worker is left")
