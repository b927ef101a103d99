"""What games without a model show of an env: its words, its returns and how long its games are.

Provides `survey`, from which `turnwise.train` takes the defaults that depend on the env. It plays
random games, and games of one action over and over. Knows nothing of models or tokens.
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
from turnwise.noise import generator
from turnwise.types import Task

GAMES = 32
"""Random games that are played."""
CONSTANT = 10
"""With more legal words than these none is played over and over."""
TURNS = 100
"""Actions after which a game is left."""
MARGIN = 0.5
"""How far below the worst return an invalid reply ends, as a share of the returns' range."""
_WORD = re.compile(r"\S+|\n")


@dataclass(frozen=True, kw_only=True, slots=True)
class Game:
    """One game: each turn's reward components, how many words it took, and whether it ended.

    `words` counts the observation's and the reply's, `reply` the reply's alone: a description and
    an action.
    """

    rewards: tuple[Mapping[str, float], ...]
    words: tuple[int, ...]
    reply: tuple[int, ...]
    ended: bool


@dataclass(frozen=True, kw_only=True, slots=True)
class Survey:
    """What some games have shown.

    `legal` are the words that were legal in every state, `varies` says whether there were others;
    `free` whether any text may be an answer somewhere. `first` is what the first state shows.

    Example:
        >>> from turnwise.envs import make_env
        >>> from turnwise.tasks import GeneratedTasks
        >>> lake = make_env("frozen-lake")
        >>> found = survey(lake, GeneratedTasks(lake, "train", seed=0).take(4), seed=0)
        >>> found.legal, found.varies, found.penalty({"goal": 1.0, "fall": -1.0})
        (('LEFT', 'DOWN', 'RIGHT', 'UP'), False, 1.5)
    """

    first: Observation
    legal: tuple[str, ...]
    varies: bool
    free: bool
    described: bool
    games: tuple[Game, ...]

    def penalty(self, weights: Mapping[str, float]) -> float:
        """Return what an invalid reply must cost so that no honest game is worth less.

        It may come after any turn, so it also takes back what was earned until then. Rewards that
        are found by `Env.settle` are not known here.

        Args:
            weights: of the reward components in the return.
        """
        paths = [np.cumsum([_mixed(turn, weights) for turn in g.rewards]) for g in self.games]
        returns = [float(path[-1]) for path in paths if len(path)]
        if not returns:
            return 1.0
        open_ends = [path[: len(path) - g.ended] for path, g in zip(paths, self.games, strict=True)]
        most = max([0.0, *(float(path.max()) for path in open_ends if len(path))])
        worst, extent = min(returns), max(returns) - min(returns)
        return most - worst + (MARGIN * extent or 1.0)

    def longest(self, per_turn: int) -> int:
        """Return the most words of a game, with `per_turn` more for each of its turns."""
        return max((sum(g.words) + per_turn * len(g.words) for g in self.games), default=0)

    def widest(self, per_turn: int) -> int:
        """Return the most words of a turn, and `per_turn` more."""
        return per_turn + max((words for game in self.games for words in game.words), default=0)

    def longest_reply(self) -> int:
        """Return the most words of a reply: a description and an action."""
        return max((words for game in self.games for words in game.reply), default=0)


def survey(env: Env[Any], tasks: Sequence[Task], seed: int) -> Survey:
    """Play random games on `tasks`, and games of one action each, and return what they show.

    A game that the env breaks is left where it breaks: the run itself says what is wrong.

    Args:
        env: the world; the actions of all its roles count alike.
        tasks: one a game; repeated as needed.
        seed: draws the actions and the world's chance.

    Raises:
        StuckEnvError: if an env under guard does not return again and again.
    """
    if env.waits:
        tasks = tasks[:4]
    first = env.observe(env.reset(tasks[0]), env.roles[0])
    seen: list[Observation] = [first]
    many = len(tasks) if env.waits else GAMES
    games = [
        _play(env, task, env.random_action, generator(seed, "survey", number), seen)
        for number, task in zip(range(many), cycle(tasks), strict=False)
    ]
    legal = [set(each.legal) for each in seen]
    always = tuple(word for word in first.legal if all(word in words for words in legal))
    for number, word in enumerate(first.legal if len(first.legal) <= CONSTANT else ()):
        rng = generator(seed, "survey", word, number)
        task = tasks[number % len(tasks)]
        if not env.waits:
            games.append(_play(env, task, _holding(env, word), rng, []))
    return Survey(
        first=first,
        legal=always,
        varies=any(words != legal[0] for words in legal),
        free=not all(legal),
        described=any(each.description for each in seen),
        games=tuple(game for game in games if game.words),
    )


Choice = Callable[[Any, str, np.random.Generator], str]


def _holding(env: Env[Any], word: str) -> Choice:
    """Return the player of one word, who plays another only where it is not legal."""

    def choose(state: Any, role: str, rng: np.random.Generator) -> str:
        legal = env.observe(state, role).legal
        return word if word in legal else env.random_action(state, role, rng)

    return choose


def _play(
    env: Env[Any], task: Task, choose: Choice, rng: np.random.Generator, seen: list[Observation]
) -> Game:
    """Play one game; what is observed is added to `seen`."""
    rewards: list[Mapping[str, float]] = []
    words: list[int] = []
    reply: list[int] = []
    ended = False
    try:
        state = env.reset(task)
        for number in range(TURNS):
            role = env.roles[number % len(env.roles)]
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


def _mixed(rewards: Mapping[str, float], weights: Mapping[str, float]) -> float:
    return sum(weight * rewards.get(name, 0.0) for name, weight in weights.items())
