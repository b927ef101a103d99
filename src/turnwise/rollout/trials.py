"""Trials: what a sibling is judged by. A trial plays on from the sibling's own state.

Provides `Trials`. The workflow is called anew with agents that first return what they have returned
so far, then the sibling's step, and then play: so any workflow that depends on nothing but what its
agents return can be played on, and no sibling sees what another one did.
"""

from __future__ import annotations

import asyncio
from collections.abc import Collection, Mapping, Sequence
from dataclasses import dataclass
from typing import Any

from turnwise.envs.base import Env
from turnwise.envs.user_calls import is_cancelled
from turnwise.errors import StuckEnvError
from turnwise.rollout.agent import EpisodeOver
from turnwise.rollout.branch import Branch
from turnwise.rollout.counter import RoundOver
from turnwise.rollout.draws import Draws
from turnwise.rollout.episode_agents import EpisodeAgents
from turnwise.rollout.failures import NotRepeated, OthersRewarded
from turnwise.rollout.user_workflow import call_workflow
from turnwise.types import Turn
from turnwise.workflows.base import Workflow
from turnwise.workflows.topologies import SiblingsConfig

Rewards = Mapping[str, float]


@dataclass(kw_only=True)
class Trials:
    """Plays the trials of one episode's siblings.

    Attributes:
        agents: the agents of the episode.
        begins: the state in which the episode began.
        team: the reward components of level `team`, which every seat earns.
        resets: how often the env went back to an earlier state.
        steps: the env steps that trials made.
    """

    config: SiblingsConfig
    agents: EpisodeAgents
    workflow: Workflow
    env: Env[Any]
    begins: Any
    draws: Draws
    team: Collection[str]
    resets: int = 0
    steps: int = 0

    async def judged(self, seat: str, branches: Sequence[Branch]) -> list[Branch]:
        """Return the branches with the rewards of their trials.

        A branch that the env broke has none, and one whose every trial failed.
        """
        return await asyncio.gather(*(self._judged(seat, branch) for branch in branches))

    async def _judged(self, seat: str, branch: Branch) -> Branch:
        if branch.cause is not None:
            return branch
        if self.config.horizon == "step" or branch.ended:
            return branch.judged(branch.turn.rewards)
        numbers = range(self.config.trials)
        found = await asyncio.gather(*(self._trial(seat, branch, number) for number in numbers))
        self.resets += len(found)
        return branch.judged(*(rewards for rewards in found if rewards is not None))

    async def _trial(self, seat: str, branch: Branch, number: int) -> Rewards | None:
        """Play on from a branch; return what its seat earned, None if the infrastructure failed."""
        turn, which = f"{seat}.{branch.turn.id.turn}", branch.turn.id.branch
        forked, counter = self.agents.forked(
            f"{turn}.{which}.{number}",
            self.draws.of_trial(turn, which, number),
            ends_with_round=self.config.horizon == "turn_end",
        )
        before = counter.steps
        try:
            if forked.with_policy(seat).goes_on_in_trial(branch):
                await call_workflow(self.workflow, forked, self.begins, self.env)
        except (EpisodeOver, RoundOver):
            pass
        except (StuckEnvError, NotRepeated, OthersRewarded):
            raise
        except asyncio.CancelledError:
            if is_cancelled():
                raise
            return None
        except (Exception, SystemExit):  # a failed trial is data, as a failed episode is
            return None
        finally:
            self.steps += counter.steps - before
        turns = {name: forked[name].turns for name in forked}
        return earned(seat, turns, self.team)


def earned(seat: str, turns: Mapping[str, Sequence[Turn]], team: Collection[str]) -> Rewards:
    """Return the sum of what a seat earned: its own rewards, and the team's of other seats' turns.

    Args:
        seat: the seat.
        turns: the turns of every seat, by seat.
        team: the components of level `team`.
    """
    total: dict[str, float] = {}
    for name, own in turns.items():
        for turn in own:
            for component, value in turn.rewards.items():
                if name == seat or component in team:
                    total[component] = total.get(component, 0.0) + value
    return total
