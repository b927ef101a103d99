"""The published FrozenLake task for Gemma-2B, with one option for each cause of its failure.

Task: gymnasium's slippery 4x4 lake. One state is one task, whose answer is scored by expert values.
    `steps` and `visits` make whole episodes of it, which the published run did not have.
What each role sees: the only role, `player`, reads a task text, worked examples and its state, as
    `prompt`, `examples` and `keep` specify; `published_prompt.py` has the texts.
Actions: any text, so the agent answers with its whole reply (`reply = "whole"`). The action is the
    content of its last <answer> tag, exactly one of LEFT, DOWN, RIGHT, UP. Any other content is no
    action and ends the episode.
Rewards: all `process`. As published, with weights of a half each: `format`, 1 if both pairs of tags
    are there; `advantage`, the action's optimal value, min-max normalised over the four; `bonus`,
    the increase of that by 0.2 for the expert's own action under a cap of 1: nothing, since the
    expert's action has advantage 1. Other designs: `gated`, the advantage of a reply in the format;
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

from collections.abc import Mapping
from dataclasses import dataclass, replace
from functools import partial
from typing import Any, ClassVar, Literal

import numpy as np
from pydantic import Field, model_validator

from turnwise.envs.base import ActionProbabilities, Baseline, Env, Exact, Level, Observation, Step
from turnwise.envs.frozen_lake.baselines import lake_baselines
from turnwise.envs.frozen_lake.exact import free_cells
from turnwise.envs.frozen_lake.maps import ACTIONS, lake_of
from turnwise.envs.frozen_lake.published_baselines import (
    NONE_YET,
    even_visits,
    expert_visits,
    player_measures,
    with_bonus,
    worths,
)
from turnwise.envs.frozen_lake.published_prompt import (
    EXAMPLES,
    STANDARD,
    ExampleRule,
    PromptRule,
    cut_left,
    prompt_text,
    prompt_words,
    reply,
)
from turnwise.envs.frozen_lake.solver import Array, action_values, slide
from turnwise.envs.frozen_lake.state import LakeState, render_lake
from turnwise.errors import DataError, EnvError
from turnwise.formats import pairs_in
from turnwise.settings import Settings
from turnwise.types import Task

Habit = Literal["uniform", "forward", "copied"]
FORWARD = (0.05, 0.45, 0.45, 0.05)
"""The action probabilities of a model that ignores slips: towards the goal."""
COPIED = 0.9
"""The probability that a copying model gives an answer of the examples."""


class FrozenLakePublishedConfig(Settings):
    """One option for each cause; the defaults are the published task, from its start."""

    prompt: PromptRule = "published"
    """The text of the state: as published, or plain (`published_prompt.prompt_text`)."""
    examples: ExampleRule = "wrong"
    """The answers of the three worked examples; "none" leaves the examples out."""
    keep: int = Field(default=155, ge=0)
    """The number of last words of the prompt that are kept; 0 keeps all. The published run kept 512
    tokens, which removed the task text and the head of the first example from every prompt. 155
    words have the same effect: they remove 42 of 197 words."""
    visits: Literal["start", "expert", "even"] = "start"
    """The start of an episode: the S, a state of expert data, or a uniformly drawn cell."""
    steps: int = Field(default=100, ge=1)
    """Steps in an episode; 1, as published, scores single answers."""
    habit: Habit = "uniform"
    """The actions of random play and of demonstrations: uniform; DOWN or RIGHT nine times in ten;
    or, as often, the answer of one of the examples."""

    thought: Literal["onward", "cell"] = "onward"
    """The thought in demonstrations: one constant word, or the name of the cell, which requires a
    model that has learned to read the board."""

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
    """The env described in the docstring of this module."""

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
    def single_task(self) -> bool:
        """All tasks are states of one map."""
        return True

    def generate(self, rng: np.random.Generator) -> dict[str, Any]:
        """Draw the start of an episode: `cell`, and the `last` action before it or None."""
        if self.config.visits == "start":
            return {"cell": lake_of(STANDARD).start, "last": None}
        shares = expert_visits() if self.config.visits == "expert" else even_visits()
        place = int(rng.choice(shares.size, p=shares.ravel()))
        cell, last = divmod(place, shares.shape[1])
        return {"cell": cell, "last": None if last == NONE_YET else last}

    def canonical(self, data: Mapping[str, Any]) -> str:
        """Return the only map."""
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
        """Return the prompt; the published form is not a chat."""
        rule, cell = self.config.prompt, state.lake.position
        text = prompt_text(cell, state.last, prompt=rule, examples=self.config.examples)
        return Observation(
            text=cut_left(text, self.config.keep),
            legal_actions=(),
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
        """Return cell, last action, steps left, and whether a reply was no action."""
        lake = state.lake
        return f"{lake.position}/{state.last}/{lake.left}/{state.spoilt}"

    def baselines(self) -> Mapping[str, Baseline]:
        """Return the baselines of frozen-lake, with replies in the published format."""
        return {name: partial(_replying, player) for name, player in lake_baselines().items()}

    def random_action(self, state: PublishedState, role: str, rng: np.random.Generator) -> str:
        """Return a reply in the published format that follows `habit` and `thought`."""
        uniform = np.full(len(ACTIONS), 1 / len(ACTIONS))
        probabilities = np.array(FORWARD) if self.config.habit == "forward" else uniform
        if self.config.habit == "copied":
            shown = [answer for _, answer in EXAMPLES[self.config.examples]]
            shares = np.bincount(shown, minlength=len(ACTIONS)) / len(shown)
            probabilities = COPIED * shares + (1 - COPIED) * uniform
        action = int(rng.choice(len(ACTIONS), p=probabilities))
        thought = self.observe(state, role).description
        return reply(action, thought) if thought else reply(action)

    def exact(self, task: Task) -> Exact[PublishedState]:
        """Return a function that computes the exact measures of `published_baselines`.

        A decision depends on the cell and, if the prompt shows it, on the last action.
        """
        lasts = (None,) if self.config.prompt == "plain" else (None, *range(len(ACTIONS)))
        cells = free_cells(STANDARD)
        states = {self._decision(c, last): self._state(c, last) for c in cells for last in lasts}

        def measure(probabilities: ActionProbabilities) -> dict[str, float]:
            player = np.zeros((len("".join(STANDARD)), NONE_YET + 1, len(ACTIONS)))
            formatted = np.zeros(player.shape[:2])
            for cell in cells:
                for last in range(NONE_YET + 1):
                    name = self._decision(cell, None if last == NONE_YET else last)
                    formatted[cell, last] = _count(probabilities[name], player[cell, last])
            return player_measures(player, formatted, self.config.steps)

        best = worths()[1].argmax(axis=1)
        players: dict[str, ActionProbabilities] = {
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

    def vocabulary(self) -> tuple[str, ...]:
        """Return every word of prompts and replies except the printed boards."""
        return prompt_words()

    def render(self, state: PublishedState) -> str:
        """Return the map with the player in brackets."""
        return render_lake(state.lake)


def read_reply(text: str) -> int | None:
    """Return the action of a reply, or None unless its last answer is exactly one action.

    Example:
        >>> read_reply("<answer> DOWN </answer>"), read_reply("<answer>go DOWN</answer>")
        (1, None)
    """
    found = pairs_in(text, "<answer>", "</answer>")
    word = text[slice(*found[-1])].strip() if found else ""
    return ACTIONS.index(word) if word in ACTIONS else None


def has_format(text: str) -> bool:
    """Return whether a reply has both pairs of tags, with any content.

    Example:
        >>> has_format("<think></think> <answer> so </answer>"), has_format("<answer></answer>")
        (True, False)
    """
    pairs = (("<think>", "</think>"), ("<answer>", "</answer>"))
    return all(pairs_in(text, opening, closing) for opening, closing in pairs)


def reply_rewards(cell: int, text: str) -> dict[str, float]:
    """Return the reward components of a reply in `cell`, except `goal`."""
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
    """Add the probabilities of replies to those of actions [A]; return that of the format."""
    formatted = 0.0
    for text, chance in said.items():
        action = read_reply(text)
        formatted += chance * has_format(text)
        if action is not None:
            actions[action] += chance
    return formatted
