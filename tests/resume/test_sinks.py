"""Whole runs that send their metrics to trackers, stopped and resumed, and what those then hold.

Both trackers keep everything on this machine here. What needs a package that is not installed is
skipped; trackio is part of the tests' own packages.
"""

from __future__ import annotations

import importlib.util
import json
import shutil
import subprocess
import sys

import pytest

from turnwise.runs import read_metrics

BLOCK, LEAD = 32768, 7
"""Of wandb's files, which are LevelDB logs of protobuf records: block size; bytes of a header."""

ON_ITS_WAY = 0.5
"""Seconds for which trackio gathers what it is given before it writes it."""


def needs(package):
    missing = importlib.util.find_spec(package) is None
    return pytest.mark.skipif(missing, reason=f"pip install 'turnwise[{package}]'")


@pytest.fixture(autouse=True)
def at_home(tmp_path, monkeypatch):
    """Keep what trackers write in this test's folder."""
    monkeypatch.setenv("TRACKIO_DIR", str(tmp_path / "trackio"))
    monkeypatch.setenv("WANDB_MODE", "offline")


def stopped_and_resumed(driver, run, sinks):
    """Train with `sinks`, stop in training by SIGUSR1, go on to the end; return the records."""
    event = {"place": "step", "call": 105, "signals": ["SIGUSR1"]}
    ended = driver.train(run, event, sets=[f"metrics.sinks={sinks}", "metrics.project=lakes"])
    assert ended.code == 130, ended.said
    first = ended.said
    ended = driver.resume(run)
    assert ended.code == 0, ended.said
    return read_metrics(run / "metrics.jsonl"), first + ended.said


def axis(records):
    """Warm-up steps, and training iterations after the last of them."""
    last = max(r["step"] for r in records if r["phase"] == "warmup")
    return [r["step"] + (last if r["phase"] == "train" else 0) for r in records]


def agrees(record, sent):
    """Whether all finite values of a record were sent under their names, with the phase's step."""
    values = {name: value for name, value in record.items() if "/" in name and value is not None}
    values[f"step/{record['phase']}"] = record["step"]
    return {name: sent.get(name) for name in values} == pytest.approx(values)


def trackio_logs(project, name):
    code = (
        "import json, sys; from trackio.sqlite_storage import SQLiteStorage as s;"
        "print(json.dumps([s.get_logs(*sys.argv[1:]), s.get_run_config(*sys.argv[1:]),"
        " s.get_runs(sys.argv[1])]))"
    )
    found = subprocess.run(
        [sys.executable, "-c", code, project, name], check=True, capture_output=True, text=True
    )
    return json.loads(found.stdout)


@pytest.mark.slow
@needs("trackio")
def test_trackio_holds_one_run_from_the_first_step_to_the_scores(elsewhere, tmp_path):
    records, said = stopped_and_resumed(elsewhere, tmp_path / "run", '["trackio","tensorboard"]')
    assert "trackio: run run; `trackio show --project lakes`" in said
    logs, config, runs = trackio_logs("lakes", "run")
    *steps, last = logs
    assert runs == ["run"]
    assert (config["name"], config["trainer"]["iterations"]) == ("tiny", 6)
    assert [log["step"] for log in steps] == axis(records)
    assert all(agrees(record, log) for record, log in zip(records, steps, strict=True))
    scores = json.loads((tmp_path / "run" / "eval.json").read_text())
    assert last["test/score"] == scores["score"]
    assert last["test/baseline/random"] == scores["baselines"]["random"]
    assert (tmp_path / "run" / "tensorboard" / "train").is_dir()


@pytest.mark.slow
@needs("trackio")
def test_after_a_kill_no_step_is_sent_twice_and_another_run_of_the_name_is_another(
    elsewhere, tmp_path
):
    run, sets = tmp_path / "a" / "run", ["metrics.sinks=['trackio']"]
    event = {"place": "episodes", "call": 5}
    assert elsewhere.train(run, event, sets=sets).code == -9
    newest = max(path for path in (run / "checkpoints").iterdir() if path.is_dir())
    shutil.rmtree(newest)  # goes on a step before what was sent
    assert elsewhere.resume(run).code == 0
    other = tmp_path / "b" / "run"
    assert elsewhere.train(other, sets=[*sets, "trainer.iterations=1"]).code == 0
    name = json.loads((other / "trackio.json").read_text())["name"]
    logs, _, runs = trackio_logs("turnwise", "run")
    assert sorted(runs) == sorted({"run", name}) and name.startswith("run-")
    sent = [log["step"] for log in logs[:-1]]
    records = read_metrics(run / "metrics.jsonl")
    records = dict(zip(axis(records), records, strict=True))
    assert sent == sorted(set(sent))
    assert set(sent) <= set(records)
    lost = sorted(set(records) - set(sent))
    assert lost == [step for step in records if lost and lost[0] <= step <= lost[-1]], "one gap"
    waited = sum(records[step].get("time/step", 0.0) for step in lost[1:])
    assert waited < 2 * ON_ITS_WAY, "only what was on its way when it was killed"


def wandb_records(folder):
    """Return the protobuf records of all offline files of a run, in order of time."""
    from wandb.proto import wandb_internal_pb2

    records = []
    for file in sorted(folder.glob("wandb/offline-run-*/*.wandb")):
        data, place, parts = file.read_bytes(), LEAD, b""
        while place + LEAD <= len(data):
            if BLOCK - place % BLOCK < LEAD:
                place += BLOCK - place % BLOCK
                continue
            length, kind = int.from_bytes(data[place + 4 : place + 6], "little"), data[place + 6]
            parts += data[place + LEAD : place + LEAD + length]
            place += LEAD + length
            if kind in (1, 4):
                record = wandb_internal_pb2.Record()
                record.ParseFromString(parts)
                records.append(record)
                parts = b""
    return records


def wandb_values(items):
    return {".".join(i.nested_key) or i.key: json.loads(i.value_json) for i in items}


@needs("wandb")
def test_wandb_holds_one_run_from_the_first_step_to_the_scores(elsewhere, tmp_path):
    run = tmp_path / "run"
    records, said = stopped_and_resumed(elsewhere, run, '["wandb"]')
    assert f"wandb: offline; `wandb sync {run}/wandb/offline-*` sends it" in said
    held = wandb_records(run)
    begun = [record.run for record in held if record.HasField("run")]
    known = json.loads((run / "wandb.json").read_text())
    assert {(r.run_id, r.project, r.display_name) for r in begun} == {(known["id"], "lakes", "run")}
    config = wandb_values(begun[0].config.update)
    assert config["trainer"]["iterations"] == 6
    steps = [wandb_values(r.history.item) for r in held if r.HasField("history")]
    assert [step["_step"] for step in steps] == axis(records)
    assert all(agrees(record, step) for record, step in zip(records, steps, strict=True))
    scores = json.loads((run / "eval.json").read_text())
    summary = {}
    for record in held:
        if record.HasField("summary"):
            summary |= wandb_values(record.summary.update)
    assert summary["test/score"] == scores["score"]
    assert not (run / "tensorboard" / "train").exists()


@needs("wandb")
def test_a_tracker_that_dies_is_noted_once_and_the_run_goes_on(tmp_path):
    """In a process of its own: it kills the service that wandb writes through."""
    code = (
        "import os, signal, sys; from pathlib import Path\n"
        "from turnwise.runs import MetricsConfig, MetricsLog, Run, open_sinks, read_metrics\n"
        "run, notes = Run.create(Path(), 'r', '', Path(sys.argv[1])), []\n"
        "config = MetricsConfig(sinks=('wandb',))\n"
        "log = MetricsLog(run.metrics, sinks=open_sinks(config, run, {}, notes.append))\n"
        "log.append('train', 1, {'a/b': 1.0})\n"
        "mine = f'/proc/{os.getpid()}/task/{os.getpid()}/children'\n"
        "for child in Path(mine).read_text().split():\n"
        "    os.kill(int(child), signal.SIGKILL)\n"
        "    os.waitpid(int(child), 0)\n"
        "for step in range(2, 400):\n"
        "    log.append('train', step, {'a/b': 1.0})\n"
        "log.summarise({'test/score': 1.0}); log.close()\n"
        "assert len(read_metrics(run.metrics)) == 399\n"
        "print(*notes, sep='\\n')\n"
    )
    ended = subprocess.run(
        [sys.executable, "-c", code, str(tmp_path / "run")], capture_output=True, text=True
    )
    assert ended.returncode == 0, ended.stderr
    _, *failures = ended.stdout.splitlines()
    (failure,) = failures
    assert failure.startswith("wandb failed to")
    assert failure.endswith("metrics.jsonl has everything")


OPEN = (
    "import sys; from pathlib import Path\n"
    "from turnwise.runs import MetricsConfig, MetricsLog, Run, open_sinks\n"
    "run = Run.create(Path(), 'r', '', Path(sys.argv[1]))\n"
    "sinks = open_sinks(MetricsConfig(sinks=('wandb',)), run, {}, print)\n"
    "log = MetricsLog(run.metrics, sinks=sinks)\n"
    "log.append('train', 1, {'a/b': 1.0}); log.close()\n"
)


@needs("wandb")
@pytest.mark.parametrize("key", ["", "k" * 40])
def test_only_who_is_not_logged_in_is_stopped(tmp_path, monkeypatch, key):
    """A server that is not there is a warning; a missing login is an error before training."""
    monkeypatch.setenv("WANDB_MODE", "online")
    monkeypatch.setenv("WANDB_API_KEY", key)
    monkeypatch.setenv("WANDB_BASE_URL", "http://127.0.0.1:9")
    monkeypatch.setenv("WANDB_INIT_TIMEOUT", "2")
    monkeypatch.setenv("HOME", str(tmp_path))
    ended = subprocess.run(
        [sys.executable, "-c", OPEN, str(tmp_path / "run")],
        capture_output=True, text=True, stdin=subprocess.DEVNULL,
    )  # fmt: skip
    if key:
        assert ended.returncode == 0, ended.stderr
        assert ended.stdout.startswith("wandb failed to begin and is not used any more (")
        assert ended.stdout.count("\n") == 1
    else:
        assert "ConfigError: metrics.sinks has 'wandb', which failed (" in ended.stderr
        assert "run `wandb login`, set WANDB_MODE=offline, or leave it out" in ended.stderr
