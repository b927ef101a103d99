"""The defaults of rows and a nano model: what a column of right replies decides."""

from __future__ import annotations

import math

import pytest

from turnwise.app.made_recipe import recipe_for_rows
from turnwise.recipe.from_python import policy_section

JUDGE = """
from pathlib import Path


def right(completions, answer, **kwargs):
    with Path(__file__).with_name("calls.txt").open("a") as file:
        file.write("called ")
    return [float(said == wanted) for said, wanted in zip(completions, answer)]
"""
ROWS = [{"prompt": f"after {n} is", "answer": f"is {n + 1}"} for n in range(60, 160)]
LONGEST = 5
"""Tokens of "is 100": two words, and three digits."""


@pytest.fixture
def made(tmp_path):
    """`made(rows, settings)`: the recipe of a nano model, and how often the reward was called."""
    (tmp_path / "judge.py").write_text(JUDGE)

    def make(rows, settings=None):
        given = {"rows": rows, "reward": f"{tmp_path / 'judge.py'}:right", "settings": settings}
        recipe = recipe_for_rows(
            policy_section("nano"), {**given, "eval_rows": None, "reward_weights": None}
        )
        calls = tmp_path / "calls.txt"
        return recipe, len(calls.read_text().split()) if calls.is_file() else 0

    return make


def test_a_column_of_right_replies_is_what_the_warm_up_teaches(made):
    found, calls = made(ROWS)
    assert calls == 2
    recipe, world = found.tried({}, lambda text: None)
    assert recipe.env.options["replies"] == "answer"
    assert recipe.agents["player"].max_tokens == math.ceil(1.5 * LONGEST) + 2 == 10
    trained = len(world.tasks("train"))
    passes = math.ceil(3 * trained / 8) * 8
    assert recipe.trainer.tasks_per_iteration == 16
    assert recipe.trainer.iterations == math.ceil(passes / 16)
    assert recipe.trainer.minibatches == 4
    assert recipe.warmup.steps == 300
    assert recipe.warmup.stop_at_accuracy == "never"
    assert recipe.sft_mix.final == {"action": 0}
    assert recipe.sft_mix.spans == {"answer": 1.0, "action": 0.2}
    assert recipe.optimizer.lr == "auto"
    assert "env.options.replies" in found.reasons


@pytest.mark.parametrize("count", [61, 100])
def test_iterations_are_as_many_as_their_prompts_need(made, count):
    found, _ = made([{**row, "prompt": f"{row['prompt']} ?"} for row in ROWS[:count]])
    recipe, world = found.tried({}, lambda text: None)
    passes = math.ceil(3 * len(world.tasks("train")) / 8)
    assert recipe.trainer.iterations == math.ceil(passes * 8 / 16)


def test_without_a_warm_up_no_reward_is_called(made):
    found, calls = made(ROWS, {"warmup.steps": 0})
    assert calls == 0
    recipe, _ = found.tried({"warmup.steps": 0}, lambda text: None)
    assert recipe.env.options.get("replies") is None
    assert recipe.agents["player"].max_tokens == 64


def test_without_such_a_column_nothing_is_taught(made):
    found, calls = made([{**row, "answer": "same"} for row in ROWS])
    assert calls == 0
    recipe, _ = found.tried({}, lambda text: None)
    assert recipe.warmup is None and recipe.env.options.get("replies") is None
