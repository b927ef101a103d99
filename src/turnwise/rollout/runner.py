"""The rollout core of training and evaluation: from task visits to episodes.

Provides `Runner`. It is the project's exception boundary: a failed episode is recorded with its
typed error and does not stop the others. Only an env whose calls hang repeatedly stops all.
"""

from __future__ import annotations

import asyncio
import traceback
from collections.abc import Coroutine, Mapping, Sequence
from dataclasses import dataclass, replace
from functools import cached_property
from pathlib import Path
from typing import Any, Literal

from turnwise.agents import AgentConfig
from turnwise.credit.config import StateKeyRule
from turnwise.engines.loop import SteppedEngine, run
from turnwise.envs.base import Baseline, BatchRewards, Env, Step
from turnwise.envs.opponents import opposed, own_score
from turnwise.envs.user_calls import is_cancelled
from turnwise.errors import (
    EndpointError,
    EngineError,
    RewardError,
    SandboxError,
    SlowEnvError,
    StuckEnvError,
    TurnwiseError,
)
from turnwise.formats import with_reply_components
from turnwise.parallel import ALONE, ProcessGroup, share_of_episodes
from turnwise.rollout.agent import EpisodeOver, RolloutAgent
from turnwise.rollout.baseline_agent import BaselineAgent
from turnwise.rollout.batch_rewards import has_ended, with_batch_rewards
from turnwise.rollout.beginning import Beginning, beginning_of
from turnwise.rollout.counter import EpisodeCounter
from turnwise.rollout.draws import Draws
from turnwise.rollout.episode_agents import EpisodeAgents, SeatAgent
from turnwise.rollout.protocols import RendererLike
from turnwise.rollout.seat_rewards import SeatRewards
from turnwise.rollout.siblings import Siblings
from turnwise.rollout.trials import Trials
from turnwise.rollout.user_workflow import call_workflow, workflow_failure
from turnwise.tasks.openings import length_of
from turnwise.types import Episode, EpisodeId, Failure, Player, Stream, TaskVisit
from turnwise.utils.rewards import mix_rewards
from turnwise.workflows.base import Workflow
from turnwise.workflows.topologies import AnyTopology, SiblingsConfig

NoiseRule = Literal["common", "independent"]
RETRIES = 2
CAPPED = "rollout/capped_share"
PACKAGE = Path(__file__).parents[1]
REPLIES = ("parse", "illegal_action")
"""Failures that end an episode as a fall does: the reply was no action."""


class Runner:
    """Plays episodes of one env with one workflow over one engine.

    Evaluation episodes are played against the baseline `opponent`, if there is one, by each seat in
    turn. `weights` of reward components make the score of an env that is `scored_by = "return"`, 0
    where an episode was broken, as everywhere; `iterations` is how many the run is to have, for
    judges whose rewards change with time. `group` are the processes that share the episodes of a
    call; each returns all of them. An episode of training is left after `most_turns` turns.
    `state_key` says what the key of a state is: the env's (`Env.state_key`), or what the agent is
    shown. `topology` says which turns of training have siblings; evaluation never has any.
    """

    def __init__(
        self,
        *,
        env: Env[Any],
        workflow: Workflow,
        agents: Mapping[str, AgentConfig],
        renderers: Mapping[str, RendererLike],
        engine: SteppedEngine,
        seed: int,
        noise: NoiseRule = "common",
        weights: Mapping[str, float] | None = None,
        iterations: int = 0,
        group: ProcessGroup = ALONE,
        most_turns: int | None = None,
        state_key: StateKeyRule = "env",
        topology: AnyTopology | None = None,
        opponent: str | None = None,
    ) -> None:
        self._topology = topology
        self.opponent = opponent
        self.env, self.engine, self.group = env, engine, group
        self._weights, self._iterations = weights or {}, iterations
        self._batch_metrics: dict[str, list[float]] = {}
        self._capped_said = False
        self._workflow, self._configs, self._renderers = workflow, agents, renderers
        self._seed, self._common = seed, noise == "common"
        self._most_turns = most_turns
        self._state_key: StateKeyRule = state_key
        self._begun: dict[int, Beginning] = {}

    def collect(
        self,
        visits: Sequence[TaskVisit],
        stream: Stream,
        *,
        group_size: int = 1,
        greedy: bool = False,
    ) -> list[Episode]:
        """Play every visit `group_size` times, all side by side; return episodes visit by visit.

        Raises:
            StuckEnvError: if an env under guard does not return again and again.
        """
        self._begun = {}
        if stream == "evaluation" and self.opponent is not None:
            visits = [visit if visit.players else self._opposed(visit) for visit in visits]
        identities = [(visit, member) for visit in visits for member in range(group_size)]
        group = self.group

        async def share() -> list[Episode]:
            own = share_of_episodes(len(visits), group_size, group.rank, group.size)
            return await asyncio.gather(*(self.play(*identities[n], stream, greedy) for n in own))

        async def everything() -> list[Episode]:
            played = await share()
            return self._with_rewards(played, await self._judged(played), stream)

        if group.is_alone:
            return run(everything(), self.engine)
        played = self._put_together(group.together(lambda: self._measured(share())), group_size)
        found = group.from_first(lambda: run(self._judged(played), self.engine))
        return self._with_rewards(played, found, stream)

    def _opposed(self, visit: TaskVisit) -> TaskVisit:
        """Return a visit in which the opponent plays all seats but one."""
        player = Player(name=self.opponent or "")
        return replace(visit, players=opposed(self.env.seats, visit.visit, player))

    def _measured(self, share: Coroutine[Any, Any, list[Episode]]) -> _Share:
        """Play this process's share; return it with what was measured of it."""
        before, self._batch_metrics = self._batch_metrics, {}
        try:
            return _Share(episodes=run(share, self.engine), measured=self._batch_metrics)
        finally:
            self._batch_metrics = before

    def _put_together(self, shares: Sequence[_Share], group_size: int) -> list[Episode]:
        """Return the episodes of all processes in their order, and keep what was measured."""
        count = sum(len(share.episodes) for share in shares)
        episodes: dict[int, Episode] = {}
        for rank, share in enumerate(shares):
            places = share_of_episodes(count // group_size, group_size, rank, self.group.size)
            episodes |= zip(places, share.episodes, strict=True)
            for name, values in share.measured.items():
                self._batch_metrics.setdefault(name, []).extend(values)
        return [episodes[place] for place in range(count)]

    def take_metrics(self) -> dict[str, float]:
        """Return means over what was measured of training episodes since the last call.

        `rollout/capped_share`, the share of episodes cut at the env's cap on turns, and what
        judges measured.
        """
        found, self._batch_metrics = self._batch_metrics, {}
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

    async def _judged(self, episodes: list[Episode]) -> BatchRewards | None:
        """Return the rewards that are found for a whole batch (`Env.score_batch`)."""
        ended = [episode for episode in episodes if has_ended(episode)]
        if episodes and not ended:
            return None
        try:
            return await self.env.score_batch(ended, self._iterations)
        except TurnwiseError:
            raise
        except (Exception, SystemExit) as cause:  # what fails for a batch fails for the next
            raise RewardError(
                f"{self.env.name}: finding the rewards raised {type(cause).__name__}: {cause} "
                f"({_line_of(cause)}): fix it; the run can go on from its last checkpoint"
            ) from cause

    def _with_rewards(
        self, episodes: list[Episode], found: BatchRewards | None, stream: Stream
    ) -> list[Episode]:
        """Add the rewards that were found for a whole batch, and the scores."""
        ended = [place for place, episode in enumerate(episodes) if has_ended(episode)]
        if found is not None:
            team = {name for name, level in self.env.components.items() if level == "team"}
            for number, place in enumerate(ended):
                episodes[place] = with_batch_rewards(episodes[place], found, number, team)
            for name, value in found.metrics.items() if stream == "train" else ():
                self._batch_metrics.setdefault(name, []).append(value)
        if self.env.scored_by == "return":
            return [replace(e, score=0.0 if e.broken else self._return_of(e)) for e in episodes]
        return episodes

    def _return_of(self, episode: Episode) -> float:
        return sum(mix_rewards(turn.rewards, self._weights) for turn in episode.own_turns)

    async def play(
        self, visit: TaskVisit, member: int, stream: Stream, greedy: bool = False
    ) -> Episode:
        """Play an episode of a visit; a failure of the infrastructure is retried, noise and all.

        Failures of the engine are retried, and errors of an env that waits for something outside.
        Other errors of an env would be raised again. A call that timed out has cost enough time.
        """
        episode, retry = await self._attempt(visit, member, stream, greedy)
        for _ in range(RETRIES):
            if not retry:
                break
            episode, retry = await self._attempt(visit, member, stream, greedy)
        return episode

    async def _attempt(
        self, visit: TaskVisit, member: int, stream: Stream, greedy: bool
    ) -> tuple[Episode, bool]:
        """Play an episode once; return it, and whether another attempt may go better."""
        identity, draws = visit.episode(member), self.draws(stream)
        most_turns = self._most_turns if stream == "train" else None
        counter = EpisodeCounter(most_turns, length_of(visit.opening))
        agents = self._agents_of(identity, draws, counter, greedy, visit.players)
        step: Step[Any] | None = None
        error: Failure | None = None
        score, retry = 0.0, False
        measures: Mapping[str, float] = {}
        next_keys: Mapping[str, str | None] = {}
        trials: Trials | None = None
        try:
            begun = self._begin(visit, draws)
            agents.remember(begun.past)
            trials = self._with_siblings(agents, begun.state, draws)
            step = await call_workflow(self._workflow, agents, begun.state, self.env)
            if counter.left:
                next_keys = {seat: agents[seat].next_key(step.state) for seat in agents}
            else:
                score = own_score(self.env, step.state, visit.players)
                measures = self.env.measures(step.state)
        except EpisodeOver as over:
            error = over.failure
        except (EngineError, SandboxError) as cause:
            error = Failure(kind="engine", message=str(cause))
            retry = not isinstance(cause, EndpointError)  # which has been tried again already
        except StuckEnvError:  # every further episode would wait as long
            raise
        except asyncio.CancelledError as cause:
            if is_cancelled():
                raise
            error = workflow_failure(cause, self.env)
        except (Exception, SystemExit) as cause:  # the one boundary: what is raised is data
            error = workflow_failure(cause, self.env)
            retry = self.env.blocking and not isinstance(cause, SlowEnvError)
        episode = Episode(
            id=identity,
            task=visit.task,
            trajectories=agents.trajectories(next_keys),
            terminated=step.terminated if step else error is not None and error.kind in REPLIES,
            truncated=step.truncated if step else error is not None and error.kind == "context",
            score=score,
            measures=measures,
            error=error,
            opening=visit.opening,
            resets=trials.resets if trials else 0,
            trial_steps=trials.steps if trials else 0,
        )
        if stream == "train" and not retry:
            self._batch_metrics.setdefault(CAPPED, []).append(float(counter.capped))
        return episode, retry

    def _begin(self, visit: TaskVisit, draws: Draws) -> Beginning:
        """Return how a visit's episodes begin; the moves that lead there are made once."""
        if not visit.opening:
            return Beginning(state=self.env.reset(visit.task))
        if visit.visit not in self._begun:
            self._begun[visit.visit] = beginning_of(
                visit, self.env, draws.of_step, self._configs, self._renderers
            )
        return self._begun[visit.visit]

    def _with_siblings(self, agents: EpisodeAgents, begins: Any, draws: Draws) -> Trials | None:
        """Let the agents of a training episode have siblings; None if their topology has none."""
        config = self._topology
        if not isinstance(config, SiblingsConfig) or draws.stream != "train":
            return None
        levels = with_reply_components(self.env.components)
        trials = Trials(
            config=config,
            agents=agents,
            workflow=self._workflow,
            env=self.env,
            begins=begins,
            draws=draws,
            team={name for name, level in levels.items() if level == "team"},
        )
        rule = Siblings(config=config, weights=self._weights, trials=trials)
        for seat in agents:
            agents.with_policy(seat).rule = rule
        return trials

    def draws(self, stream: Stream) -> Draws:
        """Return the noise of the env steps of a stream."""
        return Draws(seed=self._seed, stream=stream, common_noise=self._common)

    def _agents_of(
        self,
        identity: EpisodeId,
        draws: Draws,
        counter: EpisodeCounter,
        greedy: bool,
        players: Mapping[str, Player],
    ) -> EpisodeAgents:
        """Return the agents of one episode, one for each seat."""
        agents: dict[str, SeatAgent] = {}
        rewards = SeatRewards()
        for seat, role in self.env.seats.items():
            config, player = self._configs[role], players.get(seat)
            if player is not None and not player.policy:
                agents[seat] = BaselineAgent(
                    name=player.name,
                    seat=seat,
                    env=self.env,
                    baseline=self._baselines[player.name],
                    episode=identity,
                    draws=draws,
                    counter=counter,
                    rewards=rewards,
                )
                continue
            if player is not None:
                config = config.model_copy(update={"policy": player.policy})
            agents[seat] = RolloutAgent(
                seat=seat,
                config=config,
                sampling=config.sampling(greedy=greedy),
                env=self.env,
                engine=self.engine,
                renderer=self._renderers[config.policy],
                episode=identity,
                draws=draws,
                counter=counter,
                rewards=rewards,
                state_key=self._state_key,
                falls_back=player is not None,
            )
        return EpisodeAgents(self.env, agents, counter, rewards, players)

    @cached_property
    def _baselines(self) -> Mapping[str, Baseline]:
        """The baselines of the env, which may play seats."""
        return self.env.baselines()


@dataclass(frozen=True, kw_only=True, slots=True)
class _Share:
    """The episodes that one process played, and what it measured of them."""

    episodes: list[Episode]
    measured: Mapping[str, list[float]]


def _line_of(cause: BaseException) -> str:
    """Return where the code that is not turnwise's raised: its function, file and line."""
    frames = traceback.extract_tb(cause.__traceback__)
    foreign = [f for f in frames if not Path(f.filename).is_relative_to(PACKAGE)]
    if not foreign:  # raised by a function that is not written in Python
        return "in no line of Python"
    frame = foreign[0]
    return f"in {frame.name}, '{frame.filename}' line {frame.lineno}"
