"""Cells of sweeps that take no time: a module in place of the one that trains."""

from __future__ import annotations

import json
import os

import pytest

from turnwise.sweeps import SweepConfig, running

CELL = """
import json, os, pathlib, signal, sys, time

_, parent, command, *rest = sys.argv
run = pathlib.Path(rest[rest.index("--run") + 1] if command == "train" else rest[0])
run.mkdir(exist_ok=True)
sets = {}
if command == "train":
    sets = dict(rest[i + 1].split("=", 1) for i, word in enumerate(rest) if word == "--set")
    (run / "recipe.toml").write_text(json.dumps(sets))
else:
    sets = json.loads((run / "recipe.toml").read_text())
with open(os.environ["STARTS"], "a") as starts:
    threads = os.environ.get("OMP_NUM_THREADS")
    starts.write(json.dumps([command, run.name, sets, threads]) + "\\n")
seed = int(sets.get("seed", 0))
if seed == 13 and not os.path.exists(os.environ["STARTS"] + ".mended"):
    print("warming up")
    print("error: unlucky [number]")
    print("bye")
    sys.exit(2)
if seed == 17:
    resumed = command == "resume"
    print("oops" if resumed else "error: a first reason", flush=True)
    sys.exit(3)
if seed == 18:
    sys.exit(4)
if seed == 15:
    sys.exit(0)
if seed == 16:
    (run / "recipe.toml").unlink()
    run.rmdir()
    sys.exit(0)
if seed == 14:
    os.kill(os.getpid(), signal.SIGKILL)
if seed == 99 and command == "train":
    def stop(number, frame):
        sys.exit(130)
    signal.signal(signal.SIGTERM, stop)
    pathlib.Path(os.environ["STARTS"] + ".waits").touch()
    time.sleep(60)
rate = float(sets.get("optimizer.lr", 1.0))
records = [{"phase": "train", "step": step, "total/episodes": 10 * step} for step in (1, 2)]
(run / "metrics.jsonl").write_text("".join(json.dumps(each) + "\\n" for each in records))
scores = {"score": rate + seed, "stderr": 0.25, "env": "lake", "baselines": {"random": 0.5}}
(run / "eval.json").write_text("{" if seed == 19 else json.dumps(scores))
"""


@pytest.fixture
def starts(tmp_path, monkeypatch):
    """Run cells by `CELL`; return a function that lists how they were started."""
    (tmp_path / "modules").mkdir()
    (tmp_path / "modules" / "fast_cell.py").write_text(CELL)
    monkeypatch.setattr(running, "MODULE", "fast_cell")
    path = os.pathsep.join([str(tmp_path / "modules"), os.environ.get("PYTHONPATH", "")])
    monkeypatch.setenv("PYTHONPATH", path)
    monkeypatch.setenv("STARTS", str(tmp_path / "starts"))
    monkeypatch.delenv("OMP_NUM_THREADS", raising=False)

    def listed():
        log = tmp_path / "starts"
        return [json.loads(line) for line in log.read_text().splitlines()] if log.exists() else []

    return listed


@pytest.fixture
def sweep_of():
    """`sweep_of(lr=[...], seed=[...], **fields)`: a sweep of frozen-lake."""

    def make(lr=(1e-4, 1e-3), seed=(0, 1), **fields):
        grid = {"optimizer.lr": list(lr), "seed": list(seed)}
        given = {"name": "rates", "recipe": "frozen-lake", "grid": grid} | fields
        return SweepConfig(**given)

    return make
