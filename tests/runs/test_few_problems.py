"""The errors of scores on few problems: in the report, in the terminal and in eval.json."""

from __future__ import annotations

import json
import re

import pytest
from typer.testing import CliRunner

import turnwise as tw
from turnwise.cli.main import app
from turnwise.policies import NanoConfig, PolicyConfig
from turnwise.report.verdict import verdict
from turnwise.runs.results import RunScores

ENV = '''
import turnwise as tw

class Few(tw.Env[int]):
    """Say whether a number is even."""

    name = "few"
    components = {{"right": "agent"}}

    def generate(self, rng):
        return {{"n": int(rng.integers({count}))}}

    def reset(self, task):
        return task.data["n"]

    def observe(self, state, role):
        return tw.Observation(text=f"is {{state}} even", legal_actions=("yes", "no"))

    def step(self, state, role, action, noise):
        right = float((action == "yes") == (state % 2 == 0))
        after = -1 if right else -2
        return tw.Step(state=after, rewards={{"right": right}}, terminated=True, truncated=False)

    def score(self, state):
        return float(state == -1)
'''
TINY = NanoConfig(
    hidden=32, layers=2, heads=2, kv_heads=1, head_dim=16, intermediate=64, context=128
)
NANO = PolicyConfig(nano=TINY, device="cpu")
SHORT = {"trainer.iterations": 1, "trainer.tasks_per_iteration": 2, "trainer.group_size": 2,
        "trainer.minibatches": 1, "warmup.steps": 1, "evaluation.test_tasks": 40,
        "engine.probe_tokens": 64, "forest.probe_tokens": 64, "evaluation.validation_tasks": 4,
        "agents.player.max_tokens": 4}  # fmt: skip


@pytest.fixture
def trained(tmp_path):
    """`trained(count)`: a run in an env of so many problems, and what was said."""

    def train(count):
        file = tmp_path / f"few_{count}.py"
        file.write_text(ENV.format(count=count))
        return tw.train(NANO, env=f"{file}:Few", settings=SHORT, root=tmp_path / "runs")

    return train


def plain(text):
    return re.sub(r"\s+", " ", re.sub(r"[^\x20-\x7e±]+", " ", text))


@pytest.mark.parametrize(
    ("count", "over"), [(1, "episodes"), pytest.param(16, "problems", marks=pytest.mark.slow)]
)
def test_few_problems_are_counted_and_said_to_be_seen(trained, count, over):
    outcome = trained(count)
    folder = outcome.run
    found = json.loads((folder / "eval.json").read_text())
    met = found["problems"]  # 40 draws need not meet all 16
    assert (found["tasks"], found["seen"]) == (40, True) and 0.8 * count < met <= count
    assert found["splits"] == {"train": count, "validation": count, "test": count}
    assert found["errors_over"] == over
    report = (folder / "report.md").read_text()
    noun = "problem" if count == 1 else "problems"
    said = f"40 tasks of the test split, {met} distinct {noun}, which training met too"
    assert said in report
    sizes = f"train {count}, validation {count}, test {count}"
    assert f"Distinct problems, at least: {sizes}; every split has the same (fewer th" in report
    assert (found["seen_share"], found["others"]) == (1.0, pytest.approx(0.003, abs=5e-4))
    assert ("standard errors over episodes, of" in report) == (over == "episodes")
    assert "0.000 |" not in re.sub(r"\| [+-]?0\.000 ", "| ", report)
    shown = CliRunner().invoke(app, ["eval", str(folder), "--tasks", "30"], env={"COLUMNS": "200"})
    assert shown.exit_code == 0, shown.output
    assert re.search(rf"30 tasks of the test split, \d+ distinct {noun}", plain(shown.output))
    assert f"train {count}, validation {count}, test {count}" in plain(shown.output)


def scores(**changes):
    values = {
        "env": "e", "tasks": 200, "seed": 0, "score": 1.0, "stderr": 0.0, "score_sampled": 0.9,
        "score_sampled_stderr": 0.02, "baselines": {"random": 0.1},
        "baselines_stderr": {"random": 0.02},
        "paired": {"random": {"difference": 0.9, "stderr": 0.0}},
    }  # fmt: skip
    return RunScores(**(values | changes))


def test_an_error_of_nought_is_said_in_words():
    assert scores().error_text(0.0) == "(all 200 equal)"
    bound = scores(bounded=True, stderr=0.114, score_sampled=0.0)
    assert "trained, greedy   1.000 (all 200 equal, ± 0.114 at most)" in str(bound)
    assert "trained, sampled  0.000 (all 200 equal, ± 0.020 at most)" in str(bound)
    assert "random            0.100 ± 0.020" in str(bound)
    returns = scores(stderr=0.114)
    assert "trained, greedy   1.000 ± 0.114" in str(returns)
    assert scores(tasks=1).error_text(0.0) == "(one episode)"
    assert scores().error_text(0.0004) == "± 0.0004"
    assert scores().error_text(0.0123) == "± 0.012"
    assert verdict(scores()) == "learned: 0.90 above random in each of 200 episodes"
    assert "no verdict from one episode" in verdict(scores(tasks=1))
    small = scores(paired={"random": {"difference": 0.9, "stderr": 0.0012}})
    assert verdict(small) == "learned: 0.90 above random (± 0.001, paired)"
