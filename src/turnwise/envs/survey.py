"""Statistics of an env from episodes without a model: actions, returns, lengths and states.

Provides `survey`, `Survey` and `Game`. `turnwise.train` derives the defaults that depend on the env
from them. The episodes are played with random actions, with one constant action each, and with
random actions in groups that share a task.
"""

from __future__ import annotations

import re
import time
from collections.abc import Callable, Hashable, Iterator, Mapping, Sequence
from dataclasses import dataclass, replace
from itertools import cycle
from typing import Any

import numpy as np

from turnwise.envs.base import Env, Observation
from turnwise.envs.past_helps import Transition, key_helps, past_helps
from turnwise.errors import BrokenEnvError, IllegalActionError, StuckEnvError
from turnwise.seeding import generator
from turnwise.types import Task

GAMES = 32
"""The number of random episodes."""
CONSTANT = 10
"""With more legal actions than this, no constant action is played."""
TURNS = 100
"""The maximum actions of an episode."""
FIRST = 16
"""The tasks of the episodes that are not played in groups."""
GROUP = 4
"""Episodes of one task, of those that are played in groups."""
GROUP_TURNS = 3000
"""The turns after which no further group is played."""
SECONDS = 4.0
"""The most seconds of the episodes in groups, and of the others: a slow env is surveyed less, and
an episode in which they are over is left."""
REPEATED, REPEATING = 4, 1.0
"""The games that are played twice, and the seconds in which they begin."""
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
class Groups:
    """The statistics of random episodes in groups that share a task.

    `length` is the mean number of turns of an episode. `recurring` is the share of the turns after
    the first whose state another episode of the group visited, too. `past_helps` says whether the
    past tells more of what follows than the observation does (`past_helps.past_helps`), and
    `key_is_state` whether the env's state keys leave nothing of that to the past. `key_helps` says
    whether the keys tell more of it than the observation does. `repeats` says whether the same
    actions with the same noise led to the same observations. A turn took `seconds`.

    Example:
        >>> Groups(
        ...     length=4.0, recurring=0.5, past_helps=None, key_is_state=True, key_helps=False,
        ...     repeats=True, seconds=1e-4,
        ... ).length
        4.0
    """

    length: float
    recurring: float
    past_helps: bool | None
    key_is_state: bool
    key_helps: bool
    repeats: bool
    seconds: float


@dataclass(frozen=True, kw_only=True, slots=True)
class Survey:
    """The statistics of the episodes that `survey` played.

    `groups` has those of the episodes that were played in groups.

    `first` is the observation of the first state. `legal_actions` are the actions that were legal
    in every state; `varies` says whether some states had other legal actions; `free` whether some
    state takes any text; `described` whether some observation had a description.

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
    games: tuple[Game, ...]
    groups: Groups

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

    An error of the env ends its episode without an exception here: the run reports it. Where steps
    take long the numbers of episodes and of turns depend on the time that they take.

    Args:
        env: the env. The actions of all its roles are counted together.
        tasks: one for each episode, repeated as needed.
        seed: seeds the actions and the env's randomness.

    Raises:
        StuckEnvError: if calls of a guarded env repeatedly do not return.
    """
    several, tasks = tasks[: 1 if env.blocking else None], tasks[: 4 if env.blocking else FIRST]
    start = env.reset(tasks[0])
    first = env.observe(start, env.acting(start)[0])
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
        games=tuple(game for game in games if game.words),
        groups=_groups(env, several, seed),
    )


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
        for _ in range(TURNS):
            if time.perf_counter() >= until:
                break
            role = env.acting(state)[0]
            observation = env.observe(state, role)
            action = choose(state, role, rng)
            seen.append(observation)
            reply.append(sum(len(_WORD.findall(t)) for t in (observation.description, action)))
            words.append(len(_WORD.findall(observation.text)) + reply[-1])
            step = env.step(state, role, action, rng)
            state = step.state
            if step.terminated or step.truncated:
                break
    except StuckEnvError:
        raise
    except (BrokenEnvError, IllegalActionError):
        pass
    return Game(words=tuple(words), reply=tuple(reply))


def _groups(env: Env[Any], tasks: Sequence[Task], seed: int) -> Groups:
    """Play each task several times with random actions, and return what the episodes tell."""
    turns: list[Transition] = []
    of_keys: list[Transition] = []
    lengths: list[int] = []
    visitors: dict[tuple[int, str], set[int]] = {}
    later: list[tuple[int, str]] = []
    began = time.perf_counter()
    until = began + SECONDS
    for place, task in enumerate(tasks):
        for game in range(GROUP * place, GROUP * (place + 1)):
            rng = generator(seed, "survey group", game)
            found = list(_turns(env, task, rng, until))
            for number, turn in enumerate(found):
                visitors.setdefault((place, turn.key), set()).add(game)
                later += [(place, turn.key)] if number else []
            turns += _transitions(found, game)
            of_keys += _transitions([replace(each, observation=each.key) for each in found], game)
            lengths += [len(found)] if found else []
        if len(turns) >= GROUP_TURNS or time.perf_counter() >= until:
            break
    seconds = (time.perf_counter() - began) / max(sum(lengths), 1)
    shared = [len(visitors[key]) > 1 for key in later]
    return Groups(
        length=float(np.mean(lengths)) if lengths else 1.0,
        recurring=float(np.mean(shared)) if shared else 0.0,
        past_helps=past_helps(turns, seed),
        key_is_state=not past_helps(of_keys, seed),
        key_helps=key_helps(turns, seed),
        seconds=seconds,
        repeats=env.branching != "none" and not env.blocking and _repeats(env, tasks, seed),
    )


def _repeats(env: Env[Any], tasks: Sequence[Task], seed: int) -> bool:
    """Whether games lead to the same observations again with the same actions and noise."""
    until = time.perf_counter() + REPEATING
    for number, task in enumerate(tasks[:REPEATED]):
        once, again = (
            [
                (turn.seat, turn.observation, turn.action, turn.key, turn.ended)
                for turn in _turns(env, task, generator(seed, "survey again", number), until)
            ]
            for _ in range(2)
        )
        if any(one != two for one, two in zip(once, again, strict=False)):
            return False
    return True


@dataclass(frozen=True, kw_only=True, slots=True)
class _Turn:
    """One turn of a random game: who acted, what it saw and did, and what came of it."""

    seat: str
    observation: str
    action: str
    key: str
    rewards: Mapping[str, float]
    ended: bool
    cut: bool


def _turns(env: Env[Any], task: Task, rng: np.random.Generator, until: float) -> Iterator[_Turn]:
    """Play one random episode, up to the time `until`; yield its turns."""
    if time.perf_counter() >= until:
        return
    try:
        state = env.reset(task)
        for _ in range(TURNS):
            if time.perf_counter() >= until:
                return
            seat = env.acting(state)[0]
            seen, action = env.observe(state, seat).text, env.random_action(state, seat, rng)
            key = env.state_key(state, seat)
            step = env.step(state, seat, action, rng)
            over = step.terminated or step.truncated
            yield _Turn(
                seat=seat,
                observation=seen,
                action=action,
                key=f"{seat}\n{key}",
                rewards=step.rewards,
                ended=over,
                cut=step.truncated and not step.terminated,
            )
            if over:
                return
            state = step.state
    except StuckEnvError:
        raise
    except (BrokenEnvError, IllegalActionError):
        return


def _transitions(turns: Sequence[_Turn], game: int) -> list[Transition]:
    """Return the turns of one episode, each with what its own seat saw before and after it."""
    found: list[Transition] = []
    for seat in dict.fromkeys(turn.seat for turn in turns):
        places = [place for place, turn in enumerate(turns) if turn.seat == seat]
        past: list[tuple[str, str]] = []
        for place, after in zip(places, [*places[1:], None], strict=True):
            turn = turns[place]
            found.append(
                Transition(
                    game=game,
                    observation=f"{seat}\n{turn.observation}",
                    action=turn.action,
                    followed=_followed(turns[place:after], None if after is None else turns[after]),
                    past=tuple(past),
                    key=turn.key,
                )
            )
            past.append((turn.observation, turn.action))
    return found


def _followed(between: Sequence[_Turn], after: _Turn | None) -> tuple[Hashable, Hashable] | None:
    """Return the rewards of a turn and of the others' turns after it, and what its seat saw next.

    It is None where the episode was left before that, or cut off by a limit of turns.
    """
    last = between[-1]
    if last.cut or (after is None and not last.ended):
        return None
    rewards: dict[str, float] = {}
    for turn in between:
        for name, value in turn.rewards.items():
            rewards[name] = rewards.get(name, 0.0) + value
    given = tuple(sorted((name, round(value, 6)) for name, value in rewards.items() if value))
    return given, None if after is None else after.observation
