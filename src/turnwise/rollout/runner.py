"""From a task to an episode, and from an iteration's visits to all of its episodes.

Owns the one rollout core that training and evaluation share, and the project's only exception
boundary: a failed episode is recorded with its typed error and never kills its siblings; only an
env whose calls hang again and again ends them all. Knows nothing of advantages, losses or weights.
"""

from __future__ import annotations

import asyncio
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from typing import Any, Literal

from turnwise.agents import AgentConfig
from turnwise.engines.base import Engine
from turnwise.engines.loop import run
from turnwise.envs.base import Env, Step
from turnwise.errors import EngineError, StuckEnvError
from turnwise.rollout.seat import (
    EpisodeOver,
    Place,
    RendererLike,
    RolloutSeat,
    env_failure,
)
from turnwise.types import Episode, Failure, Stream, Task, Trajectory
from turnwise.workflows.base import Workflow

NoiseRule = Literal["common", "independent"]
RETRIES = 2
REPLIES = ("parse", "illegal_action")
"""Failures that end an episode as a fall does: the reply was no action."""


@dataclass(frozen=True, kw_only=True, slots=True)
class Play:
    """One episode to be played: which task, which visit of it, which member of the group."""

    iteration: int
    visit: int
    task: Task
    sample: int


class Runner:
    """Plays episodes of one env with one workflow over one engine."""

    def __init__(
        self,
        *,
        env: Env[Any],
        workflow: Workflow,
        agents: Mapping[str, AgentConfig],
        renderers: Mapping[str, RendererLike],
        engine: Engine,
        seed: int,
        noise: NoiseRule = "common",
    ) -> None:
        self.env, self.engine = env, engine
        self._workflow, self._agents, self._renderers = workflow, agents, renderers
        self._seed, self._common = seed, noise == "common"

    def collect(
        self, plays: Sequence[Play], stream: Stream, *, greedy: bool = False
    ) -> list[Episode]:
        """Play all of `plays` side by side; return their episodes in the same order.

        Raises:
            StuckEnvError: if an env under guard does not return again and again.
        """

        async def everything() -> list[Episode]:
            return await asyncio.gather(*(self.play(play, stream, greedy) for play in plays))

        return run(everything(), self.engine)

    async def play(self, play: Play, stream: Stream, greedy: bool = False) -> Episode:
        """Play one episode; an infrastructure failure is retried with the same noise."""
        episode = await self._attempt(play, stream, greedy)
        for _ in range(RETRIES):
            if episode.error is None or episode.error.kind != "engine":
                break
            episode = await self._attempt(play, stream, greedy)
        return episode

    async def _attempt(self, play: Play, stream: Stream, greedy: bool) -> Episode:
        place = Place(
            seed=self._seed,
            stream=stream,
            iteration=play.iteration,
            visit=play.visit,
            task=play.task.id,
            sample=play.sample,
            common_noise=self._common,
        )
        seats = {role: self._seat(role, place, greedy) for role in self._agents}
        step: Step[Any] | None = None
        error: Failure | None = None
        score = 0.0
        try:
            step = await self._workflow(seats, self.env.reset(play.task))
            score = self.env.score(step.state)
        except EpisodeOver as over:
            error = over.failure
        except EngineError as cause:
            error = Failure(kind="engine", message=str(cause))
        except StuckEnvError:  # every further episode would wait as long
            raise
        except Exception as cause:  # the one boundary: an env or workflow that raises is data
            error = env_failure(cause)
        return Episode(
            task=play.task,
            iteration=play.iteration,
            visit=play.visit,
            sample=play.sample,
            trajectories=tuple(
                Trajectory(role=role, turns=tuple(seat.turns)) for role, seat in seats.items()
            ),
            terminated=step.terminated if step else error is not None and error.kind in REPLIES,
            truncated=step.truncated if step else error is not None and error.kind == "context",
            score=score,
            error=error,
        )

    def _seat(self, role: str, place: Place, greedy: bool) -> RolloutSeat:
        config = self._agents[role]
        return RolloutSeat(
            role=role,
            config=config,
            sampling=config.sampling(greedy=greedy),
            env=self.env,
            engine=self.engine,
            renderer=self._renderers[config.policy],
            place=place,
        )
