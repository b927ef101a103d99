"""Statistics of an env from episodes without a model: actions, returns, lengths and states.

Provides `survey`, `Survey` and `Game`. `turnwise.train` derives the defaults that depend on the env
from them. The episodes are played with random actions, with one constant action each, and with
random actions in groups that share a task.
"""

from __future__ import annotations

import re
import time
from collections.abc import Callable, Sequence
from dataclasses import dataclass
from itertools import cycle
from typing import Any

import numpy as np

from turnwise.envs.base import Env, Observation
from turnwise.envs.survey_groups import SECONDS, TURNS, Groups, play_groups
from turnwise.errors import EnvError, IllegalActionError, StuckEnvError
from turnwise.seeding import generator
from turnwise.types import Task

GAMES = 32
"""The number of random episodes."""
CONSTANT = 10
"""With more legal actions than this, no constant action is played."""
FIRST = 16
"""The tasks of the episodes that are not played in groups."""
_WORD = re.compile(r"\S+|\n")


@dataclass(frozen=True, kw_only=True, slots=True)
class Game:
    """One episode without a model.

    `words` is the number of words of each turn's observation and reply; `reply` counts the reply
    alone, which is a description and an action.
    """

    words: tuple[int, ...]
    reply: tuple[int, ...]


@dataclass(frozen=True, kw_only=True, slots=True)
class Survey:
    """The statistics of the episodes that `survey` played.

    `groups` has those of the episodes that were played in groups.

    `first` is the observation of the first state. `legal_actions` are the actions that were legal
    in every state; `varies` says whether some states had other legal actions; `free` whether some
    state takes any text; `described` whether some observation had a description. An episode has at
    most `cap` turns. The legal actions of a state have `legal_words` words in the mean.

    Example:
        >>> from turnwise.envs import make_env
        >>> from turnwise.tasks import GeneratedTasks
        >>> lake = make_env("frozen-lake")
        >>> found = survey(lake, GeneratedTasks(lake, "train", seed=0).take(4), seed=0)
        >>> found.legal_actions, found.varies
        (('LEFT', 'DOWN', 'RIGHT', 'UP'), False)
    """

    first: Observation
    legal_actions: tuple[str, ...]
    varies: bool
    free: bool
    described: bool
    cap: int
    legal_words: float
    games: tuple[Game, ...]
    groups: Groups

    def longest(self, per_turn: float, room: float = 1.0) -> float:
        """Return the largest number of words of an episode, plus `per_turn` for each turn.

        Episodes may have `room` times as many turns as these, up to the cap of the env.
        """
        return max(
            (
                (sum(game.words) + per_turn * len(game.words))
                * min(room, max(1.0, self.cap / len(game.words)))
                for game in self.games
            ),
            default=0,
        )

    def widest(self, per_turn: float) -> float:
        """Return the largest number of words of a turn, plus `per_turn`."""
        return per_turn + max((words for game in self.games for words in game.words), default=0)

    def longest_reply(self) -> int:
        """Return the largest number of words of a reply: a description and an action."""
        return max((words for game in self.games for words in game.reply), default=0)


def survey(env: Env[Any], tasks: Sequence[Task], seed: int) -> Survey:
    """Play episodes on `tasks` with random and with constant actions; return their statistics.

    An error of the env ends its episode without an exception here: the run reports it. Where steps
    take long the numbers of episodes and of turns depend on the time that they take.

    Args:
        env: the env. The actions of all its roles are counted together.
        tasks: one for each episode, repeated as needed.
        seed: seeds the actions and the env's randomness.

    Raises:
        StuckEnvError: if calls of a guarded env repeatedly do not return.
        EnvError: if the env breaks the beginning of every task.
    """
    several, tasks = tasks[: 1 if env.blocking else None], tasks[: 4 if env.blocking else FIRST]
    first = _first_seen(env, tasks)
    seen: list[Observation] = [first]
    many = len(tasks) if env.blocking else GAMES
    until = time.perf_counter() + SECONDS
    games = [
        _play(env, task, env.random_action, generator(seed, "survey", number), seen, until)
        for number, task in zip(range(many), cycle(tasks), strict=False)
    ]
    legal = [set(each.legal_actions) for each in seen]
    always = tuple(word for word in first.legal_actions if all(word in words for words in legal))
    for number, word in enumerate(
        first.legal_actions if len(first.legal_actions) <= CONSTANT else ()
    ):
        rng = generator(seed, "survey", word, number)
        task = tasks[number % len(tasks)]
        if not env.blocking:
            games.append(_play(env, task, _constant(env, word), rng, [], until))
    return Survey(
        first=first,
        legal_actions=always,
        varies=any(words != legal[0] for words in legal),
        free=not all(legal),
        described=any(each.description for each in seen),
        cap=env.turn_cap(),
        legal_words=float(np.mean([_words(" ".join(each.legal_actions)) for each in seen])),
        games=tuple(game for game in games if game.words),
        groups=play_groups(env, several, seed),
    )


def _first_seen(env: Env[Any], tasks: Sequence[Task]) -> Observation:
    """Return the first observation of the first task that the env does not break."""
    error: EnvError | None = None
    for task in tasks:
        try:
            start = env.reset(task)
            return env.observe(start, env.acting(start)[0])
        except StuckEnvError:
            raise
        except EnvError as broken:
            error = broken
    assert error is not None, "there is a task"
    raise error


Choice = Callable[[Any, str, np.random.Generator], str]


def _constant(env: Env[Any], word: str) -> Choice:
    """Return a policy that always plays `word`, or a random action where `word` is not legal."""

    def choose(state: Any, role: str, rng: np.random.Generator) -> str:
        legal = env.observe(state, role).legal_actions
        return word if word in legal else env.random_action(state, role, rng)

    return choose


def _play(
    env: Env[Any],
    task: Task,
    choose: Choice,
    rng: np.random.Generator,
    seen: list[Observation],
    until: float,
) -> Game:
    """Play one episode, up to the time `until`; append its observations to `seen`."""
    words: list[int] = []
    reply: list[int] = []
    try:
        state = env.reset(task) if time.perf_counter() < until else None
        for _ in range(min(TURNS, env.turn_cap())):
            if time.perf_counter() >= until:
                break
            role = env.acting(state)[0]
            observation = env.observe(state, role)
            action = choose(state, role, rng)
            seen.append(observation)
            reply.append(_words(observation.description) + _words(action))
            words.append(_words(observation.text) + reply[-1])
            step = env.step(state, role, action, rng)
            state = step.state
            if step.terminated or step.truncated:
                break
    except StuckEnvError:
        raise
    except (EnvError, IllegalActionError):
        pass
    return Game(words=tuple(words), reply=tuple(reply))


def _words(text: str) -> int:
    return len(_WORD.findall(text))
