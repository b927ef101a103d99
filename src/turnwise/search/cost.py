"""The tokens of an endpoint search before it starts, estimated from the length of its prompts."""

from __future__ import annotations

from dataclasses import dataclass

from turnwise.search.config import SearchConfig
from turnwise.search.history import History
from turnwise.search.problem import Problem
from turnwise.search.prompts import prompt_text

CHARACTERS_PER_TOKEN = 3.0
"""Numbers, brackets and commas are cut into shorter tokens than words are."""
SCORE, STEP, REASON = 40, 11, 200
"""Characters of a score, of a step of a shown episode, and of a reply's second line."""


@dataclass(frozen=True, kw_only=True, slots=True)
class Estimate:
    """What a search will ask for: its calls, and about how many tokens."""

    calls: int
    prompt_tokens: int
    completion_tokens: int


def tokens_in(text: str) -> int:
    """Return about how many tokens a text has.

    Example:
        >>> tokens_in("params[0]: 1.2")
        5
    """
    return round(len(text) / CHARACTERS_PER_TOKEN)


def estimate(config: SearchConfig, problem: Problem, history: History) -> Estimate:
    """Return what is left of a search, if every reply can be used."""
    budget, shown, prompt = config.budget, config.shown, config.prompt
    total, known = budget.iterations, max(len(history.tries), budget.warmup)
    calls = sum(not budget.plays_again(slot, total) for slot in range(history.slots, total))
    calls = min(calls, max(problem.space.policies - known, 0))
    bare = prompt_text(
        problem, History(), prompt=prompt, shown=shown, iteration=1,
        iterations=total, episodes=budget.episodes,
    )  # fmt: skip
    params = problem.space.text((problem.space.high,) * problem.space.count)
    steps = STEP * prompt.steps if prompt.kind == "props+" and problem.space.choices else 0
    line = len(params) + SCORE + steps
    lines = known + calls / 2 if shown.rule == "all" else sum(shown.most)
    return Estimate(
        calls=calls,
        prompt_tokens=round(calls * (len(bare) + lines * line) / CHARACTERS_PER_TOKEN),
        completion_tokens=calls * tokens_in(params + " " * REASON),
    )
