"""Cross tables: seats that act at the same time, judged by all combinations of their siblings.

Provides `Crossing`. A table takes env steps and no tokens. Entry (i, j) is what the seats earn
where the first takes its sibling i and the second its sibling j; a sibling is judged by the mean
over its row or column (docs/math.md 2).
"""

from __future__ import annotations

import asyncio
import itertools
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, replace
from typing import Any

from turnwise.engines.model_calls import without_failures
from turnwise.errors import EnvError
from turnwise.rollout.branch import Branch, Question
from turnwise.rollout.choice import choose
from turnwise.rollout.draws import FRESH
from turnwise.rollout.trials import Trials, earned
from turnwise.seeding import generator
from turnwise.types import Sampling, Turn
from turnwise.utils.rewards import mix_rewards
from turnwise.workflows.topologies import SiblingsConfig

Combination = tuple[int, ...]
"""The number of each seat's sibling."""


@dataclass(frozen=True, kw_only=True, slots=True)
class Answered:
    """The branch with which a seat goes on when the workflow lets it act, and its siblings."""

    branch: Branch
    others: Sequence[Turn]


@dataclass(frozen=True, kw_only=True, slots=True)
class Crossing:
    """The moment at which several seats act at the same time, and the siblings of each."""

    config: SiblingsConfig
    weights: Mapping[str, float]
    trials: Trials
    seats: tuple[str, ...]

    async def answered(self, state: Any, samplings: Mapping[str, Sampling]) -> dict[str, Answered]:
        """Return what each seat goes on with from `state`; a seat is absent where nobody can tell.

        That is so after a seat all of whose replies failed.
        """
        agents = [self.trials.agents.with_policy(seat) for seat in self.seats]
        questions = [
            agent.question(state, samplings[seat], ahead)
            for ahead, (seat, agent) in enumerate(zip(self.seats, agents, strict=True))
        ]
        calls = [
            without_failures([agent.reply(question, n) for n in range(self.config.siblings)])
            for agent, question in zip(agents, questions, strict=True)
        ]
        branches = await asyncio.gather(*calls)
        valid = [[n for n, one in enumerate(own) if one.valid] for own in branches]
        cells: dict[Combination, list[Branch]] = {}
        for combination in itertools.product(*valid):
            played = await self._played(
                [own[n] for own, n in zip(branches, combination, strict=True)]
            )
            last = len(played) - 1
            if played[-1].step is None:  # the env refused this action, or broke
                branches[last][combination[last]] = played[-1]
            elif len(played) == len(self.seats):
                cells[combination] = played
            self.trials.resets += 1
        self.trials.steps -= sum(len(own) for own in valid) if cells else 0  # recorded as turns
        if not cells:
            first = await self._without_table(branches[0])
            return {self.seats[0]: first}
        return await self._from_table(branches, cells, questions[0])

    async def _played(
        self, chosen: Sequence[Branch], state: Any = None, draw: str = ""
    ) -> list[Branch]:
        """Return the branches after the env was stepped with one after the other.

        It ends with one that the env refused or that broke it, and where the episode ended.
        """
        done: list[Branch] = []
        for seat, branch in zip(self.seats, chosen, strict=True):
            agent = self.trials.agents.with_policy(seat)
            stepped = await agent.stepped(branch, state=state, draw=draw)
            self.trials.steps += 1
            done.append(stepped)
            if stepped.step is None or stepped.ended:
                break
            state = stepped.step.state
        return done

    async def _without_table(self, branches: Sequence[Branch]) -> Answered:
        """Return what the first seat goes on with alone: a valid branch, where there is any."""
        agent = self.trials.agents.with_policy(self.seats[0])
        ordered = sorted(branches, key=lambda branch: not branch.valid)
        chosen = await agent.stepped(ordered[0])
        judged = [_judged_alone(each) for each in ordered[1:]]
        return Answered(branch=_judged_alone(chosen), others=judged_turns(judged))

    async def _from_table(
        self,
        branches: Sequence[Sequence[Branch]],
        cells: Mapping[Combination, Sequence[Branch]],
        question: Question,
    ) -> dict[str, Answered]:
        """Return what each seat goes on with: the chosen entry of the table."""
        earnings = {
            combination: [self._earned(seat, played) for seat in self.seats]
            for combination, played in cells.items()
        }
        combinations = list(cells)
        values = [
            sum(mix_rewards(own, self.weights) for own in earnings[each]) for each in combinations
        ]
        draws = self.trials.draws
        rng = generator(draws.seed, "continuation", draws.stream, str(question.id))
        chosen = combinations[choose(values, self.config, rng)]
        goes_on = cells[chosen]
        if self.config.fresh_noise:
            again = [own[n] for own, n in zip(branches, chosen, strict=True)]
            self.trials.resets += 1
            goes_on = await self._played(again, draw=FRESH)
        found: dict[str, Answered] = {}
        for place, seat in enumerate(self.seats[: len(goes_on)]):
            judged: list[Branch] = []
            for number, branch in enumerate(branches[place]):
                table = [earnings[each][place] for each in cells if each[place] == number]
                judged.append(branch.judged(*table) if table else _judged_alone(branch))
            taken = judged.pop(chosen[place])
            found[seat] = Answered(
                branch=goes_on[place].judged(*taken.trials), others=judged_turns(judged)
            )
        return found

    def _earned(self, seat: str, played: Sequence[Branch]) -> Mapping[str, float]:
        turns = {name: [b.turn] for name, b in zip(self.seats, played, strict=True)}
        return earned(seat, turns, self.trials.team)


def _judged_alone(branch: Branch) -> Branch:
    """Judge a reply that is no action by its own rewards; others stay without a trial."""
    return branch if branch.valid or branch.cause else branch.judged(branch.turn.rewards)


def judged_turns(branches: Sequence[Branch]) -> list[Turn]:
    """Return the turns of branches with which the episode does not go on."""
    return [replace(branch.turn, action=branch.action, chosen=False) for branch in branches]


def check_same_question(asked: Question, seen: str, seat: str) -> None:
    """Raise unless a seat sees what it saw before another one acted.

    Args:
        asked: what it was asked when the first seat's turn came.
        seen: the text of what it sees now.
        seat: the seat.

    Raises:
        EnvError: with the cure.
    """
    if seen != asked.observation.text:
        raise EnvError(
            f"{seat!r} acts at the same time as another seat, and sees {seen!r:.80} when that has "
            f"acted, but {asked.observation.text!r:.80} before: let observe show nothing of "
            "buffered actions, or use topology.orders = 'sequential'"
        )
