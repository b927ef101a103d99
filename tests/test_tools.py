"""Envs with tools of a user's file: trained, played, and refused where a model cannot call."""

from __future__ import annotations

import json
from pathlib import Path

import pytest
from transformers import AutoTokenizer
from typer.testing import CliRunner

import turnwise as tw
from turnwise.cli.main import app
from turnwise.errors import ConfigError, ModelError
from turnwise.policies import NanoConfig, make_nano

TINY = NanoConfig(hidden=16, layers=1, heads=2, kv_heads=1, head_dim=8, intermediate=16)
CUPS = f"{Path(__file__).parents[1] / 'examples' / '06_tools.py'}:Cups"
FAST = {
    "warmup.steps": 2,
    "warmup.eval_every": 2,
    "warmup.perception_tasks": 2,
    "trainer.iterations": 2,
    "trainer.group_size": 2,
    "trainer.tasks_per_iteration": 2,
    "trainer.minibatches": 1,
    "engine.probe_tokens": 64,
    "forest.probe_tokens": 64,
    "evaluation.validation_tasks": 2,
    "evaluation.test_tasks": 4,
}


@pytest.fixture(scope="module")
def outcome(tmp_path_factory):
    """A run of the example's env, named by its file."""
    policy = tw.PolicyConfig(nano=TINY, device="cpu")
    return tw.train(policy, env=CUPS, settings=FAST, root=tmp_path_factory.mktemp("runs"))


def test_an_env_with_tools_of_a_users_file_trains(outcome):
    assert outcome.finished
    recipe = tw.load_recipe(str(outcome.run / "recipe.toml"))
    assert recipe.agents["player"].history == "full"
    tokenizer = AutoTokenizer.from_pretrained(outcome.run / "models" / "main")
    schema = json.dumps(tw.make_env(CUPS).tools["lift"].schema)
    spelt = [token for token in tokenizer.tokenize(schema) if len(token) == 1]
    assert len(spelt) == 0, "the words of the schema are words of the tokenizer"
    shown = CliRunner().invoke(app, ["eval", str(outcome.run), "--tasks", "2", "--json"])
    assert shown.exit_code == 0, shown.output
    assert set(json.loads(shown.stdout)["baselines"]) == {"random", "warmup"}


@pytest.mark.slow
def test_a_recipe_that_names_a_file_needs_the_whole_history(outcome, tmp_path):
    recipe = tmp_path / "mine.toml"
    text = (outcome.run / "recipe.toml").read_text()
    recipe.write_text(text.replace('history = "full"', 'history = "last_n"'))
    refused = CliRunner().invoke(app, ["train", str(recipe)])
    assert refused.exit_code == 2
    assert "agents.player.history = 'last_n' would hide the results of the tools" in refused.stderr
    recipe.write_text(text)
    again = CliRunner().invoke(app, ["train", str(recipe), "--run", str(tmp_path / "again")])
    assert again.exit_code == 0, again.output


def test_a_model_whose_template_shows_no_tools_is_refused_before_it_is_trained(tmp_path):
    model = make_nano(tmp_path / "model", ["what is under the red cup ?"], [], TINY)
    plain = (
        "{% for message in messages %}{{ '<|im_start|>' + message['role'] + '\\n' }}"
        "{{ message['content'] + '<|im_end|>\\n' }}{% endfor %}"
        "{% if add_generation_prompt %}{{ '<|im_start|>assistant\\n' }}{% endif %}"
    )
    (model / "chat_template.jinja").write_text(plain)
    with pytest.raises(ModelError, match="does not show tools and their results: use a model"):
        tw.train(model, env=CUPS, settings=FAST, root=tmp_path / "runs", run=tmp_path / "run")
    assert not (tmp_path / "run" / "metrics.jsonl").exists()


def test_a_tool_without_types_is_refused_when_the_env_is_made():
    class Untyped(tw.ToolEnv):
        @tw.tool
        def lift(self, state, cup):
            """Lift a cup.

            Args:
                cup: Which.
            """

        reset = ask = answer = score = lambda self, *args: None

    with pytest.raises(ConfigError, match=r"tool Untyped\.lift has no type hint for 'cup': write"):
        Untyped()


def test_a_person_calls_a_tool_by_its_name():
    play = ["play", CUPS, "--seed", "1"]
    calls = 'lift {"cup": "red"}\nlift {"cup": "gold"}\nring\n'
    done = CliRunner().invoke(app, play, input=calls)
    assert done.exit_code == 0, done.output
    assert '{"name": "lift", "arguments": {"cup": "red"}} -> ' in done.stdout
    assert "-> error: lift: cup: Input should be 'red', 'green' or 'blue'" in done.stdout
    assert "the end after 3 steps" in done.stdout
    assert CliRunner().invoke(app, ["check", CUPS]).exit_code == 0
