"""Rows to imitate that the env makes: what its states look like, and how to answer.

Provides `Demonstrations` and `Alternating`. Demonstrations show how to see and how to speak, never
what to do: their actions are drawn uniformly, so whatever a later curve shows is reinforcement
learning. Every row is a function of (seed, step, number), so a resumed warm-up sees the same ones,
unless the env breaks by chance.
"""

from __future__ import annotations

from collections import Counter
from collections.abc import Callable, Sequence, Sized
from dataclasses import dataclass, replace
from functools import cached_property
from typing import Any

import numpy as np

from turnwise.agents import (
    AgentConfig,
    Exchange,
    demonstration,
    observation_text,
    outcome_text,
    prompt_for,
)
from turnwise.envs import Baseline, Env, Observation, first_turn
from turnwise.errors import DataError, EnvError, StuckEnvError
from turnwise.evaluation.perception import WALK, StatesRule
from turnwise.parallel import ALONE, ProcessGroup
from turnwise.render import Renderer
from turnwise.rollout.random_play import (
    MOST_TURNS,
    Followed,
    RandomGame,
    random_conversation,
    random_game,
    what_follows,
)
from turnwise.seeding import generator
from turnwise.tasks import GeneratedTasks
from turnwise.trainers.rows import supervised_row
from turnwise.types import Message, Prompt, TrainingSample

EXAMPLES = 32
"""Demonstrations that are looked at before any is learned from."""
ATTEMPTS, APART = 8, 720_720
"""The rows that are tried in place of one, and how far their numbers lie apart: a multiple of all
numbers of rows of a game up to `MOST_OF_A_GAME`, so that rows of one game have one in its place."""
LONG_GAME, MOST_OF_A_GAME = 6, 16
"""Turns of a mean random game that are worth one row of it, and the most rows of one game: long
games cost more to play than rows cost to learn."""


RARE = 0.5
"""The share of rows, of turns with what followed, that are drawn by how rare that is. Rewards are
rare in random play, and what a policy learns later depends on them (as the reward prediction of
Jaderberg et al. 2016, arXiv:1611.05397, section 3.2, whose samples are skewed in the same way)."""
Outcome = tuple[tuple[tuple[str, float], ...], bool]
"""What a turn led to: rewards by component, and whether the game ended."""
Beginning = Callable[[np.random.Generator], Any]
"""Draws a state in which a random game begins; None is the first state of a task."""


@dataclass(frozen=True, kw_only=True)
class Demonstrations:
    """States of fresh tasks, truly described, each with a uniformly random legal action.

    `states` are those that tasks begin in, or uniformly drawn turns of games of random actions,
    with their past; a turn whose row has more tokens than `context` is replaced by an earlier one.
    With `outcomes` such a row goes on after the reply with what followed: the rewards and the next
    observation or the end, as a message of the user's; or the messages that the next observation
    has. It does not where that has no place in the context, where the game was cut off, after raw
    text, and where the template does not leave the past as it was said. Where prompts hold the
    whole past, a row is a whole game, all replies and observations of which are imitated. Games
    begin where `beginning` says, if prompts show no past.

    Actions are uniform, whatever they lead to. So the action of a turn that was drawn is drawn
    again: an action that ends games is the last one of many short games. In a whole game each
    action stands as it was played. With a `player` its actions are in place of uniform ones, but
    for the share `player_noise` of the actions by which games go on. So many `answers` in a row
    are actions of one state; a forest computes their prompt once.
    """

    env: Env[Any]
    tasks: GeneratedTasks
    agent: AgentConfig
    renderer: Renderer
    policy: str
    seed: int
    states: StatesRule = "first"
    context: int | None = None
    outcomes: bool = False
    beginning: Beginning | None = None
    player: Baseline | None = None
    player_noise: float = 0.0
    answers: int = 1

    def row(self, index: int) -> TrainingSample:
        """Return row number `index`.

        Another row takes its place where the env breaks, or where it does not fit into the context.

        Raises:
            EnvError: if the env broke in all attempts.
            DataError: if no row fitted.
        """
        made = self._row_of_game if self.states == "play" else self._first_row
        error: Exception | None = None
        for attempt in range(ATTEMPTS):
            try:
                row = made(index + attempt * APART)
                if self._fits(row.token_ids):
                    return row
                error = DataError(
                    f"a demonstration has {len(row.token_ids)} tokens, but policy {self.policy!r} "
                    f"has a context of {self.context}: take a longer context, or shorten what env "
                    f"{self.env.name!r} shows"
                )
            except StuckEnvError:
                raise
            except EnvError as broken:
                error = broken
        assert error is not None, "there is an attempt"
        raise error

    def _row_of_game(self, index: int) -> TrainingSample:
        """Return a row of a random game; neighbouring rows may share one."""
        number = index // self.answers
        game, rng = self._game(number // self._shared), generator(self.seed, "turn", number)
        turn = int(rng.integers(len(game.states)))
        whole = self._whole(game) if self._whole_games else None
        if whole is not None:
            return whole
        rare = self._rare(game, generator(self.seed, "rare", index))
        if rare is not None and self._fits(rare.token_ids):
            return rare
        draws = self._draws(index, rng)
        while True:
            row = self._drawn(game, turn, draws)
            if not turn or self._fits(row.token_ids):
                return row
            turn //= 2

    def _fits(self, ids: Sized) -> bool:
        """Whether so many ids have a place in the context."""
        return self.context is None or len(ids) <= self.context

    @property
    def _whole_games(self) -> bool:
        """Whether a row is a whole game, where that fits."""
        return self.outcomes and self.agent.history == "full"

    @property
    def _tells_outcomes(self) -> bool:
        """Whether rows of single turns go on with what followed."""
        return self.outcomes and self.env.branching != "none"

    def _rare(self, game: RandomGame, rng: np.random.Generator) -> TrainingSample | None:
        """Return the row of a turn whose outcome is rare among random games, or None.

        It is None for the share 1 - `RARE` of the rows, and where all outcomes are alike. Turns are
        drawn with the inverse of the frequency of their rewards and end. What followed is imitated,
        and the reply is not: an action that is shown because of its outcome would be one that
        random play does not prefer.
        """
        kinds = _outcomes(game) if self._tells_outcomes and rng.random() < RARE else []
        if len(set(kinds)) < 2:
            return None
        weights = np.array([1 / max(1, self._frequencies[kind]) for kind in kinds])
        turn = int(rng.choice(len(kinds), p=weights / weights.sum()))
        prompt = prompt_for(self.agent, game.past[:turn], self._seen(game, turn))
        start, reply = self.renderer.prompt_ids(prompt), game.past[turn].reply
        ids = start + self.renderer.completion_ids(reply)
        after = None if turn + 1 == len(game.states) else self._seen(game, turn + 1)
        followed = Followed(rewards=game.rewards[turn], observation=after)
        whole = self._with_outcome(prompt, ids, reply, followed)
        return None if whole == ids else supervised_row(self.policy, ids, whole[len(ids) :])

    def _seen(self, game: RandomGame, turn: int) -> Observation:
        return self.env.observe(game.states[turn], game.seat)

    @cached_property
    def _frequencies(self) -> Counter[Outcome]:
        """How often each outcome of a turn comes in the first random games."""
        return Counter(kind for game in self._first_games for kind in _outcomes(game))

    def _drawn(self, game: RandomGame, turn: int, rng: np.random.Generator) -> TrainingSample:
        """Return the row of a turn with another random action."""
        state = game.states[turn]
        observation = self.env.observe(state, game.seat)
        action = self._action(state, game.seat, rng)
        prompt = prompt_for(self.agent, game.past[:turn], observation)
        reply = self._reply(observation, action)
        start = self.renderer.prompt_ids(prompt)
        ids = start + self.renderer.completion_ids(reply)
        if self._tells_outcomes:
            followed = what_follows(self.env, state, game.seat, action, rng)
            ids = ids if followed is None else self._with_outcome(prompt, ids, reply, followed)
        return supervised_row(self.policy, start, ids[len(start) :])

    def _whole(self, game: RandomGame) -> TrainingSample | None:
        """Return the row of a whole game; None where it has no place, or is not one row."""
        observation = self.env.observe(game.states[0], game.seat)
        prompt = prompt_for(self.agent, (), observation)
        start = self.renderer.prompt_ids(prompt)
        ids = start + self.renderer.completion_ids(game.past[0].reply)
        for turn in range(1, len(game.states)):
            before, reply = prompt, game.past[turn - 1].reply
            observation = self.env.observe(game.states[turn], game.seat)
            prompt = prompt_for(self.agent, game.past[:turn], observation)
            asked = self.renderer.continued_ids(before, ids, reply, prompt)
            if asked is None:
                return None
            ids = asked + self.renderer.completion_ids(game.past[turn].reply)
            if not self._fits(ids):
                return None
        if game.ended:
            followed = Followed(rewards=game.rewards[-1], observation=None)
            ids = self._with_outcome(prompt, ids, game.past[-1].reply, followed)
        return supervised_row(self.policy, start, ids[len(start) :])

    def _with_outcome(
        self, prompt: Prompt, ids: tuple[int, ...], reply: str, followed: Followed
    ) -> tuple[int, ...]:
        """Return the ids of a prompt and its reply with what followed, or as they are.

        Raw text is no conversation, some templates do not leave the past as it was said, and there
        may be no place for more.
        """
        if prompt.text is not None:
            return ids
        after = followed.observation
        seen = None if after is None else observation_text(self.agent, after)
        told = Message(role="user", content=outcome_text(followed.rewards, seen))
        messages = after.messages if after is not None and after.messages else (told,)
        said = Message(role="assistant", content=reply)
        longer = replace(prompt, messages=(*prompt.messages, said, *messages))
        more = self.renderer.continued_ids(prompt, ids, reply, longer)
        return ids if more is None or not self._fits(more) else more

    def _game(self, number: int) -> RandomGame:
        if number not in self._latest:
            rng, task = generator(self.seed, "random game", number), self.tasks.task(number)
            begins = self._beginning(number)
            most = MOST_TURNS if begins is None else LONG_GAME  # near the state that was drawn
            if len(self._latest) > 1:
                del self._latest[next(iter(self._latest))]
            try:
                self._latest[number] = random_game(
                    self.env, task, self.agent, self.renderer, rng,
                    most=most, begins=begins, player=self._playing,
                )  # fmt: skip
            except StuckEnvError:
                raise
            except EnvError as error:
                self._latest[number] = error
        found = self._latest[number]
        if isinstance(found, EnvError):
            raise found
        return found

    @property
    def _playing(self) -> Baseline | None:
        """The player of games, which acts at random in some of its turns."""
        player = self.player
        if player is None or not self.player_noise:
            return player

        def disturbed(state: Any, rng: np.random.Generator) -> str:
            if rng.random() < self.player_noise:
                return self.env.random_action(state, self.env.acting(state)[0], rng)
            return player(state, rng)

        return disturbed

    def _beginning(self, number: int) -> Any:
        """Return a state in which game `number` begins, if not in a task's first one."""
        if self.beginning is None or self.agent.history != "observation":
            return None
        state = self.beginning(generator(self.seed, "beginning", number))
        if state is None or self.env.seats[self.env.acting(state)[0]] != self.agent.role:
            return None
        return state

    @cached_property
    def _latest(self) -> dict[int, RandomGame | EnvError]:
        """The latest two games by their number, or why there is none: one may replace the other."""
        return {}

    @cached_property
    def _shared(self) -> int:
        """The number of rows taken from one game."""
        if self._whole_games:
            return 1
        lengths = [len(game.states) for game in self._first_games]
        length = np.mean(lengths) if lengths else 0
        return int(np.clip(length // LONG_GAME, 1, MOST_OF_A_GAME))

    @cached_property
    def _first_games(self) -> list[RandomGame]:
        """The first few random games that the env does not break."""
        found: list[RandomGame] = []
        for number in range(EXAMPLES):
            try:
                found.append(self._game(number))
            except StuckEnvError:
                raise
            except EnvError:
                continue
        return found

    def _first_row(self, index: int) -> TrainingSample:
        number = index // self.answers
        rng = generator(self.seed, "demonstration", number)
        if self.answers == 1 or number not in self._first:
            self._first.clear()
            self._first[number] = self._first_state(number, rng)
        state, seat, past, observation = self._first[number]
        return self._imitated(past, observation, self._action(state, seat, self._draws(index, rng)))

    @cached_property
    def _first(self) -> dict[int, tuple[Any, str, list[Exchange], Observation]]:
        """The latest of the `first` states, by its number."""
        return {}

    def _first_state(
        self, number: int, rng: np.random.Generator
    ) -> tuple[Any, str, list[Exchange], Observation]:
        """Return a state in which the role acts first, its seat, its past and its observation."""
        task, past = self.tasks.task(number), []
        state, seat = first_turn(self.env, task, self.agent.role, rng)
        observation = self.env.observe(state, seat)
        if observation.tools:  # later turns look different: results of calls come before them
            found = random_conversation(self.env, task, self.agent, self.renderer, rng, WALK)
            state, seat, past = found.state, found.seat, list(found.past)
            observation = self.env.observe(state, seat)
        return state, seat, past, observation

    def _draws(self, index: int, rng: np.random.Generator) -> np.random.Generator:
        """Return what draws the action of a row: one of its own where several share a state."""
        return rng if self.answers == 1 else generator(self.seed, "answer", index)

    def _action(self, state: Any, seat: str, rng: np.random.Generator) -> str:
        """Return the action that is shown in a state."""
        return self.player(state, rng) if self.player else self.env.random_action(state, seat, rng)

    def _imitated(
        self, past: list[Exchange], observation: Observation, action: str
    ) -> TrainingSample:
        """Return the row in which `action` is the reply to `observation`."""
        reply = self._reply(observation, action)
        prompt_ids = self.renderer.prompt_ids(prompt_for(self.agent, past, observation))
        return supervised_row(self.policy, prompt_ids, self.renderer.completion_ids(reply))

    def _reply(self, observation: Observation, action: str) -> str:
        """Return the reply that describes an observation truly and takes an action."""
        reply = demonstration(self.agent, observation.description, action)
        return self.renderer.spoken(reply) if observation.tools else reply


def _outcomes(game: RandomGame) -> list[Outcome]:
    """Return the rewards of each turn whose outcome is known, and whether the game ended there."""
    known = len(game.states) - (not game.ended)
    return [
        (tuple(sorted(game.rewards[turn].items())), turn + 1 == len(game.states))
        for turn in range(known)
    ]


@dataclass(frozen=True, kw_only=True, slots=True)
class Alternating:
    """The demonstrations of several roles in turn; each gives all answers of a state.

    `first` is the number of the first row: two ranges of numbers that do not overlap hold different
    rows. `group` returns the processes that share the rows: the first one makes them for all.
    """

    sources: Sequence[Demonstrations]
    first: int = 0
    group: Callable[[], ProcessGroup] = lambda: ALONE

    def batch(self, step: int, count: int) -> list[TrainingSample]:
        """Return the rows of an optimizer step."""
        return self._rows(self.first + step * count, count)

    def examples(self) -> list[TrainingSample]:
        """Return the first few rows."""
        return self._rows(self.first, EXAMPLES * len(self.sources))

    def _rows(self, start: int, count: int) -> list[TrainingSample]:
        def made() -> list[TrainingSample]:
            return [self._source(number).row(number) for number in range(start, start + count)]

        return self.group().from_first(made)  # an env may break in one process only

    def _source(self, number: int) -> Demonstrations:
        return self.sources[number // self.sources[0].answers % len(self.sources)]
