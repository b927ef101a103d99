"""Siblings: several replies to each question of an episode, of which one goes on.

Provides `Siblings`, the rule by which agents sample their turns under the topologies `spine` and
`vine` (docs/math.md 2). All siblings of a turn answer one question, and each is stepped from its
own state. One that failed never ends the episode unless all failed. Siblings that do not go on are
recorded beside the played path.
"""

from __future__ import annotations

import math
from collections.abc import Mapping, Sequence
from dataclasses import replace
from typing import Any

import numpy as np

from turnwise.credit.siblings import SCORE, score_of
from turnwise.engines.model_calls import without_failures
from turnwise.errors import EnvError
from turnwise.rollout.agent import RolloutAgent
from turnwise.rollout.branch import Branch, Question
from turnwise.rollout.choice import choose
from turnwise.rollout.cross import Answered, Crossing, check_same_question
from turnwise.rollout.draws import FRESH
from turnwise.rollout.trials import Trials
from turnwise.rollout.turn_rule import Score
from turnwise.seeding import generator
from turnwise.types import Prompt, Sampling, Turn, TurnId
from turnwise.workflows.topologies import SiblingsConfig

PLAIN_ASK = (
    "the workflow asks a question without a score, but the topology samples several answers to "
    "each and has to choose one: write ask(messages, score=function), a function from the answer "
    "to a number, or set topology.kind = 'independent'"
)


class Siblings:
    """Samples the turns of one episode's agents, each with its siblings."""

    def __init__(
        self, *, config: SiblingsConfig, weights: Mapping[str, float], trials: Trials
    ) -> None:
        self.trials = trials
        self._config, self._weights = config, weights
        self._waiting: dict[str, Answered] = {}

    async def of_turn(
        self, seat: str, state: Any, sampling: Sampling
    ) -> tuple[Branch, Sequence[Turn]]:
        """Return the branch with which a seat goes on from `state`, and its siblings."""
        agent = self.trials.agents.with_policy(seat)
        if self._config.has_cross_tables:
            answered = await self._answered(seat, state, sampling)
            if answered is not None:
                agent.take(answered.branch.question)
                return answered.branch, answered.others
        question = agent.question(state, sampling)
        agent.take(question)
        if not self._has_siblings(question.id):
            return await agent.stepped(await agent.reply(question)), ()
        calls = [self._stepped(agent, question, n) for n in range(self._config.siblings)]
        branches = await without_failures(calls)
        self.trials.resets += len(branches) - 1
        branches = await self.trials.judged(seat, branches)
        chosen = self._chosen(branches, question.id)
        others = [each.turn for each in branches if each is not chosen]
        if self._config.fresh_noise and chosen.valid:
            chosen = await self._again(agent, chosen)
        return chosen, not_chosen(others)

    async def _answered(self, seat: str, state: Any, sampling: Sampling) -> Answered | None:
        """Return what a seat goes on with where several act at the same time; None elsewhere."""
        trials = self.trials
        if seat in self._waiting:
            found = self._waiting.pop(seat)
            check_same_question(found.branch.question, trials.env.observe(state, seat).text, seat)
            return found
        self._waiting = {}
        seats = tuple(trials.env.acting(state))
        room = trials.agents.counter.room(trials.env)
        if len(seats) == 1 or seat != seats[0] or room < len(seats):
            return None
        crossing = Crossing(config=self._config, weights=self._weights, trials=trials, seats=seats)
        samplings = {each: trials.agents.with_policy(each).sampling for each in seats} | {
            seat: sampling
        }
        self._waiting = await crossing.answered(state, samplings)
        return self._waiting.pop(seat)

    async def _stepped(self, agent: RolloutAgent, question: Question, number: int) -> Branch:
        draw = self.trials.draws.of_sibling(number)
        return await agent.stepped(await agent.reply(question, number), draw=draw)

    async def _again(self, agent: RolloutAgent, branch: Branch) -> Branch:
        """Return a branch whose env step is made again with a fresh draw; its trials stay."""
        self.trials.resets += 1
        self.trials.steps += 1
        return await agent.stepped(branch, draw=FRESH)

    def _has_siblings(self, identity: TurnId) -> bool:
        """Whether a turn is one of the share that has siblings."""
        return self._rng("share", identity).random() < self._config.share_with_siblings

    def _chosen(self, branches: Sequence[Branch], identity: TurnId) -> Branch:
        """Return the branch with which the episode goes on: a valid one, where there is any."""
        judged = [branch for branch in branches if branch.valid and branch.trials]
        if not judged:
            whole = [branch for branch in branches if branch.cause is None]
            return next(iter(sorted(whole, key=lambda branch: not branch.valid)), branches[0])
        values = [score_of(branch.turn, self._weights) for branch in judged]
        return judged[choose(values, self._config, self._rng("continuation", identity))]

    def _rng(self, what: str, identity: TurnId) -> np.random.Generator:
        """Return the generator of a choice at a turn."""
        draws = self.trials.draws
        return generator(draws.seed, what, draws.stream, str(identity))

    async def of_question(
        self, seat: str, prompt: Prompt, sampling: Sampling, score: Score | None
    ) -> tuple[Turn, Sequence[Turn]]:
        """Return the answer to a question with which the workflow goes on, and its siblings.

        Raises:
            EnvError: if the workflow gives no score, or one that returns no number.
        """
        if score is None:
            raise EnvError(PLAIN_ASK)
        answers = await self.trials.agents.with_policy(seat).answers(
            prompt, sampling, self._config.siblings
        )
        judged = [replace(turn, trials=({SCORE: _number(score(turn.text))},)) for turn in answers]
        values = [turn.trials[0][SCORE] for turn in judged]
        identity = replace(judged[0].id, branch=0)
        place = choose(values, self._config, self._rng("continuation", identity))
        return judged[place], not_chosen(judged[:place] + judged[place + 1 :])


def not_chosen(turns: Sequence[Turn]) -> list[Turn]:
    """Return turns as those with which the episode does not go on."""
    return [replace(turn, chosen=False) for turn in turns]


def _number(score: Any) -> float:
    """Return the score of an answer.

    Raises:
        EnvError: if it is no finite number.
    """
    if not isinstance(score, int | float) or not math.isfinite(score):
        raise EnvError(
            f"the score of an answer is {score!r:.80}, expected a finite number: let the function "
            "in ask(messages, score=function) return one"
        )
    return float(score)
