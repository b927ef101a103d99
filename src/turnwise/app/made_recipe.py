"""The recipe of a call of `turnwise.train`: what was given, completed by defaults.

Provides `recipe_for_rows`, `recipe_for_env` and `MadeRecipe`. The defaults are TRL's where TRL has
one (docs/from-trl.md), but for the rate, and what `recipe.env_defaults` and `recipe.rows_defaults`
choose for the env or the rows.
"""

from __future__ import annotations

import math
import re
import tempfile
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass, field, replace
from pathlib import Path
from typing import Any

from turnwise.envs import IMPORTING, Env, find_env
from turnwise.envs.checks.declarations import check_names
from turnwise.envs.rows.env import Rows
from turnwise.envs.rows.reward_functions import load_functions
from turnwise.errors import ConfigError
from turnwise.policies import is_nano, nano_preset
from turnwise.recipe.env_defaults import env_recipe
from turnwise.recipe.fit import setting_at
from turnwise.recipe.from_python import (
    Data,
    as_text,
    env_section,
    reward_names,
    table_of,
    weights_of,
)
from turnwise.recipe.rows_defaults import rows_recipe
from turnwise.recipe.schema import Recipe, make_recipe
from turnwise.trainers.config import MOST_MINUTES

FILES = {"path": "rows.jsonl", "eval_path": "eval_rows.jsonl"}
"""Option of the rows -> the file in the run folder that keeps them."""
PASSES = 3
"""The default number of passes over the rows."""
ITERATIONS, PER_MINUTE = 100, 500
"""The default number of iterations in an env. Where `trainer.minutes` is given and their number is
not, it is `PER_MINUTE` for each minute, which is more than there is time for."""
PROMPTS = 8
"""Prompts of one iteration by default, each answered `group_size` times."""
TRL_OPTIMIZER = {"lr": "auto", "betas": [0.9, 0.999], "schedule": "linear"}
TRL_LR = 1e-6
"""The rate at which "auto" begins for a model that is trained as it is."""
TRL_TOKENS = 512
NANO_LR, NANO_TOKENS = 3e-3, 64
"""For models made on the spot that rows train, whose weights are random and context is short."""


@dataclass(frozen=True, kw_only=True, slots=True)
class MadeRecipe:
    """A recipe as plain values; and the text of files beside it, by the env's option for each."""

    data: Data
    tables: Mapping[str, str]
    reasons: Mapping[str, str] = field(default_factory=dict)

    @property
    def files(self) -> dict[str, str]:
        """File name -> text."""
        return {FILES[option]: text for option, text in self.tables.items()}

    def recipe(
        self, folder: Path, settings: Mapping[str, Any], note: Callable[[str], None]
    ) -> Recipe:
        """Return the recipe, its files in `folder`."""
        places = {option: str(folder / FILES[option]) for option in self.tables}
        env = {**self.data["env"], "options": self.data["env"].get("options", {}) | places}
        return make_recipe({**self.data, "env": env}, settings, note)

    def tried(
        self, settings: Mapping[str, Any], note: Callable[[str], None]
    ) -> tuple[Recipe, Env[Any]]:
        """Return the recipe, its files in a folder that is no more, and its env.

        What is wrong with it is found here, before a folder is made for the run.
        """
        with tempfile.TemporaryDirectory() as scratch:
            for name, text in self.files.items():
                Path(scratch, name).write_text(text, encoding="utf-8")
            recipe = self.recipe(Path(scratch), settings, note)
            return recipe, recipe.env.make("training")

    def toml(self, recipe: Recipe) -> str:
        """Return `recipe` as TOML that stands beside its files."""
        names = {option: FILES[option] for option in self.tables}
        env = recipe.env.model_copy(update={"options": recipe.env.options | names})
        return recipe.model_copy(update={"env": env}).to_toml()


def _defaults(name: str, policy: Data) -> Data:
    """Return what every recipe made here has: TRL's defaults, but for the rate."""
    nano = is_nano(policy["model"])
    return {
        "name": name,
        "policies": {"main": policy},
        "optimizer": {**TRL_OPTIMIZER, "lr_start": NANO_LR if nano else TRL_LR},
        "trainer": {"tasks_per_iteration": PROMPTS, "group_size": 8},
        "loss": {"clip_low": 0.2, "clip_high": 0.2, "aggregation": "token"},
        "credit": {"scheme": "grpo", "std": "group"},
    }


def recipe_for_rows(policy: Data, given: Mapping[str, Any]) -> MadeRecipe:
    """Return the recipe of a model and rows; `given` are the arguments of `turnwise.train`."""
    rows, reward = given["rows"], given["reward"]
    if rows is None or reward is None:
        raise ConfigError(
            f"got a model, {policy['model']!r}, and {'no rows' if rows is None else 'no reward'}: "
            "give rows and a reward, or an env; for a recipe, train(load_recipe('frozen-lake'))"
        )
    several = isinstance(reward, Sequence) and not isinstance(reward, str)
    names = reward_names(reward if several else [reward])
    tables = {"path": as_text(table_of(rows, "rows"))}
    if given["eval_rows"] is not None:
        tables["eval_path"] = as_text(table_of(given["eval_rows"], "eval_rows"))
    data = _defaults(Rows.name, policy)
    data["env"] = {"name": Rows.name, "options": {"reward": names}}
    tokens = NANO_TOKENS if is_nano(policy["model"]) else TRL_TOKENS
    data["agents"] = {"player": {"reply": "whole", "max_tokens": tokens}}
    data["credit"]["rewards"] = weights_of(list(load_functions(names)), given["reward_weights"])
    made = MadeRecipe(data=data, tables=tables)
    draft, world = made.tried({}, lambda text: None)
    passes = math.ceil(PASSES * len(world.tasks("train") or ()) / PROMPTS)
    data["trainer"]["iterations"] = _most_iterations(given["settings"], passes)
    if not is_nano(policy["model"]):
        return made
    sizes = draft.weights["main"].nano or nano_preset(policy["model"])
    table = world.unwrapped
    assert isinstance(table, Rows), "rows were asked for"
    found = rows_recipe(data, table, sizes, given["settings"] or {})
    return replace(made, data=found.data, reasons=found.reasons)


def recipe_for_env(
    policy: Data, env: type[Env[Any]] | Env[Any] | str, given: Mapping[str, Any]
) -> MadeRecipe:
    """Return the recipe of a model and an env; `given` are the arguments of `turnwise.train`."""
    for name in ("rows", "reward", "eval_rows"):
        if given[name] is not None:
            raise ConfigError(
                f"{name} does not go with env, which has rewards of its own: leave it"
            )
    choice = env_section(env)
    timeout = setting_at(given["settings"] or {}, "env.timeout")
    if not isinstance(timeout, int | float) or timeout <= 0:
        timeout = IMPORTING  # a wrong one is refused when the recipe is parsed
    kind = find_env(choice["name"], timeout)
    check_names(kind)
    data = _defaults(re.sub(r"\W+", "-", kind.name), policy)
    data["env"] = choice
    tokens = {} if is_nano(policy["model"]) else {"max_tokens": TRL_TOKENS}
    data["agents"] = {role: {"role": role, "history": "full", **tokens} for role in kind.roles}
    data["trainer"]["iterations"] = _most_iterations(given["settings"], ITERATIONS)
    data["credit"]["rewards"] = weights_of(list(kind.components), given["reward_weights"])
    found = env_recipe(data, given["settings"] or {})
    return MadeRecipe(data=found.data, tables={}, reasons=found.reasons)


def _most_iterations(settings: Mapping[str, Any] | None, default: int) -> int:
    """Return the number of iterations: `default`, or more than fit where only the time is given."""
    minutes = setting_at(settings or {}, "trainer.minutes")
    if not isinstance(minutes, int | float) or not 0 < minutes <= MOST_MINUTES:
        return default  # a wrong number is refused when the recipe is parsed
    return max(default, math.ceil(PER_MINUTE * minutes))
