"""The agents of one episode by seat, as a workflow is given them. Provides `EpisodeAgents`."""

from __future__ import annotations

from collections.abc import Iterator, Mapping, Sequence
from typing import Any

from turnwise.agents import Exchange
from turnwise.envs.base import Env
from turnwise.rollout.agent import RolloutAgent
from turnwise.rollout.counter import EpisodeCounter
from turnwise.rollout.failures import no_seat
from turnwise.types import Trajectory


class EpisodeAgents(Mapping[str, RolloutAgent]):
    """The agents of one episode by seat, as a workflow is given them."""

    def __init__(
        self, env: Env[Any], agents: Mapping[str, RolloutAgent], counter: EpisodeCounter
    ) -> None:
        self._env, self._agents, self.counter = env, agents, counter

    def __getitem__(self, seat: str) -> RolloutAgent:
        if seat not in self._agents:
            raise KeyError(no_seat(seat, self._agents))
        return self._agents[seat]

    def __iter__(self) -> Iterator[str]:
        return iter(self._agents)

    def __len__(self) -> int:
        return len(self._agents)

    def acting(self, state: Any) -> tuple[str, ...]:
        """Return the seats whose turn it is in `state`, the next one to act first."""
        return self._env.acting(state)

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
        agents = {seat: a.forked(counter, trial, draw) for seat, a in self._agents.items()}
        return EpisodeAgents(self._env, agents, counter), counter

    def trajectories(self, next_keys: Mapping[str, str | None]) -> tuple[Trajectory, ...]:
        """Return what every seat has done; `next_keys` are by seat (`Trajectory.next_key`)."""
        return tuple(
            Trajectory(
                role=self._env.seats[seat],
                seat=seat,
                turns=tuple(agent.turns),
                siblings=tuple(agent.siblings),
                next_key=next_keys.get(seat),
            )
            for seat, agent in self._agents.items()
        )
