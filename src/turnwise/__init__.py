"""turnwise: train language-model agents, alone or in teams, by playing.

    import turnwise as tw

    recipe = tw.load_recipe("frozen-lake", ["preset=fast"])
    outcome = tw.train(recipe)
    print(outcome.scores.score, outcome.scores.baselines)

The names below are the public ones; they are imported when first used, so that tools which only
read runs never load torch.
"""

from __future__ import annotations

import importlib
from typing import TYPE_CHECKING, Any

if TYPE_CHECKING:
    from turnwise.api import Outcome
    from turnwise.envs import Env, Observation, Step, check_env, make_env
    from turnwise.front import train
    from turnwise.policies import PolicyConfig
    from turnwise.recipe import Recipe, load_recipe, recipe_names
    from turnwise.scoring import evaluate_run, play_run
    from turnwise.types import Episode, Task, Turn

_HOMES = {
    "Env": "envs",
    "Episode": "types",
    "Observation": "envs",
    "Outcome": "api",
    "PolicyConfig": "policies",
    "Recipe": "recipe",
    "Step": "envs",
    "Task": "types",
    "Turn": "types",
    "check_env": "envs",
    "evaluate_run": "scoring",
    "load_recipe": "recipe",
    "make_env": "envs",
    "play_run": "scoring",
    "recipe_names": "recipe",
    "train": "front",
}

__all__ = [
    "Env",
    "Episode",
    "Observation",
    "Outcome",
    "PolicyConfig",
    "Recipe",
    "Step",
    "Task",
    "Turn",
    "check_env",
    "evaluate_run",
    "load_recipe",
    "make_env",
    "play_run",
    "recipe_names",
    "train",
]


def __getattr__(name: str) -> Any:
    """Import a public name from its home."""
    if name not in _HOMES:
        raise AttributeError(f"turnwise has no public name {name!r}; it has {', '.join(__all__)}")
    return getattr(importlib.import_module(f"turnwise.{_HOMES[name]}"), name)
