"""Whole runs in child processes that can be killed anywhere, and what two runs must share."""

import json
import os
import subprocess
import sys
from dataclasses import dataclass
from pathlib import Path

import pytest
import torch
from safetensors.torch import load_file

from turnwise.runs import Run, comparable, read_metrics

HERE = Path(__file__).parent
TINY = HERE / "tiny.toml"


@dataclass
class Ended:
    """How a child ended: its exit code (-9 if killed), and what it said."""

    code: int
    said: str


class Driver:
    """`turnwise` in a child process, without the seconds that importing it takes.

    `events` say where the child is sent which signals; see `plant` in driver.py.
    """

    def __init__(self, log, hash_seed="1"):
        self._log = log
        self._process = subprocess.Popen(
            [sys.executable, str(HERE / "driver.py")],
            stdin=subprocess.PIPE,
            stdout=subprocess.PIPE,
            text=True,
            env=os.environ | {"OMP_NUM_THREADS": "1", "PYTHONHASHSEED": hash_seed},
        )

    def __call__(self, *arguments, events=()):
        job = {"arguments": list(map(str, arguments)), "events": list(events), "log": self._log}
        self._process.stdin.write(json.dumps(job) + "\n")
        self._process.stdin.flush()
        answer = json.loads(self._process.stdout.readline())
        return Ended(code=answer["code"], said=Path(self._log).read_text())

    def train(self, run, *events, sets=(), recipe=TINY):
        overrides = [part for pair in sets for part in ("--set", pair)]
        return self("train", recipe, "--run", run, *overrides, events=events)

    def resume(self, run, *events):
        return self("resume", run, events=events)

    def close(self):
        self._process.stdin.close()
        self._process.wait()


@pytest.fixture(scope="session")
def turnwise(tmp_path_factory):
    """Run the command line: `turnwise.train(run, *events)`, `turnwise.resume(run, *events)`."""
    driver = Driver(str(tmp_path_factory.mktemp("driver") / "log.txt"))
    yield driver
    driver.close()


@pytest.fixture
def elsewhere(tmp_path):
    """The same in another process, in which sets have other orders."""
    driver = Driver(str(tmp_path / "log.txt"), hash_seed="2")
    yield driver
    driver.close()


@pytest.fixture(scope="session")
def unbroken(turnwise, tmp_path_factory):
    """The run that was never interrupted."""
    run = tmp_path_factory.mktemp("unbroken") / "run"
    ended = turnwise.train(run)
    assert ended.code == 0, ended.said
    return read_traces(run)


@pytest.fixture(scope="session")
def traces():
    """`traces(run)`: all that two runs of one recipe must share, by name."""
    return read_traces


@pytest.fixture(scope="session")
def differences():
    """`differences(one, other)`: the names of traces that are not equal."""

    def names(one, other):
        return [name for name in {**one, **other} if one.get(name) != other.get(name)]

    return names


def read_traces(run):
    """Return what two runs share. Checkpoints have no serial: a stop in a round makes one more."""
    folder = Run.open(run)
    found = {"metrics": comparable(read_metrics(folder.metrics))}
    for path in sorted(folder.episodes.iterdir()):
        found[f"episodes/{path.name}"] = path.read_bytes()
    for path in sorted(folder.checkpoints.iterdir()):
        if path.is_dir():
            manifest = json.loads((path / "manifest.json").read_text())
            totals = manifest["meta"]["totals"]
            for clock in [name for name in totals if "seconds" in name]:
                del totals[clock]
            del manifest["meta"]["metrics_offset"]
            files = {name: entry["blake2b"] for name, entry in manifest.pop("files").items()}
            names = sorted(folder.name for folder in (path / "policies").iterdir())
            own = {name: weights(path / "policies" / name) for name in names}
            place = f"checkpoints/{path.name.split('-', 1)[1]}"
            found[place] = manifest | {"weights": own}
            for name in names:
                state = optimizer(path / "optimizers" / f"{name}.pt")
                found[f"{place}/{name} optimizer"] = state
                assert f"optimizers/{name}.pt" in files
    best = json.loads((folder.checkpoints / "best.json").read_text())
    found["best"] = best | {"checkpoint": best["checkpoint"].split("-", 1)[1]}
    for path in sorted(run.glob("start/*")):
        found[f"start/{path.name}"] = weights(path)
    for path in sorted(run.glob("adapters/*/*")):
        found[f"adapters/{path.parent.name}/{path.name}"] = weights(path)
    scores = json.loads(folder.evaluation.read_text())
    found["scores"] = {name: value for name, value in scores.items() if name != "seconds"}
    found["folders"] = sorted(path.name for path in run.iterdir())
    return found


def weights(folder):
    (file,) = folder.glob("*.safetensors")
    return {name: tensor.tolist() for name, tensor in load_file(file).items()}


def optimizer(path):
    """Return an optimizer's state as plain values."""

    def plain(value):
        if isinstance(value, torch.Tensor):
            return value.tolist()
        if isinstance(value, dict):
            return {key: plain(below) for key, below in value.items()}
        return [plain(below) for below in value] if isinstance(value, list | tuple) else value

    return plain(torch.load(path, weights_only=True))
