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
from turnwise.engines.model_calls import RendererLike
from turnwise.envs.base import Baseline, BatchRewards, Env, Step, scores_batches
from turnwise.envs.opponents import opposed, own_score
from turnwise.errors import (
    RewardError,
    TurnwiseError,
)
from turnwise.formats import with_reply_components
from turnwise.parallel import ALONE, ProcessGroup, share_of_episodes
from turnwise.rollout.agent import EpisodeOver, RolloutAgent
from turnwise.rollout.baseline_agent import BaselineAgent
from turnwise.rollout.batch_rewards import has_ended, with_batch_rewards
from turnwise.rollout.beginning import Beginning, beginning_of
from turnwise.rollout.context import EpisodeContext
from turnwise.rollout.counter import EpisodeCounter
from turnwise.rollout.draws import Draws
from turnwise.rollout.episode_agents import EpisodeAgents, SeatAgent
from turnwise.rollout.seat_rewards import SeatRewards
from turnwise.rollout.siblings import Siblings
from turnwise.rollout.trials import Trials
from turnwise.rollout.user_workflow import call_workflow, failure_of, is_shipped
from turnwise.tasks.openings import length_of
from turnwise.types import Episode, Failure, Player, Stream, TaskVisit
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

        if not group.is_alone:
            played = self._put_together(group.together(lambda: self._measured(share())), group_size)
        else:
            played = run(share(), self.engine)
        if scores_batches(self.env) or self.env.scored_by == "return":
            found = group.from_first(lambda: run(self._judged(played), self.engine))
            return self._with_rewards(played, found, stream)
        return played

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
            if retry:
                episode, retry = await self._attempt(visit, member, stream, greedy)
        return episode

    async def _attempt(
        self, visit: TaskVisit, member: int, stream: Stream, greedy: bool
    ) -> tuple[Episode, bool]:
        """Play an episode once; return it, and whether another attempt may go better."""
        training, draws = stream == "train", self.draws(stream)
        most_turns = self._most_turns if training else None
        context = EpisodeContext(
            env=self.env,
            episode=visit.episode(member),
            draws=draws,
            counter=EpisodeCounter(most_turns, length_of(visit.opening)),
            rewards=SeatRewards(),
            state_key=self._state_key,
        )
        agents = self._agents_of(context, greedy, visit.players)
        step: Step[Any] | None = None
        error: Failure | None = None
        score, retry = 0.0, False
        measures: Mapping[str, float] = {}
        next_keys: Mapping[str, str | None] = {}
        trials: Trials | None = None
        try:
            begun = self._begin(visit, draws)
            agents.remember(begun.past)
            if training and isinstance(self._topology, SiblingsConfig):
                trials = self._with_siblings(self._topology, agents, begun.state, draws)
            step = await self._played(agents, begun.state)
            if context.counter.left:
                next_keys = {seat: agents[seat].next_key(step.state) for seat in agents}
            else:
                score = own_score(self.env, step.state, visit.players)
                measures = self.env.measures(step.state)
        except EpisodeOver as over:
            error = over.failure
        except (Exception, SystemExit, asyncio.CancelledError) as cause:  # what is raised is data
            error, retry = failure_of(cause, self.env)
        episode = Episode(
            id=context.episode,
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
        if training and not retry:
            self._batch_metrics.setdefault(CAPPED, []).append(float(context.counter.capped))
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

    async def _played(self, agents: EpisodeAgents, state: Any) -> Step[Any]:
        """Return the last step of an episode; users' workflows are called with checks."""
        if is_shipped(self._workflow):
            return await self._workflow(agents, state)
        return await call_workflow(self._workflow, agents, state, self.env)

    def _with_siblings(
        self, config: SiblingsConfig, agents: EpisodeAgents, begins: Any, draws: Draws
    ) -> Trials:
        """Let the agents of an episode have siblings."""
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
        self, context: EpisodeContext, greedy: bool, players: Mapping[str, Player]
    ) -> EpisodeAgents:
        """Return the agents of one episode, one for each seat."""
        agents: dict[str, SeatAgent] = {}
        for seat, role in self.env.seats.items():
            config = self._configs[role]
            if seat in players:
                agents[seat] = self._opponent(seat, config, context, greedy, players[seat])
            else:
                agents[seat] = self._agent(seat, config, context, greedy)
        return EpisodeAgents(context, agents, players)

    def _agent(
        self, seat: str, config: AgentConfig, context: EpisodeContext, greedy: bool
    ) -> RolloutAgent:
        """Return the agent of a seat."""
        return RolloutAgent(
            seat=seat,
            config=config,
            sampling=config.sampling(greedy=greedy),
            engine=self.engine,
            renderer=self._renderers[config.policy],
            context=context,
        )

    def _opponent(
        self,
        seat: str,
        config: AgentConfig,
        context: EpisodeContext,
        greedy: bool,
        player: Player,
    ) -> SeatAgent:
        """Return the opponent of a seat: a policy, or a baseline of the env."""
        if player.policy:
            own = config.model_copy(update={"policy": player.policy})
            return replace(self._agent(seat, own, context, greedy), falls_back=True)
        baseline = self._baselines[player.name]
        return BaselineAgent(name=player.name, seat=seat, baseline=baseline, context=context)

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
