"""The curriculum of restarts: episodes also begin in states that earlier episodes have reached.

Where rewards are rare, random play from the first state hardly ever earns one. Episodes that begin
in rarely visited states find them (Go-Explore, Ecoffet et al. 2021, arXiv:2004.12919). A wide
distribution of first states also bounds the difference in return between the trained policy and the
optimal one (Kakade and Langford 2002). Episodes begin more often in states where an action had a
large advantage (prioritised level replay, Jiang et al. 2021, arXiv:2010.03934). docs/math.md 1
defines the draws.
"""

from __future__ import annotations

import itertools
from collections.abc import Mapping, Sequence
from typing import Any, Literal

import numpy as np
from pydantic import Field, model_validator

from turnwise.curriculum.archive import Archive, Cell
from turnwise.curriculum.base import GoesOn
from turnwise.curriculum.uniform import UniformCurriculum
from turnwise.errors import EnvError, IllegalActionError, StuckEnvError
from turnwise.seeding import generator
from turnwise.settings import Settings
from turnwise.tasks import GeneratedTasks
from turnwise.tasks.openings import WorldDraws, length_of
from turnwise.types import Episode, EpisodeId, Moves, Opening, Task, TaskVisit, TurnId
from turnwise.utils.hashes import short_hash

EXPLORING = -1
"""The iteration in the ids of episodes of random play before training."""
EXPLORED_FROM = 2**41
"""The number of the first task of random play before training: no iteration draws it."""
PART = 16
"""The maximum steps of one episode of random play before training."""


class RestartsConfig(Settings):
    """Fresh tasks, and states that earlier episodes of the training split have reached.

    Episodes that begin in such a state are compared with each other as any group is. Evaluation
    begins in the first state of its tasks.
    """

    kind: Literal["restarts"] = "restarts"
    """The curriculum."""
    share: float = Field(default=0.75, ge=0, le=1)
    """The share of an iteration's visits that begin in an earlier state, where one is known."""
    states: int = Field(default=512, ge=1)
    """The maximum number of states that are kept; the least probable ones are dropped."""
    explore: int = Field(default=0, ge=0)
    """Env steps of random play, without a model, that look for states before training begins."""

    @model_validator(mode="after")
    def _check(self) -> RestartsConfig:
        if self.explore and not self.share:
            raise ValueError(
                f"explore = {self.explore} looks for states in which episodes begin, but with "
                "share = 0 none begins there: raise share, or leave explore out"
            )
        return self


class RestartsCurriculum:
    """Visits of fresh tasks, of which a share begins in states of earlier episodes."""

    def __init__(self, tasks: GeneratedTasks, per_iteration: int, config: RestartsConfig) -> None:
        self.per_iteration = per_iteration
        self._config, self._tasks = config, tasks
        self._fresh = UniformCurriculum.of(tasks, per_iteration)
        self._archive, self._explored = Archive(), Archive()

    def visits(
        self, iteration: int, *, first: int = 0, count: int | None = None
    ) -> list[TaskVisit]:
        """Return `count` visits (default: one iteration's worth), numbered from `first`.

        Raises:
            ValueError: if more visits are requested than an iteration may have (64 fillings).
        """
        found: list[TaskVisit] = []
        for visit in self._fresh.visits(iteration, first=first, count=count):
            number = iteration * self.per_iteration + visit.visit
            if len(self._archive) and _falls_on(number, self._config.share):
                rng = generator(self._tasks.seed, "restart", iteration, visit.visit)
                known = self._archive.draw(rng)
                visit = TaskVisit(
                    iteration=iteration,
                    visit=visit.visit,
                    task=known.task,
                    opening=known.opening,
                )
            found.append(visit)
        return found

    def beginning(self, rng: np.random.Generator) -> tuple[Task, Opening] | None:
        """Return a state for a game of random play, for `share` of the games.

        It is one that was found before the run, whatever was learned since.
        """
        if not len(self._explored) or rng.random() >= self._config.share:
            return None
        known = self._explored.draw(rng)
        return known.task, known.opening

    def explore(self, draws: WorldDraws, goes_on: GoesOn) -> Mapping[str, Any]:
        """Look for states by random play; every second episode begins in a state found before.

        Where `goes_on` returns False, nothing is returned, so that what is found does not depend on
        the time.
        """
        found, done, total = Archive(), 0, self._config.explore
        games = itertools.count()
        while total and goes_on(done, total):
            if done == total:
                found.forget(self._config.states)
                return {"known": found.as_json(), "steps": done}
            most = min(total - done, PART)
            done += max(1, self._random_play(next(games), found, draws, most))
            if len(found) > 2 * self._config.states:
                found.forget(self._config.states)  # rarely: a forgotten state loses its count
        return {}

    def begin(self, found: Mapping[str, Any]) -> None:
        """Keep what was found: for random play, and for visits if they have no states yet."""
        known = found.get("known", ())
        self._explored.restore(known, self._tasks.task)
        if not len(self._archive):
            self._archive = self._explored.copy()

    def learn(self, episodes: Sequence[Episode], advantages: Mapping[TurnId, float]) -> None:
        """Keep the states that the episodes have reached, and their gains in this iteration."""
        gains: dict[Cell, float] = {}
        for turn in (turn for episode in episodes for turn in episode.turns if turn.seen):
            cell, gain = (turn.id.role, turn.seen), advantages.get(turn.id, 0.0)
            gains[cell] = max(gain, gains.get(cell, gain))
        for episode in episodes:
            if not episode.broken:
                self._learn(episode)
            elif episode.opening and _failed_to_begin(episode):
                self._archive.drop(episode.opening)
        self._archive.gained(gains)
        self._archive.forget(self._config.states)

    def exam(self, iteration: int) -> Sequence[Task]:
        """Return nothing: the choice needs no evaluation."""
        return ()

    def judge(self, episodes: Sequence[Episode]) -> None:
        """Do nothing."""

    def metrics(self) -> Mapping[str, float]:
        """Return nothing."""
        return {}

    def state(self) -> Mapping[str, Any]:
        """Return the states that are kept, as JSON-able values."""
        return {"known": self._archive.as_json()}

    def restore(self, state: Mapping[str, Any]) -> None:
        """Go back to the states that `state` returned."""
        self._archive.restore(state["known"], self._tasks.task)

    def _learn(self, episode: Episode) -> None:
        cap = self._tasks.env.turn_cap()
        path = _Path(self._archive, episode.task, episode.opening, episode.id, cap)
        for turn in sorted(episode.turns, key=lambda turn: turn.order):
            if turn.seen and turn.action is not None and turn.error is None:
                path.at(turn.id.role, turn.seen)
                path.extend(turn.id.role, turn.action)

    def _random_play(self, number: int, found: Archive, draws: WorldDraws, most: int) -> int:
        """Play at random for `most` steps or to the end; return the number of steps.

        An exception of the env ends the episode; training reports such episodes.
        """
        rng = generator(self._tasks.seed, "explore", number)
        env, done = self._tasks.env, 0
        known = found.draw(rng) if number % 2 and len(found) else None
        task = self._tasks.task(EXPLORED_FROM + number) if known is None else known.task
        played = EpisodeId(iteration=EXPLORING, visit=number, task=task.id, member=0)
        opening = () if known is None else known.opening
        path = _Path(found, task, opening, played, env.turn_cap())
        try:
            state = env.reset(task) if known is None else known.state
            while done < most:
                seat = env.acting(state)[0]
                path.at(seat, short_hash(env.observe(state, seat).text), state)
                action = env.random_action(state, seat, rng)
                done += 1
                step = env.step(state, seat, action, draws(played, done - 1))
                if step.terminated or step.truncated:
                    break
                path.extend(seat, action)
                state = step.state
        except StuckEnvError:
            raise
        except (EnvError, IllegalActionError):
            pass
        return done


class _Path:
    """The actions of one episode, whose states are added to an archive."""

    def __init__(
        self, archive: Archive, task: Task, opening: Opening, episode: EpisodeId, cap: int
    ) -> None:
        self._archive, self._task, self._opening = archive, task, opening
        self._episode, self._left = episode, cap - length_of(opening)
        self._actions: list[tuple[str, str]] = []
        self._seen: set[tuple[str, str]] = set()

    def at(self, seat: str, seen: str, state: Any = None) -> None:
        """Count the visit of the state in which a seat is about to act.

        The first state of a task does not count, nor do states after the env's cap on turns.
        """
        cell, done = (seat, seen), len(self._actions)
        if cell in self._seen or not (self._opening or done) or done >= self._left:
            return
        self._seen.add(cell)
        moves = Moves(episode=self._episode, actions=tuple(self._actions))
        opening = (*self._opening, moves) if done else self._opening
        self._archive.visited(cell, self._task, opening, state)

    def extend(self, seat: str, action: str) -> None:
        """Append an action to the path."""
        self._actions.append((seat, action))


def _failed_to_begin(episode: Episode) -> bool:
    """Whether the env failed before the first turn, so that the replay of the opening failed.

    Failures of the engine do not count.
    """
    return not episode.turns and episode.error is not None and episode.error.kind == "env"


def _falls_on(number: int, share: float) -> bool:
    """Whether visit `number` is one of the share that begins in an earlier state, evenly spread."""
    return int((number + 1) * share) > int(number * share)
