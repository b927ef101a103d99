"""The agents of one episode by seat, as a workflow is given them.

Provides `EpisodeAgents` and `SeatAgent`.
"""

from __future__ import annotations

from collections.abc import Iterator, Mapping, Sequence
from dataclasses import replace
from typing import Any

from turnwise.agents import Exchange
from turnwise.rollout.agent import RolloutAgent
from turnwise.rollout.baseline_agent import BaselineAgent
from turnwise.rollout.context import EpisodeContext
from turnwise.rollout.counter import EpisodeCounter
from turnwise.rollout.failures import no_seat
from turnwise.rollout.seat_rewards import SeatRewards
from turnwise.types import Player, Trajectory

SeatAgent = RolloutAgent | BaselineAgent
"""Who plays a seat: a policy, or a baseline of the env."""


class EpisodeAgents(Mapping[str, SeatAgent]):
    """The agents of one episode by seat, as a workflow is given them."""

    def __init__(
        self,
        context: EpisodeContext,
        agents: Mapping[str, SeatAgent],
        players: Mapping[str, Player],
    ) -> None:
        self.context, self._agents, self._players = context, agents, players

    @property
    def counter(self) -> EpisodeCounter:
        """The counts of the episode."""
        return self.context.counter

    def __getitem__(self, seat: str) -> SeatAgent:
        if seat not in self._agents:
            raise KeyError(no_seat(seat, self._agents))
        return self._agents[seat]

    def __iter__(self) -> Iterator[str]:
        return iter(self._agents)

    def __len__(self) -> int:
        return len(self._agents)

    def with_policy(self, seat: str) -> RolloutAgent:
        """Return the agent of a seat that a policy plays; only such turns have siblings."""
        agent = self[seat]
        assert isinstance(agent, RolloutAgent), "recipes refuse baselines beside siblings"
        return agent

    def acting(self, state: Any) -> tuple[str, ...]:
        """Return the seats whose turn it is in `state`, the next one to act first."""
        return self.context.env.acting(state)

    def remember(self, past: Mapping[str, Sequence[Exchange]]) -> None:
        """Begin with exchanges from before the episode, by seat."""
        for seat, exchanges in past.items():
            self._agents[seat].past = list(exchanges)

    def forked(
        self, trial: str, draw: str, *, ends_with_round: bool
    ) -> tuple[EpisodeAgents, EpisodeCounter]:
        """Return agents that go on from here by themselves, in a trial, and their counter.

        Args:
            trial: the trial's name, part of the identity of its calls.
            draw: names the random draws of its env steps.
            ends_with_round: whether the trial ends before the next round begins (`RoundOver`).
        """
        counter = self.counter.forked(ends_with_round=ends_with_round)
        context = replace(self.context, counter=counter, rewards=SeatRewards())
        agents = {seat: self.with_policy(seat).forked(context, trial, draw) for seat in self}
        return EpisodeAgents(context, agents, self._players), counter

    def trajectories(self, next_keys: Mapping[str, str | None]) -> tuple[Trajectory, ...]:
        """Return what every seat has done; `next_keys` are by seat (`Trajectory.next_key`)."""
        return tuple(
            Trajectory(
                role=self.context.env.seats[seat],
                seat=seat,
                turns=self.context.rewards.added(seat, agent.turns),
                siblings=tuple(agent.siblings),
                next_key=next_keys.get(seat),
                player=self._players[seat].name if seat in self._players else "",
            )
            for seat, agent in self._agents.items()
        )
