"""The defaults of `turnwise.train` on rows for a model made on the spot.

Provides `rows_recipe`. Such a model says nothing that a reward could judge. Where a column of the
rows holds right replies, it is first taught how replies look, by the different values that rows
have there, drawn at random. A reward then says which of them is right.
"""

from __future__ import annotations

import math
from collections.abc import Mapping
from typing import Any

from turnwise.envs.rows.env import Rows
from turnwise.envs.rows.reply_column import ReplyColumn, find_reply_column
from turnwise.envs.rows.table import reply_of
from turnwise.errors import SlowEnvError
from turnwise.policies import NanoConfig
from turnwise.recipe.env_defaults import (
    ACTION_BARRIER,
    WARM_COOLDOWN,
    WARM_RATE,
    WARM_RISE,
    EnvRecipe,
)
from turnwise.recipe.env_sizes import EVALUATION, NANO_MINIBATCHES
from turnwise.recipe.fit import setting_at
from turnwise.seeding import generator

Data = dict[str, Any]
PROMPTS = 16
"""Prompts of an iteration."""
WARM_STEPS, WARM_ROWS, WARM_CHECKS = 300, 32, 50
"""The steps of the warm-up, its rows, and the steps between two checks."""
END, SLACK = 2, 1.5
"""The tokens that end a reply, and the room for words that are several tokens."""


def rows_recipe(
    plain: Data, world: Rows, sizes: NanoConfig, settings: Mapping[str, Any]
) -> EnvRecipe:
    """Return the plain values of a recipe for a nano model, with a warm-up where rows allow one.

    Args:
        plain: what was given, and TRL's defaults.
        world: the rows.
        sizes: of the nano model.
        settings: what the user replaces; without a warm-up the rewards are not called here.
    """
    weights, found = plain["credit"]["rewards"], None
    if setting_at(settings, "warmup.steps") != 0:
        try:
            found = find_reply_column(world, weights, generator(0, "reply column"))
        except SlowEnvError as slow:
            why = f"{slow}, so the search for a column of replies gave up, and there is no warm-up"
            return EnvRecipe(data=plain, reasons={"env.options.replies": why})
    if found is None:
        return EnvRecipe(data=plain, reasons={})
    policy = plain["policies"]["main"]
    init = {"init_std": round(sizes.hidden**-0.5, 2), **(policy.get("nano") or {})}
    options = {**plain["env"]["options"], "replies": found.name}
    tokens = min(_tokens(world, found), sizes.context // 2)
    passes = plain["trainer"]["iterations"] * plain["trainer"]["tasks_per_iteration"]
    data = plain | {
        "env": {**plain["env"], "options": options},
        "policies": {"main": {**policy, "nano": init}},
        "agents": {"player": {**plain["agents"]["player"], "max_tokens": tokens}},
        "warmup": {
            "steps": WARM_STEPS,
            "batch_size": WARM_ROWS,
            "eval_every": WARM_CHECKS,
            "perception_tasks": WARM_ROWS,
            "stop_at_accuracy": "never",  # any text is a reply
            "cooldown": WARM_COOLDOWN,
            "optimizer": {"lr": WARM_RATE, "schedule": "linear", "warmup_steps": WARM_RISE},
        },
        "sft_mix": {
            "rows": WARM_ROWS,
            "spans": {"answer": 1.0, "action": ACTION_BARRIER},
            "final": {"action": 0.0},
        },
        "optimizer": {"lr": "auto", "schedule": "linear"},
        "trainer": {
            **plain["trainer"],
            "iterations": max(1, math.ceil(passes / PROMPTS)),
            "tasks_per_iteration": PROMPTS,
            "minibatches": NANO_MINIBATCHES,
        },
        "evaluation": EVALUATION,
    }
    return EnvRecipe(data=data, reasons=_reasons(found))


def _reasons(found: ReplyColumn) -> Mapping[str, str]:
    return {
        "env.options.replies": f"a row's own value there earns {found.own:.3g} in the mean, "
        f"another row's {found.others:.3g}",
        "agents.player.max_tokens": f"the longest value of {found.name!r} has a place in it",
        "warmup.steps": f"a new model learns how replies look by values of {found.name!r} of any "
        "row",
    }


def _tokens(world: Rows, found: ReplyColumn) -> int:
    """Return the tokens of the longest value of a column: a word is one, and each digit."""
    replies = (reply_of(row, found.name) or "" for row in world.tasks("train"))
    longest = max(len(text.split()) + sum(map(str.isdigit, text)) for text in replies)
    return math.ceil(SLACK * longest) + END
