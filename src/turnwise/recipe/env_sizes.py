"""How much is played and shown in an env: episodes of an iteration, validation, the warm-up's rows.

Provides `EnvSizes`.
"""

from __future__ import annotations

from collections.abc import Collection
from dataclasses import dataclass
from typing import Any

from turnwise.agents import AgentConfig
from turnwise.envs.survey import Survey
from turnwise.recipe.env_credit import Because
from turnwise.recipe.history import tokens_of_a_turn
from turnwise.rollout.random_play import MOST_TURNS
from turnwise.trainers.config import GrpoConfig

Data = dict[str, Any]
WARM_TOKENS, FEWEST_ROWS, MOST_ROWS = 2048, 2, 32
"""About the most tokens of a step of the warm-up, and the bounds of its number of rows."""
NANO_MINIBATCHES = 4
GAME_TURNS, GAME_TOKENS = 1024, 40_000
"""The turns that an iteration's episodes are to have together, by the survey's mean length, and
about the most tokens of their prompts and replies."""
FEWEST_EPISODES, MOST_EPISODES = 16, 128
START_AND_DECODING = {"decoding": "validated", "validate_start": True}
"""The greedy policy may be far worse than a sampled one, and training may make a policy worse."""
EVALUATION = {**START_AND_DECODING, "validation_tasks": 128}
"""A nano model starts near uniform play, whose most probable action is the same nearly everywhere:
played greedily it is worse than random play."""
DECODINGS = 2
"""The ways of decoding in which a validation plays each task."""
LEAST_VALIDATIONS, LONG_VALIDATION = 5, 64
"""The fewest validations of a run, and the tasks of one where games are long."""
VALIDATED = 0.1
"""The episodes of validation as a share of those that are trained."""
LONG_GROUP = 4
"""The episodes that begin in one state where games are long."""
SLOW, FEWEST_TASKS = 1e-3, 8
"""The seconds of a step from which what is only measured has about as many turns as an iteration,
and the fewest tasks that it has then."""


@dataclass(frozen=True, kw_only=True)
class EnvSizes:
    """The sizes of a nano model's run, from random games.

    `given` are the dotted keys of the user's settings, and `history` is what prompts show. Turns of
    each of `seats` seats are cut into parts of `segment` where episodes also begin in states that
    earlier ones reached (`restarts`).
    """

    shown: Survey
    trainer: GrpoConfig
    given: Collection[str]
    history: str
    seats: int
    restarts: bool
    segment: int

    @property
    def rows(self) -> int:
        """The rows of a step of the warm-up: fewer where they are long, for more steps."""
        tokens = self._tokens_of_a_turn()
        if self.history == "full":
            tokens *= min(self.shown.groups.own_length, MOST_TURNS)  # a row is a whole game
        return int(min(max(WARM_TOKENS / tokens, FEWEST_ROWS), MOST_ROWS))

    @property
    def perception_tasks(self) -> int:
        """The states after which a check of the warm-up asks for a reply."""
        return self._affordable(max(MOST_ROWS, 4 * self.rows), games=0.5)  # one is half a game away

    def _affordable(self, tasks: int, games: float) -> int:
        """Return `tasks` of which each takes so many games, or fewer where steps take long."""
        if self.shown.groups.seconds < SLOW:
            return tasks
        fitting = round(GAME_TURNS / (games * max(self.shown.groups.length, 1.0)))
        return min(tasks, max(fitting, FEWEST_TASKS))

    def episodes(self, because: Because) -> Data:
        """Return how many tasks an iteration has, how many episodes of each, and their length."""
        length, size = self.shown.groups.length, self.trainer.group_size
        reason = f"a random episode has {length:.3g} turns in the mean"
        left: Data = {}
        if self.restarts:
            why = "an iteration has many short parts of long games, side by side"
            most = self.seats * self.segment
            if 2 * most < self.shown.cap:
                left = {"max_turns": because("trainer.max_turns", most, why)}
                length = min(length, most)
            if "trainer.group_size" not in self.given:
                why = "where games are long, more states are compared by fewer episodes each"
                size = because("trainer.group_size", LONG_GROUP, why)
        turns = min(GAME_TURNS, GAME_TOKENS / self._tokens_of_a_turn())
        episodes = min(max(turns / length, FEWEST_EPISODES), MOST_EPISODES)
        tasks = max(2, round(episodes / size), self.trainer.minibatches)
        return {
            "tasks_per_iteration": because("trainer.tasks_per_iteration", tasks, reason),
            "group_size": size,
            "minibatches": min(NANO_MINIBATCHES, tasks, self.trainer.tasks_per_iteration),
            **left,
        }

    def _tokens_of_a_turn(self) -> float:
        """Return about how many tokens the row of a mean turn of random play has."""
        more = tokens_of_a_turn(self.shown)
        turns = [words + more for game in self.shown.games for words in game.words]
        alone = sum(turns) / max(len(turns), 1)
        shown = {"observation": 1.0, "last_n": 1.0 + AgentConfig().kept_turns}
        return alone * shown.get(self.history, 1.0)  # a whole past is one row for all its turns

    def validation(self, sizes: Data, because: Because) -> Data:
        """Return how the policy is validated, and how often, by the `sizes` of an iteration."""
        episodes = sizes["tasks_per_iteration"] * sizes["group_size"]
        wanted = LONG_VALIDATION if self.restarts else EVALUATION["validation_tasks"]
        tasks = self._affordable(wanted, games=DECODINGS)
        length = self.shown.groups.length
        share = min(1.0, sizes.get("max_turns", length) / length)  # of a game that training plays
        every = DECODINGS * tasks / (VALIDATED * episodes * share)
        every = max(1, min(round(every), self.trainer.iterations // LEAST_VALIDATIONS))
        reason = f"an iteration has {episodes} episodes"
        found = EVALUATION | {"every": because("evaluation.every", every, reason)}
        if tasks < wanted:
            reason = "steps of the env take long"
            because("evaluation.validation_tasks", tasks, reason)
        return found | {"validation_tasks": tasks}
