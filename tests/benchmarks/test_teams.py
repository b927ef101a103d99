"""benchmarks/teams.py and teams_runs.py: where runs begin, which jobs are left, and the table."""

from __future__ import annotations

import pytest

from ..conftest import load_benchmark


@pytest.fixture(scope="module")
def script():
    return load_benchmark("teams")


def test_adapters_begin_on_the_base_that_the_warm_up_trained(script, tmp_path):
    for folder in ("models", "base", "start"):
        (tmp_path / folder / "tool").mkdir(parents=True)
    weights = dict(s.split("=", 1) for s in script.begun_from(tmp_path, "lora"))
    base = str(tmp_path / "base" / "tool")
    assert weights == {
        "policies.tool.model": base, "policies.planner.model": base, "pretrain": "none",
    }  # fmt: skip


def commands_of(monkeypatch, script, *jobs, runs):
    """Return the settings of each command that jobs give, by the run folder's name."""
    asked = {}

    def trained(words, run, program=()):
        asked[run.name] = [word for word in words[2:] if word != "--set"]

    monkeypatch.setattr(script, "trained", trained)
    monkeypatch.setattr(script, "measured", lambda run: {})
    for job in jobs:
        script.train(job, runs, "abc")
    return asked


def in_force(settings):
    """Return key -> the value that counts: the last one."""
    return dict(one.split("=", 1) for one in settings)


@pytest.mark.parametrize(
    ("name", "env", "row"),
    [
        ("teams", "sokoban", "team-grpo"),
        ("teams_defects", "sokoban", "independent"),
        ("board_games", "tic-tac-toe", "rae"),
    ],
)
def test_settings_are_those_of_the_warm_up_too_and_settings_of_another_have_another(
    name, env, row, monkeypatch, tmp_path
):
    script = load_benchmark(name)
    monkeypatch.setattr(script, "other_tests", lambda *given: {}, raising=False)
    from teams_runs import Job

    settings = [(), ("warmup.steps=7", "trainer.iterations=4"), ("trainer.iterations=4",)]
    jobs = [Job(row, env, 3, each) for each in settings]
    asked = commands_of(monkeypatch, script, *jobs, runs=tmp_path)
    warm, run = zip(*[list(asked)[i : i + 2] for i in (0, 2)], strict=True)
    assert len(asked) == 5  # of two warm-ups and three runs
    for folder in warm:
        assert in_force(asked[folder])["trainer.iterations"] == "0"
        assert in_force(asked[folder])["seed"] == "3"
    assert "warmup.steps" not in in_force(asked[warm[0]])
    assert in_force(asked[warm[1]])["warmup.steps"] == "7"
    for folder, begins in zip((*run, list(asked)[4]), (*warm, warm[0]), strict=True):
        found = in_force(asked[folder])
        assert found["warmup.steps"] == "0"
        assert f"/{begins}/start/main" in found["policies.main.model"]
        assert found.get("trainer.iterations") == (None if folder == run[0] else "4")
