"""Statistics of an env from random games in groups that share a task.

Provides `play_groups` and `Groups`: how long games are, how often states recur, and what
observations and the env's keys of states tell of what follows.
"""

from __future__ import annotations

import time
from collections import Counter
from collections.abc import Hashable, Iterator, Mapping, Sequence
from dataclasses import dataclass
from typing import Any

import numpy as np

from turnwise.envs.base import Env
from turnwise.envs.hidden_state import ENOUGH, LEAST, Visit, hidden_share, rounded
from turnwise.envs.hidden_state import SECONDS as HIDDEN_SECONDS
from turnwise.envs.past_helps import SeenTurn, past_helps
from turnwise.errors import EnvError, IllegalActionError, StuckEnvError
from turnwise.seeding import generator
from turnwise.types import Task

TURNS = 100
"""The maximum actions of a game, where the env has no lower cap."""
SECONDS = 4.0
"""The most seconds of all games: a slow env plays fewer, and a game in which they are over ends."""
GROUP = 4
"""Episodes of one task, of those that are played in groups."""
GROUP_TURNS = 3000
"""The turns after which no further group is played."""
KNOWN_TURNS = 1024
"""The turns from which it is estimated how well values of states are known: those of an
iteration."""
PRIOR = 6.0
"""The visits that count as much as the mean of coarser states (`credit.state_values.PRIOR`)."""
REPEATED, REPEATING = 4, 1.0
"""The games that are played twice, and the seconds in which they begin."""


@dataclass(frozen=True, kw_only=True, slots=True)
class Groups:
    """The statistics of random episodes in groups that share a task.

    `length` is the mean number of turns of an episode, estimated from the share of turns that end
    one where some had no time to end, and `seats` that of the seats that act in it.
    `recurring` is the share of the turns after the first whose state another episode of the group
    visited, too. `past_helps` says whether the past tells more of what follows than the observation
    does (`past_helps.past_helps`). `hidden` is the share of pairs of states with equal observations
    that behave differently, and `hidden_by_key` that of states with equal keys, of one task or of
    several, whichever is larger (`hidden_state.hidden_share`); None is for too few pairs.
    `shows_past` says whether equal observations came after equal turns of the seat, so that the
    observation holds all of its past. `finer_keys` says whether equal observations had different
    keys. `known` and `known_by_key` say how much of a state's value, estimated from `KNOWN_TURNS`
    turns, comes from other games in that state (the mean of n / (n + `PRIOR`)), by the observation
    and by the key. `repeats` says whether the same actions with the same noise led to the same
    observations, keys, rewards and ends. A turn took `seconds`.

    Example:
        >>> Groups(
        ...     length=4.0, seats=1.0, recurring=0.5, past_helps=None, hidden=0.0,
        ...     hidden_by_key=0.0, shows_past=False, finer_keys=False, known=1.0, known_by_key=1.0,
        ...     repeats=True, seconds=1e-4,
        ... ).length
        4.0
    """

    length: float
    seats: float
    recurring: float
    past_helps: bool | None
    hidden: float | None
    hidden_by_key: float | None
    shows_past: bool
    finer_keys: bool
    known: float
    known_by_key: float
    repeats: bool
    seconds: float

    @property
    def own_length(self) -> float:
        """The mean number of turns of one seat in an episode."""
        return self.length / self.seats


def play_groups(env: Env[Any], tasks: Sequence[Task], seed: int) -> Groups:
    """Play each task several times with random actions, and return what the episodes tell."""
    turns: list[SeenTurn] = []
    seen: list[Visit] = []
    keyed: list[Visit] = []
    lengths: list[int] = []
    seats: list[int] = []
    left, spent = 0, 0.0
    visitors: dict[tuple[int, str], set[int]] = {}
    later: list[tuple[int, str]] = []
    until = time.perf_counter() + SECONDS
    for place, task in enumerate(tasks):
        for game in range(GROUP * place, GROUP * (place + 1)):
            rng = generator(seed, "survey group", game)
            found = list(_turns(env, task, rng, until))
            over_time = time.perf_counter() >= until
            if found and not found[-1].ended and len(found) < env.turn_cap():
                left += over_time or len(found) == TURNS  # else the env broke
            for number, turn in enumerate(found):
                visitors.setdefault((place, turn.key), set()).add(game)
                later += [(place, turn.key)] if number else []
            turns += _seen_turns(found, game)
            for number, turn in enumerate(found):
                if not turn.waited:
                    seen.append(_visit(turn, game, place, turn.shown, first=not number))
                    keyed.append(_visit(turn, game, place, turn.key, first=not number))
            spent += sum(turn.seconds for turn in found)
            lengths += [len(found)] if found else []
            seats += [len({turn.seat for turn in found})] if found else []
        if len(turns) >= GROUP_TURNS or time.perf_counter() >= until:
            break
    seconds = spent / max(sum(lengths), 1)
    shared = [len(visitors[key]) > 1 for key in later]
    repeats = env.branching != "none" and not env.blocking and _repeats(env, tasks, seed)
    shown, keys = ([(v.seat, v.label) for v in visits] for visits in (seen, keyed))
    quick = 2 * ENOUGH * seconds < HIDDEN_SECONDS
    compares = repeats and quick  # where fewer than enough pairs have time, none are compared
    return Groups(
        length=_mean_length(lengths, left, env.turn_cap()),
        seats=float(np.mean(seats)) if seats else 1.0,
        recurring=float(np.mean(shared)) if shared else 0.0,
        past_helps=past_helps(turns, seed),
        hidden=hidden_share(env, seen, seed) if compares else None,
        hidden_by_key=_hidden_by_key(env, keyed, seed) if compares else None,
        shows_past=_shows_past(turns),
        finer_keys=len(set(zip(shown, keys, strict=True))) > len(set(shown)),
        known=_known(seen),
        known_by_key=_known(keyed),
        seconds=seconds,
        repeats=repeats,
    )


def _mean_length(lengths: Sequence[int], left: int, cap: int) -> float:
    """Return the mean number of turns of an episode, of which `left` had no time to end.

    If none ended, it is the `cap`, or where none was played for long twice the longest one's.
    """
    ended = len(lengths) - left
    if not lengths:
        return 1.0
    most = cap if max(lengths) == TURNS else 2 * max(lengths)
    return float(min(sum(lengths) / ended if ended else most, cap))


def _hidden_by_key(env: Env[Any], visits: Sequence[Visit], seed: int) -> float | None:
    """Return the larger share of pairs that behave differently, of one task and of several."""
    shares = [
        hidden_share(env, visits, seed, within_tasks=within, by_key=True)
        for within in (True, False)
    ]
    return max((share for share in shares if share is not None), default=None)


def _visit(turn: _Turn, game: int, task: int, label: Hashable, *, first: bool) -> Visit:
    """Return the state of a turn, with what it is compared by."""
    return Visit(
        game=game,
        task=task,
        label=label,
        seat=turn.seat,
        action=turn.action,
        first=first,
        state=turn.state,
    )


def _shows_past(turns: Sequence[SeenTurn]) -> bool:
    """Whether turns of equal observation have equal pasts, in enough of the turns to tell."""
    pasts: dict[str, set[Hashable]] = {}
    games: dict[str, set[int]] = {}
    for turn in turns:
        pasts.setdefault(turn.observation, set()).add(turn.past)
        games.setdefault(turn.observation, set()).add(turn.game)
    later = [turn for turn in turns if turn.past]
    alike = [turn for turn in later if len(games[turn.observation]) > 1]
    enough = len(alike) >= max(ENOUGH, LEAST * len(later))
    return enough and all(len(pasts[turn.observation]) == 1 for turn in alike)


def _known(visits: Sequence[Visit]) -> float:
    """Return how much of the value of a state comes from that state's visits in other games."""
    some = visits[:KNOWN_TURNS]
    of_all = Counter((visit.seat, visit.label) for visit in some)
    of_game = Counter((visit.game, visit.seat, visit.label) for visit in some)
    others = (of_all[v.seat, v.label] - of_game[v.game, v.seat, v.label] for v in some)
    return float(np.mean([n / (n + PRIOR) for n in others])) if some else 0.0


def _repeats(env: Env[Any], tasks: Sequence[Task], seed: int) -> bool:
    """Whether games lead to the same observations again with the same actions and noise."""
    until, compared = time.perf_counter() + REPEATING, 0
    for number, task in enumerate(tasks[:REPEATED]):
        once, again = (
            [
                (turn.seat, turn.shown, turn.action, turn.key, turn.ended, rounded(turn.rewards))
                for turn in _turns(env, task, generator(seed, "survey again", number), until)
            ]
            for _ in range(2)
        )
        in_time = time.perf_counter() < until
        if any(one != two for one, two in zip(once, again, strict=False)):
            return False
        if in_time and len(once) != len(again):
            return False
        compared += len(again)
    return compared > 0


@dataclass(frozen=True, kw_only=True, slots=True)
class _Turn:
    """One turn of a random game: who acted, what it saw and did, and what came of it.

    `shown` is the observation with its legal actions. `waited` says whether the seat could already
    have acted in the turn before: seats that move at once do not see each other's move. The turn
    took `seconds`.
    """

    seat: str
    state: Any
    observation: str
    shown: Hashable
    action: str
    key: str
    rewards: Mapping[str, float]
    ended: bool
    cut: bool
    waited: bool
    seconds: float


def _turns(env: Env[Any], task: Task, rng: np.random.Generator, until: float) -> Iterator[_Turn]:
    """Play one random episode, up to the time `until`; yield its turns."""
    if time.perf_counter() >= until:
        return
    try:
        state, waiting = env.reset(task), tuple[str, ...]()
        for _ in range(min(TURNS, env.turn_cap())):
            began = time.perf_counter()
            if began >= until:
                return
            acting = env.acting(state)
            seat = acting[0]
            seen, action = env.observe(state, seat), env.random_action(state, seat, rng)
            key = env.state_key(state, seat)
            step = env.step(state, seat, action, rng)
            over = step.terminated or step.truncated
            yield _Turn(
                seat=seat,
                state=state,
                observation=seen.text,
                shown=(seen.text, seen.legal_actions),
                action=action,
                key=f"{seat}\n{key}",
                rewards=step.rewards,
                ended=over,
                cut=step.truncated and not step.terminated,
                waited=seat in waiting,
                seconds=time.perf_counter() - began,
            )
            if over:
                return
            state, waiting = step.state, acting[1:]
    except StuckEnvError:
        raise
    except (EnvError, IllegalActionError):
        return


def _seen_turns(turns: Sequence[_Turn], game: int) -> list[SeenTurn]:
    """Return the turns of one episode, each with what its own seat saw before and after it."""
    found: list[SeenTurn] = []
    for seat in dict.fromkeys(turn.seat for turn in turns):
        places = [place for place, turn in enumerate(turns) if turn.seat == seat]
        past: list[tuple[str, str]] = []
        for place, after in zip(places, [*places[1:], None], strict=True):
            turn = turns[place]
            found.append(
                SeenTurn(
                    game=game,
                    observation=f"{seat}\n{turn.observation}",
                    action=turn.action,
                    followed=_followed(turns[place:after], None if after is None else turns[after]),
                    past=tuple(past),
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
    return rounded(rewards), None if after is None else after.observation
