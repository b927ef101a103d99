"""Statistics of an env from episodes without a model: actions, returns and lengths.

Provides `survey`, `Survey` and `Game`. `turnwise.train` derives the defaults that depend on the env
from them. The episodes are played with random actions, and with one constant action each.
"""

from __future__ import annotations

import re
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass
from itertools import cycle
from typing import Any

import numpy as np

from turnwise.envs.base import Env, Observation
from turnwise.errors import BrokenEnvError, IllegalActionError, StuckEnvError
from turnwise.seeding import generator
from turnwise.types import Task

GAMES = 32
"""The number of random episodes."""
CONSTANT = 10
"""With more legal actions than this, no constant action is played."""
TURNS = 100
"""The maximum actions of an episode."""
MARGIN = 0.5
"""The margin of an invalid reply's return below the worst return, as a share of their range."""
_WORD = re.compile(r"\S+|\n")


@dataclass(frozen=True, kw_only=True, slots=True)
class Game:
    """One episode without a model.

    `rewards` are the reward components of each turn. `words` is the number of words of each turn's
    observation and reply; `reply` counts the reply alone, which is a description and an action.
    `ended` says whether the env ended the episode.
    """

    rewards: tuple[Mapping[str, float], ...]
    words: tuple[int, ...]
    reply: tuple[int, ...]
    ended: bool


@dataclass(frozen=True, kw_only=True, slots=True)
class Survey:
    """The statistics of the episodes that `survey` played.

    `first` is the observation of the first state. `legal_actions` are the actions that were legal
    in every state; `varies` says whether some states had other legal actions; `free` whether some
    state takes any text; `described` whether some observation had a description.

    Example:
        >>> from turnwise.envs import make_env
        >>> from turnwise.tasks import GeneratedTasks
        >>> lake = make_env("frozen-lake")
        >>> found = survey(lake, GeneratedTasks(lake, "train", seed=0).take(4), seed=0)
        >>> found.legal_actions, found.varies, found.penalty({"goal": 1.0, "fall": -1.0})
        (('LEFT', 'DOWN', 'RIGHT', 'UP'), False, 1.5)
    """

    first: Observation
    legal_actions: tuple[str, ...]
    varies: bool
    free: bool
    described: bool
    games: tuple[Game, ...]

    def penalty(self, weights: Mapping[str, float]) -> float:
        """Return a penalty for an invalid reply that is worse than the worst return of the survey.

        An invalid reply may come after any turn, so the penalty also cancels the rewards of earlier
        turns. Rewards of `Env.score_batch` are not included.

        Args:
            weights: the weights of the reward components in the return.
        """
        paths = [np.cumsum([_weighted(turn, weights) for turn in g.rewards]) for g in self.games]
        returns = [float(path[-1]) for path in paths if len(path)]
        if not returns:
            return 1.0
        open_ends = [path[: len(path) - g.ended] for path, g in zip(paths, self.games, strict=True)]
        most = max([0.0, *(float(path.max()) for path in open_ends if len(path))])
        worst, extent = min(returns), max(returns) - min(returns)
        return most - worst + (MARGIN * extent or 1.0)

    def longest(self, per_turn: int) -> int:
        """Return the largest number of words of an episode, plus `per_turn` for each turn."""
        return max((sum(g.words) + per_turn * len(g.words) for g in self.games), default=0)

    def widest(self, per_turn: int) -> int:
        """Return the largest number of words of a turn, plus `per_turn`."""
        return per_turn + max((words for game in self.games for words in game.words), default=0)

    def longest_reply(self) -> int:
        """Return the largest number of words of a reply: a description and an action."""
        return max((words for game in self.games for words in game.reply), default=0)


def survey(env: Env[Any], tasks: Sequence[Task], seed: int) -> Survey:
    """Play episodes on `tasks` with random and with constant actions; return their statistics.

    An error of the env ends its episode without an exception here: the run reports it.

    Args:
        env: the env. The actions of all its roles are counted together.
        tasks: one for each episode, repeated as needed.
        seed: seeds the actions and the env's randomness.

    Raises:
        StuckEnvError: if calls of a guarded env repeatedly do not return.
    """
    if env.blocking:
        tasks = tasks[:4]
    start = env.reset(tasks[0])
    first = env.observe(start, env.acting(start)[0])
    seen: list[Observation] = [first]
    many = len(tasks) if env.blocking else GAMES
    games = [
        _play(env, task, env.random_action, generator(seed, "survey", number), seen)
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
            games.append(_play(env, task, _constant(env, word), rng, []))
    return Survey(
        first=first,
        legal_actions=always,
        varies=any(words != legal[0] for words in legal),
        free=not all(legal),
        described=any(each.description for each in seen),
        games=tuple(game for game in games if game.words),
    )


Choice = Callable[[Any, str, np.random.Generator], str]


def _constant(env: Env[Any], word: str) -> Choice:
    """Return a policy that always plays `word`, or a random action where `word` is not legal."""

    def choose(state: Any, role: str, rng: np.random.Generator) -> str:
        legal = env.observe(state, role).legal_actions
        return word if word in legal else env.random_action(state, role, rng)

    return choose


def _play(
    env: Env[Any], task: Task, choose: Choice, rng: np.random.Generator, seen: list[Observation]
) -> Game:
    """Play one episode; append its observations to `seen`."""
    rewards: list[Mapping[str, float]] = []
    words: list[int] = []
    reply: list[int] = []
    ended = False
    try:
        state = env.reset(task)
        for _ in range(TURNS):
            role = env.acting(state)[0]
            observation = env.observe(state, role)
            action = choose(state, role, rng)
            seen.append(observation)
            reply.append(sum(len(_WORD.findall(t)) for t in (observation.description, action)))
            words.append(len(_WORD.findall(observation.text)) + reply[-1])
            step = env.step(state, role, action, rng)
            rewards.append(step.rewards)
            state, ended = step.state, step.terminated or step.truncated
            if ended:
                break
    except StuckEnvError:
        raise
    except (BrokenEnvError, IllegalActionError):
        pass
    return Game(rewards=tuple(rewards), words=tuple(words), reply=tuple(reply), ended=ended)


def _weighted(rewards: Mapping[str, float], weights: Mapping[str, float]) -> float:
    return sum(weight * rewards.get(name, 0.0) for name, weight in weights.items())
