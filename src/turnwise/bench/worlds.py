"""A world of many turns that costs nothing: it says random words, whatever it is told.

Task: one of a work's prompts. Sees: the prompt, then new words every turn.
Actions: any text; the whole reply is the answer.
Rewards: `luck`, a number that depends on every token of the episode.
End: after `turns` turns.
Baselines: random.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from typing import Any, ClassVar

import numpy as np
from pydantic import Field

from turnwise.bench.works import WORDS, Words, Work, reward_of
from turnwise.envs.base import Env, Level, Observation, ScoredBy, Settlement, Step
from turnwise.noise import generator
from turnwise.settings import Settings
from turnwise.types import Episode, Split, Task


class TalkConfig(Settings):
    """How many there are to talk to, for how long, and how much is said to each."""

    prompts: int = Field(default=8, ge=1)
    turns: int = Field(default=20, ge=1)
    first_words: int = Field(default=190, ge=1)
    later_words: int = Field(default=30, ge=1)


@dataclass(frozen=True)
class TalkState:
    """Whom the world talks to, and the turn."""

    index: int
    turn: int = 0


class Talk(Env[TalkState]):
    """Random words in many turns."""

    name = "talk"
    config_class = TalkConfig
    components: ClassVar[Mapping[str, Level]] = {"luck": "agent"}
    reward_timing = "terminal"
    scored_by: ClassVar[ScoredBy] = "return"

    def __init__(self, config: TalkConfig | None = None) -> None:
        super().__init__(config or TalkConfig())

    def listed(self, split: Split) -> Sequence[Mapping[str, Any]]:
        """Return all whom it talks to, in every split."""
        return [{"index": index} for index in range(self.config.prompts)]

    @property
    def fixed(self) -> bool:
        """Whether tasks are in every split: they are."""
        return True

    def reset(self, task: Task) -> TalkState:
        """Begin to talk."""
        return TalkState(index=task.data["index"])

    def observe(self, state: TalkState, role: str) -> Observation:
        """Say the words of this turn."""
        return Observation(text=words_of(self.config, state.index, state.turn), legal=())

    def step(
        self, state: TalkState, role: str, action: str, noise: np.random.Generator
    ) -> Step[TalkState]:
        """Go on to the next turn."""
        after = TalkState(index=state.index, turn=state.turn + 1)
        over = after.turn == self.config.turns
        return Step(state=after, rewards={}, terminated=over, truncated=False)

    async def settle(self, episodes: Sequence[Episode], iterations: int) -> Settlement:
        """Reward every episode by all of its tokens after the first prompt."""
        found: list[Mapping[str, float]] = []
        for episode in episodes:
            last = episode.turns[-1]
            ids = (*last.prompt_ids, *last.completion_ids)
            found.append({"luck": reward_of(ids[len(episode.turns[0].prompt_ids) :])})
        return Settlement(rewards=tuple(found))

    def score(self, state: TalkState) -> float:
        """Return 0: the reward is all."""
        return 0.0

    def random_action(self, state: TalkState, role: str, rng: np.random.Generator) -> str:
        """Return a random word."""
        return str(rng.choice(WORDS))


def talk_of(work: Work, words: Words) -> TalkConfig:
    """Return the options of a work's world."""
    return TalkConfig(
        prompts=work.prompts,
        turns=work.turns,
        first_words=words.first,
        later_words=words.later,
    )


def words_of(config: TalkConfig, index: int, turn: int) -> str:
    """Return what the world says to `index` in a turn."""
    rng = generator(0, "talk", index, turn)
    return " ".join(rng.choice(WORDS, config.later_words if turn else config.first_words))
