"""The published FrozenLake task for Gemma-2B, with one option for each cause of its failure.

Task: gymnasium's slippery 4x4 lake; one state is one task, whose answer is judged by expert values.
    `steps` and `visits` make whole episodes of it, which the published run never played.
What each role sees: the only role, `player`, reads a task text, worked examples and its state;
    `prompt`, `examples` and `keep` say how, and `lake_prompt.py` in which words.
Actions: any text, so the agent answers with its whole reply (`answer = "whole"`); what stands in
    its last <answer> tag, exactly one of LEFT, DOWN, RIGHT, UP, is done. Else nothing is, and the
    episode is over.
Rewards: all `process`. As published, with weights of a half each: `format`, 1 if both pairs of tags
    are there; `advantage`, the action's optimal value, min-max normalised over the four; `bonus`,
    what 0.2 for the expert's own action adds to that under a cap of 1: nothing, since the expert's
    action has advantage 1. Other designs: `gated`, the advantage of a reply in the format;
    `match`, 1 for an action as good as the best; `rank`, the share of the other actions that are
    worse; `value`, the optimal value itself, whose gaps are small; `goal`, 1 on reaching the goal.
End: terminated on the goal, in a hole and by an answer that is no action; truncated after `steps`.
    The score is 1 on the goal, else 0.
Baselines: those of frozen-lake, in the published format.

Example:
    >>> env = FrozenLakePublished()
    >>> state = env.reset(Task(id="t", env=env.name, seed=0, data={"cell": 8, "last": 0}))
    >>> env.observe(state, "player").text.splitlines()[-3].replace(chr(27), "<esc>")
    '(Left)|SFFF|FHFH|<esc>[41mF<esc>[0mFFH|HFFG'
    >>> step = env.step(state, "player", reply(1), np.random.default_rng(0))
    >>> {name: round(value, 2) for name, value in step.rewards.items() if value}
    {'format': 1.0, 'advantage': 0.13, 'gated': 0.13, 'rank': 0.67, 'value': 0.41}
"""

from __future__ import annotations

import re
from collections.abc import Mapping
from dataclasses import dataclass, replace
from functools import partial
from typing import Any, ClassVar, Literal

import numpy as np
from pydantic import Field, model_validator

from turnwise.envs.base import Baseline, Chances, Env, Exact, Level, Observation, Step
from turnwise.envs.lake_baselines import lake_baselines
from turnwise.envs.lake_chain import free_cells
from turnwise.envs.lake_maps import ACTIONS, lake_of
from turnwise.envs.lake_prompt import (
    EXAMPLES,
    STANDARD,
    ExampleRule,
    PromptRule,
    cut_left,
    prompt_text,
    prompt_words,
    reply,
)
from turnwise.envs.lake_solver import Array, action_values, slide
from turnwise.envs.lake_state import LakeState, render_lake
from turnwise.envs.lake_visits import (
    NONE_YET,
    even_visits,
    expert_visits,
    player_measures,
    with_bonus,
    worths,
)
from turnwise.errors import DataError, EnvError
from turnwise.settings import Settings
from turnwise.types import Task

Habit = Literal["uniform", "forward", "copied"]
FORWARD = (0.05, 0.45, 0.45, 0.05)
"""How a model that knows nothing of slips answers: towards the goal."""
COPIED = 0.9
"""How often a model that copies gives an answer of the examples."""
_ANSWER = re.compile(r"<answer>(.*?)</answer>", re.DOTALL)
_THINK = re.compile(r"<think>.*?</think>", re.DOTALL)


class FrozenLakePublishedConfig(Settings):
    """The causes, one option each; the defaults are as published, played from the start."""

    prompt: PromptRule = "published"
    """How the state is shown: as published, or plainly (`lake_prompt.prompt_text`)."""
    examples: ExampleRule = "wrong"
    """The answers of the three worked examples; "none" leaves the examples out."""
    keep: int = Field(default=155, ge=0)
    """How many of the prompt's last words are kept; 0 keeps all. Published: 512 tokens, so that
    every prompt had lost the task's text and the head of its first example; so it is at 155, which
    cuts 42 of 197 words."""
    visits: Literal["start", "expert", "even"] = "start"
    """Where an episode begins: on the start, in a state of expert data, or on any cell evenly."""
    steps: int = Field(default=100, ge=1)
    """Steps in an episode; 1, as published, judges single answers."""
    habit: Habit = "uniform"
    """What a random action is, and so what demonstrations show: any; DOWN or RIGHT, nine times in
    ten; or, as often, what one of the examples answers."""

    thought: Literal["onward", "cell"] = "onward"
    """What demonstrations think: the same word in every state, or the name of the cell, which only
    a base can say that has learned to read the board."""

    @model_validator(mode="after")
    def _check(self) -> FrozenLakePublishedConfig:
        if self.habit == "copied" and self.examples == "none":
            raise ValueError(
                'habit = "copied" copies answers of examples, and examples = "none": show some, '
                "or take another habit"
            )
        return self


@dataclass(frozen=True, kw_only=True, slots=True)
class PublishedState:
    """A state of the lake, the last action (None before the first), and whether the reply was none.

    Example:
        >>> PublishedState(lake=LakeState(
        ...     map=STANDARD, position=0, steps=0, limit=1, slippery=True)).ended
        False
    """

    lake: LakeState
    last: int | None = None
    spoilt: bool = False

    @property
    def ended(self) -> bool:
        """Whether the episode is over."""
        return self.spoilt or self.lake.ended


class FrozenLakePublished(Env[PublishedState]):
    """The world that the head of this file describes."""

    name: ClassVar[str] = "frozen-lake-published"
    config_class: ClassVar[type[Settings]] = FrozenLakePublishedConfig
    components: ClassVar[Mapping[str, Level]] = {
        "format": "process",
        "advantage": "process",
        "bonus": "process",
        "gated": "process",
        "match": "process",
        "rank": "process",
        "value": "process",
        "goal": "process",
    }

    def __init__(self, config: FrozenLakePublishedConfig | None = None) -> None:
        self.config = config or FrozenLakePublishedConfig()
        self.max_turns = self.config.steps

    @property
    def fixed(self) -> bool:
        """All tasks are states of one map."""
        return True

    def generate(self, rng: np.random.Generator) -> dict[str, Any]:
        """Draw where an episode begins: `cell`, and the `last` action before it or None."""
        if self.config.visits == "start":
            return {"cell": lake_of(STANDARD).start, "last": None}
        shares = expert_visits() if self.config.visits == "expert" else even_visits()
        place = int(rng.choice(shares.size, p=shares.ravel()))
        cell, last = divmod(place, shares.shape[1])
        return {"cell": cell, "last": None if last == NONE_YET else last}

    def canonical(self, data: Mapping[str, Any]) -> str:
        """Return the map, which is one."""
        return "/".join(STANDARD)

    def reset(self, task: Task) -> PublishedState:
        """Return the first state of `task`.

        Raises:
            DataError: if the task's data name no free cell or no action.
        """
        cell, last = task.data.get("cell"), task.data.get("last")
        if cell not in free_cells(STANDARD) or last not in (None, *range(len(ACTIONS))):
            raise DataError(
                f"task {task.id!r} has cell = {cell!r}, last = {last!r}: expected one of the cells "
                f"{free_cells(STANDARD)}, and 0 to 3 or None"
            )
        return self._state(cell, last)

    def _state(self, cell: int, last: int | None) -> PublishedState:
        limit = self.config.steps
        lake = LakeState(map=STANDARD, position=cell, steps=0, limit=limit, slippery=True)
        return PublishedState(lake=lake, last=last)

    def observe(self, state: PublishedState, role: str) -> Observation:
        """Return the prompt; as published it is no chat."""
        rule, cell = self.config.prompt, state.lake.position
        text = prompt_text(cell, state.last, prompt=rule, examples=self.config.examples)
        return Observation(
            text=cut_left(text, self.config.keep),
            legal=(),
            raw=rule == "published",
            description=state.lake.lake.name(cell) if self.config.thought == "cell" else "",
        )

    def step(
        self, state: PublishedState, role: str, action: str, noise: np.random.Generator
    ) -> Step[PublishedState]:
        """Return what a reply leads to; one uniform is drawn.

        Raises:
            EnvError: if the episode is over.
        """
        if state.ended:
            raise EnvError(f"{self.name}: the episode is over, so it takes no step: reset a task")
        uniform, chosen = noise.random(), read_reply(action)
        if chosen is None:
            return Step(
                state=replace(state, spoilt=True),
                rewards=reply_rewards(state.lake.position, action),
                terminated=True,
                truncated=False,
            )
        moves = state.lake.lake.moves[state.lake.position]
        after = replace(
            state.lake, position=moves[slide(chosen, uniform)], steps=state.lake.steps + 1
        )
        terminated = after.at_goal or after.in_hole
        return Step(
            state=PublishedState(lake=after, last=chosen),
            rewards=reply_rewards(state.lake.position, action) | {"goal": float(after.at_goal)},
            terminated=terminated,
            truncated=not terminated and after.left <= 0,
        )

    def score(self, state: PublishedState) -> float:
        """Return 1 on the goal, else 0."""
        return float(state.lake.at_goal)

    def state_key(self, state: PublishedState, role: str) -> str:
        """Return cell, last action, steps left, and whether the episode was spoilt."""
        lake = state.lake
        return f"{lake.position}/{state.last}/{lake.left}/{state.spoilt}"

    def baselines(self) -> Mapping[str, Baseline]:
        """Return frozen-lake's players, who reply in the published format."""
        return {name: partial(_replying, player) for name, player in lake_baselines().items()}

    def random_action(self, state: PublishedState, role: str, rng: np.random.Generator) -> str:
        """Return a reply in the published format that follows `habit` and `thought`."""
        uniform = np.full(len(ACTIONS), 1 / len(ACTIONS))
        chances = np.array(FORWARD) if self.config.habit == "forward" else uniform
        if self.config.habit == "copied":
            shown = [answer for _, answer in EXAMPLES[self.config.examples]]
            shares = np.bincount(shown, minlength=len(ACTIONS)) / len(shown)
            chances = COPIED * shares + (1 - COPIED) * uniform
        action = int(rng.choice(len(ACTIONS), p=chances))
        thought = self.observe(state, role).description
        return reply(action, thought) if thought else reply(action)

    def exact(self, task: Task) -> Exact[PublishedState]:
        """Return how to compute what a player is worth: `lake_visits.player_measures`.

        A decision is a cell, and where the prompt shows it the last action.
        """
        lasts = (None,) if self.config.prompt == "plain" else (None, *range(len(ACTIONS)))
        cells = free_cells(STANDARD)
        states = {self._decision(c, last): self._state(c, last) for c in cells for last in lasts}

        def measure(chances: Chances) -> dict[str, float]:
            player = np.zeros((len("".join(STANDARD)), NONE_YET + 1, len(ACTIONS)))
            formatted = np.zeros(player.shape[:2])
            for cell in cells:
                for last in range(NONE_YET + 1):
                    name = self._decision(cell, None if last == NONE_YET else last)
                    formatted[cell, last] = _count(chances[name], player[cell, last])
            return player_measures(player, formatted, self.config.steps)

        best = worths()[1].argmax(axis=1)
        players: dict[str, Chances] = {
            "random": {name: {reply(a): 0.25 for a in range(len(ACTIONS))} for name in states}
        }
        for number, action in enumerate(ACTIONS):
            players[f"always-{action.lower()}"] = {name: {reply(number): 1.0} for name in states}
        players["stationary"] = {
            name: {reply(int(best[state.lake.position])): 1.0} for name, state in states.items()
        }
        return Exact(decisions=states, players=players, measure=measure)

    def _decision(self, cell: int, last: int | None) -> str:
        name = lake_of(STANDARD).name(cell)
        if last is None or self.config.prompt == "plain":
            return name
        return f"{name} after {ACTIONS[last]}"

    def words(self) -> tuple[str, ...]:
        """Return every word of prompts and replies but for the printed boards."""
        return prompt_words()

    def render(self, state: PublishedState) -> str:
        """Return the map with the player in brackets."""
        return render_lake(state.lake)


def read_reply(text: str) -> int | None:
    """Return the action that a reply answers with, None unless its last answer is exactly one.

    Example:
        >>> read_reply("<answer> DOWN </answer>"), read_reply("<answer>go DOWN</answer>")
        (1, None)
    """
    found = _ANSWER.findall(text)
    word = found[-1].strip() if found else ""
    return ACTIONS.index(word) if word in ACTIONS else None


def has_format(text: str) -> bool:
    """Return whether both pairs of tags are in a reply, whatever stands in them.

    Example:
        >>> has_format("<think></think> <answer> so </answer>"), has_format("<answer></answer>")
        (True, False)
    """
    return _THINK.search(text) is not None and _ANSWER.search(text) is not None


def reply_rewards(cell: int, text: str) -> dict[str, float]:
    """Return the reward components of a reply in `cell`, but for `goal`."""
    rewards = {"format": float(has_format(text))}
    action = read_reply(text)
    if action is None:
        return rewards
    worth, matches = worths()
    values = action_values(STANDARD, True)[cell]
    own = worth[cell, action]
    rewards |= {
        "advantage": float(own),
        "bonus": float(with_bonus(worth, matches)[cell, action] - own),
        "gated": float(own) * rewards["format"],
        "match": float(own == worth[cell].max()),
        "rank": float((worth[cell] < own).sum()) / (len(ACTIONS) - 1),
        "value": float(values[action]),
    }
    return rewards


def _replying(player: Baseline, state: PublishedState, rng: np.random.Generator) -> str:
    return reply(ACTIONS.index(player(state.lake, rng)))


def _count(said: Mapping[str, float], actions: Array) -> float:
    """Add the chances of replies to those of their actions [A]; return that of the format."""
    formatted = 0.0
    for text, chance in said.items():
        action = read_reply(text)
        formatted += chance * has_format(text)
        if action is not None:
            actions[action] += chance
    return formatted
