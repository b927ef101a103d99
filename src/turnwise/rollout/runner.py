"""From a task to an episode, and from an iteration's visits to all of its episodes.

Owns the one rollout core that training and evaluation share, and the project's only exception
boundary: a failed episode is recorded with its typed error and never kills its siblings; only an
env whose calls hang again and again ends them all. Knows nothing of advantages, losses or weights.
"""

from __future__ import annotations

import asyncio
import traceback
from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass, replace
from itertools import count
from pathlib import Path
from typing import Any, Literal

from turnwise.agents import AgentConfig
from turnwise.credit.returns import mix_rewards
from turnwise.engines.base import Engine
from turnwise.engines.loop import run
from turnwise.envs.base import Env, Settlement, Step
from turnwise.errors import (
    EngineError,
    RewardError,
    SandboxError,
    SlowEnvError,
    StuckEnvError,
    TurnwiseError,
)
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
CAPPED = "rollout/capped_share"
PACKAGE = Path(__file__).parents[1]
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
    """Plays episodes of one env with one workflow over one engine.

    `weights` of reward components make the score of an env that is `scored_by = "return"`, 0 where
    an episode was broken, as everywhere;
    `iterations` is how many the run is to have, for judges whose rewards change with time.
    """

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
        weights: Mapping[str, float] | None = None,
        iterations: int = 0,
    ) -> None:
        self.env, self.engine = env, engine
        self._weights, self._iterations = weights or {}, iterations
        self._judged: dict[str, list[float]] = {}
        self._capped_said = False
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
            played = await asyncio.gather(*(self.play(play, stream, greedy) for play in plays))
            return await self._settled(played, stream)

        return run(everything(), self.engine)

    def take_metrics(self) -> dict[str, float]:
        """Return means over what was measured of training episodes since the last call.

        `rollout/capped_share`, the share of episodes cut at the env's cap on turns, and what
        judges measured.
        """
        found, self._judged = self._judged, {}
        return {name: sum(values) / len(values) for name, values in found.items()}

    def take_warning(self, metrics: Mapping[str, float]) -> str | None:
        """Return a sentence if episodes were cut at the cap on turns, the first time only."""
        share = metrics.get(CAPPED, 0.0)
        if not share or self._capped_said:
            return None
        self._capped_said = True
        return (
            f"{share:.0%} of the episodes were cut after {self.env.turn_cap()} turns, the cap of "
            f"{self.env.name}: let the env end them, or set env.max_turns"
        )

    async def _settled(self, episodes: list[Episode], stream: Stream) -> list[Episode]:
        """Add the rewards that are found for a whole batch (`Env.settle`), and the scores."""
        ended = [place for place, episode in enumerate(episodes) if episode.error is None]
        try:
            found = await self.env.settle([episodes[i] for i in ended], self._iterations)
        except TurnwiseError:
            raise
        except Exception as cause:  # code of the user's that fails for a batch fails for the next
            raise RewardError(
                f"{self.env.name}: finding the rewards raised {type(cause).__name__}: {cause} "
                f"({_line_of(cause)}): mend it; the run can go on from its last checkpoint"
            ) from cause
        if found is not None:
            for number, place in enumerate(ended):
                episodes[place] = settled(episodes[place], found, number)
            for name, value in found.metrics.items() if stream == "train" else ():
                self._judged.setdefault(name, []).append(value)
        if self.env.scored_by == "return":
            return [replace(e, score=0.0 if e.broken else self._return_of(e)) for e in episodes]
        return episodes

    def _return_of(self, episode: Episode) -> float:
        return sum(mix_rewards(turn.rewards, self._weights) for turn in episode.turns)

    async def play(self, play: Play, stream: Stream, greedy: bool = False) -> Episode:
        """Play one episode; a failure of the infrastructure is retried with the same noise.

        That is the engine's, and what an env raises that waits for something outside: the others
        would fail in the same way again, and what did not return in time has cost enough of it.
        """
        episode, passing = await self._attempt(play, stream, greedy)
        for _ in range(RETRIES):
            if not passing:
                break
            episode, passing = await self._attempt(play, stream, greedy)
        return episode

    async def _attempt(self, play: Play, stream: Stream, greedy: bool) -> tuple[Episode, bool]:
        """Play an episode once; return it, and whether it may go better another time."""
        place = Place(
            seed=self._seed,
            stream=stream,
            iteration=play.iteration,
            visit=play.visit,
            task=play.task.id,
            sample=play.sample,
            common_noise=self._common,
        )
        steps = count()
        seats = {role: self._seat(role, place, greedy, steps) for role in self._agents}
        step: Step[Any] | None = None
        error: Failure | None = None
        score, passing = 0.0, False
        try:
            step = await self._workflow(seats, self.env.reset(play.task))
            score = self.env.score(step.state)
        except EpisodeOver as over:
            error = over.failure
        except (EngineError, SandboxError) as cause:
            error, passing = Failure(kind="engine", message=str(cause)), True
        except StuckEnvError:  # every further episode would wait as long
            raise
        except Exception as cause:  # the one boundary: an env or workflow that raises is data
            error = env_failure(cause)
            passing = self.env.waits and not isinstance(cause, SlowEnvError)
        episode = Episode(
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
        if stream == "train" and not passing:
            capped = any(seat.capped for seat in seats.values())
            self._judged.setdefault(CAPPED, []).append(float(capped))
        return episode, passing

    def _seat(self, role: str, place: Place, greedy: bool, steps: Iterator[int]) -> RolloutSeat:
        config = self._agents[role]
        return RolloutSeat(
            role=role,
            config=config,
            sampling=config.sampling(greedy=greedy),
            env=self.env,
            engine=self.engine,
            renderer=self._renderers[config.policy],
            place=place,
            steps=steps,
        )


def settled(episode: Episode, found: Settlement, number: int) -> Episode:
    """Return an episode with the rewards and notes that entry `number` holds for it."""
    rewards = found.rewards[number]
    notes = found.notes[number] if found.notes else {}
    if rewards is None:
        nobody = Failure(kind="env", message="no reward function gave this completion a reward")
        return replace(episode, error=nobody, notes=notes)
    trajectories = []
    for trajectory in episode.trajectories:
        turns = list(trajectory.turns)
        if turns:
            turns[-1] = replace(turns[-1], rewards={**turns[-1].rewards, **rewards})
        trajectories.append(replace(trajectory, turns=tuple(turns)))
    return replace(episode, trajectories=tuple(trajectories), notes=notes)


def _line_of(cause: Exception) -> str:
    """Return where the code that is not turnwise's raised: its function, file and line."""
    frames = traceback.extract_tb(cause.__traceback__)
    foreign = [f for f in frames if not Path(f.filename).is_relative_to(PACKAGE)]
    if not foreign:  # raised by a function that is not written in Python
        return "in no line of Python"
    frame = foreign[0]
    return f"in {frame.name}, '{frame.filename}' line {frame.lineno}"
