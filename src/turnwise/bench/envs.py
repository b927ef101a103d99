"""An env of many turns without cost: its observations are random words.

Task: one prompt of a workload. Sees: the prompt, then new words in every turn; with tools, as the
result of a tool, whatever was called.
Actions: any text; the whole reply is the answer.
Rewards: `luck`, a number that depends on every token of the episode.
End: after `turns` turns.
Baselines: random.
"""

from __future__ import annotations

import json
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from typing import Any, ClassVar

import numpy as np
from pydantic import Field

from turnwise.bench.tools import tool_schemas
from turnwise.bench.workloads import WORDS, Words, Workload, extra, reward_of
from turnwise.envs.base import BatchRewards, Env, Level, Observation, ScoredBy, Step
from turnwise.seeding import generator
from turnwise.settings import Settings
from turnwise.types import Episode, Message, Split, Task


class RandomWordsConfig(Settings):
    """The number of prompts and turns, and the words of each observation.

    Later observations have up to `spread` words more than `later_words`.
    """

    prompts: int = Field(default=8, ge=1)
    turns: int = Field(default=20, ge=1)
    first_words: int = Field(default=190, ge=1)
    later_words: int = Field(default=30, ge=1)
    spread: int = Field(default=0, ge=0)
    tools: bool = False


@dataclass(frozen=True)
class RandomWordsState:
    """The index of the prompt, and the turn."""

    index: int
    turn: int = 0


class RandomWords(Env[RandomWordsState]):
    """Random words in many turns."""

    name = "talk"
    config_class = RandomWordsConfig
    components: ClassVar[Mapping[str, Level]] = {"luck": "agent"}
    reward_timing = "terminal"
    scored_by: ClassVar[ScoredBy] = "return"

    def __init__(self, config: RandomWordsConfig | None = None) -> None:
        super().__init__(config or RandomWordsConfig())
        shown = tool_schemas() if self.config.tools else []
        self._schemas = tuple(json.dumps(schema) for schema in shown)

    def tasks(self, split: Split) -> Sequence[Mapping[str, Any]]:
        """Return all prompts, in every split."""
        return [{"index": index} for index in range(self.config.prompts)]

    @property
    def single_task(self) -> bool:
        """Whether every split has the same tasks: always true."""
        return True

    def reset(self, task: Task) -> RandomWordsState:
        """Return the state before the first turn."""
        return RandomWordsState(index=task.data["index"])

    def observe(self, state: RandomWordsState, role: str) -> Observation:
        """Return the words of this turn."""
        text = words_of(self.config, state.index, state.turn)
        told = self._schemas and state.turn
        messages = (Message(role="tool", content=text),) if told else ()
        return Observation(text=text, legal_actions=(), messages=messages, tools=self._schemas)

    def step(
        self, state: RandomWordsState, role: str, action: str, noise: np.random.Generator
    ) -> Step[RandomWordsState]:
        """Advance to the next turn."""
        after = RandomWordsState(index=state.index, turn=state.turn + 1)
        over = after.turn == self.config.turns
        return Step(state=after, rewards={}, terminated=over, truncated=False)

    async def score_batch(self, episodes: Sequence[Episode], iterations: int) -> BatchRewards:
        """Return a reward for each episode, from all tokens after the first prompt."""
        found: list[Mapping[str, float]] = []
        for episode in episodes:
            last = episode.turns[-1]
            ids = (*last.prompt_ids, *last.completion_ids)
            found.append({"luck": reward_of(ids[len(episode.turns[0].prompt_ids) :])})
        return BatchRewards(rewards=tuple(found))

    def score(self, state: RandomWordsState) -> float:
        """Return 0; the reward is the score."""
        return 0.0

    def random_action(self, state: RandomWordsState, role: str, rng: np.random.Generator) -> str:
        """Return a random word."""
        return str(rng.choice(WORDS))


def words_config(workload: Workload, words: Words) -> RandomWordsConfig:
    """Return the options of the env for a workload."""
    return RandomWordsConfig(
        prompts=workload.prompts,
        turns=workload.turns,
        first_words=words.first,
        later_words=words.later,
        spread=workload.observed_spread,
        tools=bool(words.system),
    )


def words_of(config: RandomWordsConfig, index: int, turn: int) -> str:
    """Return the words of prompt `index` in a turn."""
    rng = generator(0, "talk", index, turn)
    later = config.later_words + extra(config.spread, index, turn)
    return " ".join(rng.choice(WORDS, later if turn else config.first_words))
