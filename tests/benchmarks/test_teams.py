"""benchmarks/teams.py and teams_runs.py: where runs begin, which jobs are left, and the table."""

from __future__ import annotations

import json
import signal
import subprocess
import threading
import time
from statistics import mean, stdev

import pytest

from ..conftest import load_benchmark


@pytest.fixture(scope="module")
def script():
    return load_benchmark("teams")


def test_adapters_begin_on_the_policy_that_the_other_team_shares(script, monkeypatch, tmp_path):
    monkeypatch.setattr(script, "other_tests", lambda *given: {})
    job = script.Job("at-grpo-lora", "sokoban", 3, ())
    (warm, asked), (run, begun) = commands_of(monkeypatch, script, job, runs=tmp_path).items()
    assert (warm, run) == ("sokoban-warm-shared-3", "sokoban-at-grpo-lora-3")
    assert in_force(asked)["preset"] == "shared"
    base = str(tmp_path / warm / "start" / "main")
    assert in_force(begun).items() >= {
        "preset": "lora", "policies.tool.model": base, "policies.planner.model": base,
        "pretrain": "none",
    }.items()  # fmt: skip


def commands_of(monkeypatch, script, *jobs, runs):
    """Return the settings of each command that jobs give, by the run folder's name."""
    import teams_runs

    asked = {}

    def trained(words, run, program=()):
        asked[run.name] = [word for word in words[2:] if word != "--set"]
        run.mkdir(exist_ok=True)
        (run / "eval.json").write_text('{"tasks": 8}')

    for module in (script, teams_runs):  # each calls the function by a name of its own
        monkeypatch.setattr(module, "trained", trained, raising=False)
        monkeypatch.setattr(module, "measured", lambda run: {}, raising=False)
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


def test_policies_of_other_rows_are_tested_on_their_tasks(script, monkeypatch, tmp_path):
    from teams_runs import Job, UnfinishedError

    job, asked = Job("combined", "sudoku", 2, ()), []
    for name, warm in (("tool-alone", 0.1), ("planner-alone", 0.2)):
        with pytest.raises(UnfinishedError, match="it plays policies of .*planner-alone: train"):
            script.train(job, tmp_path, "abc")
        run = tmp_path / f"sudoku-{name}-2"
        run.mkdir()
        (run / "eval.json").write_text(json.dumps({"tasks": 8, "baselines": {"warmup": warm}}))

    def scored(words, job, runs):
        asked.append(words)
        return {"score": 0.5, "baselines": {"optimal": 1.0}}

    monkeypatch.setattr(script, "scored", scored)
    row = script.train(job, tmp_path, "abc")
    own, other = (" ".join(words) for words in asked)
    assert own.startswith(f"eval {tmp_path / 'sudoku-tool-alone-2'} --json --tasks 8")
    assert f"--policy planner={tmp_path / 'sudoku-planner-alone-2'}:planner" in own
    assert own.endswith("--seed 2") and row["command"] == f"turnwise {own}"
    assert "--seed" not in other and other.endswith("--set env.options.hard=false")
    assert row["scores"]["baselines"] == {"optimal": 1.0, "warmup": 0.1}


def line(row, seed, score, settings=(), *, low=0.2, **more):
    """Return a line of a file of results."""
    baselines = {"optimal": 1.0} | ({} if low is None else {"warmup": low})
    scores = {"score_greedy": score, "score_sampled": score / 2, "decoding": "greedy"}
    kept = {"row": row, "env": "sokoban", "seed": seed, "settings": list(settings)}
    return kept | {"scores": scores | {"baselines": baselines}} | more


def test_the_table_has_means_and_intervals_of_the_last_row_of_each_seed(script):
    rows = [line("at-grpo", seed, score) for seed, score in ((0, 0.4), (1, 0.1), (2, 0.8))]
    rows.append(line("at-grpo", 1, 0.6, totals={"env_steps": 1000.0, "seconds": 60.0}))
    rows.append(line("swapped", 0, 0.5, low=None, hard_tasks={"score_greedy": 0.25}))
    rows.append(line("at-grpo", 0, 1.0, ["preset=smoke"], low=1.0))
    *_, clean, swapped, smoke = script.table(rows).splitlines()
    # 0.4, 0.6 and 0.8 deviate by 0.2: 4.303 * 0.2 / sqrt(3) = 0.497; the whole gap is 0.8
    assert clean.split(" | ")[1:7] == [
        "at-grpo", "3", "0.600 ± 0.497", "0.300 ± 0.248", "0.500 ± 0.621", "",
    ]  # fmt: skip
    assert clean.split(" | ")[7:] == ["", "", "", "1,000", "", "60 |"]
    assert swapped.split(" | ")[1:7] == ["swapped", "1", "0.500", "0.250", "", "0.250"]
    assert smoke.split(" | ")[1:6] == ["at-grpo preset=smoke", "1", "1.000", "0.500", ""]


@pytest.mark.parametrize(("count", "quantile"), [(2, 12.706), (5, 2.776), (10, 2.262), (12, 2.262)])
def test_intervals_are_those_of_student_for_any_number_of_seeds(script, count, quantile):
    values = [float(number % 2) for number in range(count)]
    half = quantile * stdev(values) / count**0.5
    assert script.told(values) == f"{mean(values):.3f} ± {half:.3f}"
    assert (script.told([0.25]), script.told([])) == ("0.250", "")


def arguments(script, tmp_path, monkeypatch, *words):
    """Return the arguments of a command of teams.py."""
    given = ["teams.py", str(tmp_path / "rows.jsonl"), "--runs", str(tmp_path / "runs"), *words]
    monkeypatch.setattr("sys.argv", given)
    return script.command_line(script.__doc__, tuple(script.RECIPES), tuple(script.ROWS), "runs")


def test_each_job_is_trained_once_and_none_begins_after_an_interrupt(script, tmp_path, monkeypatch):
    from teams_runs import run_rows

    words = ("--envs", "sokoban", "--rows", "rae", "rae", "--seeds", "0", "0", "1", "--workers")
    args, begun = arguments(script, tmp_path, monkeypatch, *words, "1").parse_args(), []

    def train(job, version):
        begun.append(job.seed)
        if job.seed == 1:
            signal.pthread_kill(threading.main_thread().ident, signal.SIGINT)
            time.sleep(0.3)
            raise subprocess.CalledProcessError(130, "turnwise")
        return job.kept(version) | {"scores": {"score": 0.5}}

    args.rows.append("at-grpo")  # seed 0 has two jobs, and seed 1 of two begins one
    before = signal.signal(signal.SIGINT, signal.default_int_handler)
    try:
        with pytest.raises(KeyboardInterrupt):
            run_rows(args, train)
    finally:
        signal.signal(signal.SIGINT, before)
    assert begun == [0, 0, 1]


def test_what_is_no_number_of_workers_and_a_file_without_rows_are_refused(
    script, tmp_path, monkeypatch, capsys
):
    for workers in ("0", "-1", "two"):
        with pytest.raises(SystemExit):
            arguments(script, tmp_path, monkeypatch, "--workers", workers).parse_args()
        assert "give a number from 1 on" in capsys.readouterr().err
    arguments(script, tmp_path, monkeypatch)
    with pytest.raises(SystemExit, match="holds no rows, and none are asked for"):
        script.main()
