"""The command line in this process, and two small runs made with it."""

from __future__ import annotations

import json
from pathlib import Path

import pytest
from typer.testing import CliRunner

from turnwise.cli.main import app
from turnwise.recipe.schema import load_recipe
from turnwise.tasks import GeneratedTasks

from ..conftest import TINY


def with_sets(*overrides):
    return [part for pair in overrides for part in ("--set", pair)]


def invoke(*arguments):
    """Run `turnwise` and return its result: exit code, standard output, standard error."""
    return CliRunner().invoke(app, [str(argument) for argument in arguments])


@pytest.fixture(scope="session")
def turnwise():
    """The function above."""
    return invoke


@pytest.fixture(scope="session")
def sets():
    """`sets("a=b", "c=d")`: the overrides as arguments."""
    return with_sets


@pytest.fixture(scope="session")
def smoke_run(tmp_path_factory) -> Path:
    """A finished run of the shipped recipe at its smallest."""
    run = tmp_path_factory.mktemp("runs") / "smoke"
    result = invoke("train", "frozen-lake", *with_sets(*TINY), "--run", run, "--json")
    assert result.exit_code == 0, result.output
    said = json.loads(result.stdout)
    assert said["run"] == str(run)
    assert said["finished"] is True
    assert said["scores"]["tasks"] == load_recipe("frozen-lake", TINY).evaluation.test_tasks
    return run


@pytest.fixture(scope="session")
def rightward_run(tmp_path_factory) -> Path:
    """A run whose policy learned from a file to always go right, on slippery lakes."""
    folder = tmp_path_factory.mktemp("rightward")
    slippery = ("env.options.slippery=true", "env.options.frozen_probability=0.95")
    recipe = load_recipe("frozen-lake", [*TINY, *slippery])
    env = recipe.env.make("training")
    rows = folder / "rows.jsonl"
    rows.write_text(
        "".join(
            json.dumps(
                {
                    "prompt": env.observe(env.reset(task), "player").text,
                    "completion": "<answer> RIGHT </answer>",
                }
            )
            + "\n"
            for task in GeneratedTasks(env, "train", 0).take(32)
        )
    )
    phase = (
        "warmup.steps=40",
        "warmup.eval_every=40",
        "warmup.batch_size=16",
        "trainer.iterations=0",
    )
    rates = ("warmup.optimizer={lr=1e-2,warmup_steps=5}", f"warmup.data={rows}")
    run = folder / "run"
    result = invoke(
        "train", "frozen-lake", *with_sets(*TINY, *slippery, *phase, *rates), "--run", run
    )
    assert result.exit_code == 0, result.output
    return run


@pytest.fixture(scope="session")
def is_one_sentence():
    """`is_one_sentence(result, words)`: exit code 2, one line on standard error, no traceback."""

    def check(result, words):
        assert result.exit_code == 2, result.output
        said = result.stderr
        assert words in said.replace("\n", " "), said
        assert "Traceback" not in result.output
        assert isinstance(result.exception, SystemExit)
        if said.startswith("error:"):
            assert said.count("\n") == 1, said

    return check
