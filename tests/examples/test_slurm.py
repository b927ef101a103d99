"""The logic of the batch script in the environment that SLURM gives it: a job, srun, scontrol."""

from __future__ import annotations

import os
import signal
import subprocess
import sys
import time
from pathlib import Path

import pytest

ROOT = Path(__file__).parents[2]
SCRIPT = ROOT / "examples" / "slurm" / "train.sbatch"
TINY = ROOT / "tests" / "resume" / "tiny.toml"
SRUN = """#!/bin/bash
# hands on the signals that it gets, and ends as its task does
"$@" &
task=$!
trap 'again=1; kill -USR1 $task' USR1
trap 'again=1; kill -TERM $task' TERM
while true; do again=; wait $task; code=$?; [[ $again ]] || exit $code; done
"""
TURNWISE = f'#!/bin/bash\nexec {sys.executable} -m turnwise "$@"\n'


class Cluster:
    """A folder of commands that stand for SLURM's, and the calls of scontrol."""

    def __init__(self, folder: Path, turnwise: str) -> None:
        self.folder, self.calls = folder, folder / "scontrol.log"
        commands = {"srun": SRUN, "turnwise": turnwise}
        commands["scontrol"] = f'#!/bin/bash\necho "$@" >> {self.calls}\n'
        (folder / "bin").mkdir()
        for name, text in commands.items():
            (folder / "bin" / name).write_text(text)
            (folder / "bin" / name).chmod(0o755)

    def start(self, *arguments: str) -> subprocess.Popen:
        """Start the job, as sbatch does: always under the same id."""
        own = {"SLURM_JOB_ID": "4711", "SLURM_JOB_NAME": "lake", "OMP_NUM_THREADS": "1"}
        path = f"{self.folder / 'bin'}:{os.environ['PATH']}"
        return subprocess.Popen(
            ["bash", SCRIPT, *arguments],
            env={**os.environ, **own, "PATH": path},
            cwd=self.folder,
            stdout=subprocess.PIPE,
            stderr=subprocess.STDOUT,
            text=True,
        )

    @property
    def requeued(self) -> list[str]:
        return self.calls.read_text().splitlines() if self.calls.exists() else []


def until(condition, job, seconds=120.0):
    """Wait until something holds while the job runs."""
    end = time.monotonic() + seconds
    while not condition():
        assert job.poll() is None, job.stdout.read()
        assert time.monotonic() < end, "it takes too long"
        time.sleep(0.02)


@pytest.mark.slow
def test_a_job_whose_time_is_up_goes_on_in_the_next_one(tmp_path):
    cluster = Cluster(tmp_path, TURNWISE)
    run = tmp_path / "runs" / "lake-4711"
    arguments = (str(TINY), "--set", "trainer.iterations=30")

    def trained():
        metrics = run / "metrics.jsonl"
        return metrics.read_text().count('"phase":"train"') if metrics.exists() else 0

    job = cluster.start(*arguments)
    until(lambda: trained() >= 2, job)
    job.send_signal(signal.SIGUSR1)  # to the batch shell alone, as --signal=B: does
    said, _ = job.communicate(timeout=60)
    assert job.returncode == 0, said
    assert "stopped by SIGUSR1 after saving" in said
    assert cluster.requeued == ["requeue 4711"]
    before = trained()
    assert 2 <= before < 30

    job = cluster.start(*arguments)
    said, _ = job.communicate(timeout=240)
    assert job.returncode == 0, said
    assert trained() == 30
    assert (run / "report.md").is_file()
    assert cluster.requeued == ["requeue 4711"]


PLAY = "touch up; while true; do sleep 0.05; done"
STUBS = {
    "it finishes": ("exit 0", None, 0, False),
    "it fails": ("exit 2", None, 2, False),
    "somebody else stops it": ("exit 130", None, 130, False),
    "time is up": (f"trap 'exit 130' USR1; {PLAY}", "USR1", 0, True),
    "time is up before Python is": (PLAY, "USR1", 0, True),
    "it finishes as time is up": (f"trap 'exit 0' USR1; {PLAY}", "USR1", 0, False),
    "it fails as time is up": (f"trap 'exit 2' USR1; {PLAY}", "USR1", 2, False),
    "it takes its time to save": (
        f"trap 'sleep 0.3; touch saved; exit 130' USR1; {PLAY}", "USR1", 0, True,
    ),
    "it is cancelled": (f"trap 'exit 130' TERM; {PLAY}", "TERM", 130, False),
}  # fmt: skip
"""What turnwise does, the signal that the job gets, the job's exit code, whether it is requeued."""


@pytest.mark.parametrize("case", STUBS)
def test_only_a_run_whose_time_was_up_is_requeued(tmp_path, case):
    body, word, code, requeued = STUBS[case]
    cluster = Cluster(tmp_path, f"#!/bin/bash\n{body}\n")
    job = cluster.start("frozen-lake")
    if word:
        until((tmp_path / "up").exists, job)
        job.send_signal(signal.Signals[f"SIG{word}"])
    said, _ = job.communicate(timeout=30)
    assert job.returncode == code, said
    assert cluster.requeued == (["requeue 4711"] if requeued else [])
    assert (tmp_path / "saved").exists() == ("save" in case)


def test_what_is_started_depends_on_whether_there_is_a_run(tmp_path, monkeypatch):
    cluster = Cluster(tmp_path, '#!/bin/bash\nprintf "%s|" "$@"\n')
    said, _ = cluster.start("my.toml", "--set", "name=a b").communicate(timeout=30)
    assert said == "train|my.toml|--run|runs/lake-4711|--set|name=a b|"
    run = tmp_path / "a run"
    run.mkdir()
    (run / "recipe.toml").write_text("")
    monkeypatch.setenv("RUN", str(run))
    said, _ = cluster.start("my.toml", "--set", "name=a b").communicate(timeout=30)
    assert said == f"train|{run}/recipe.toml|--run|{run}|--resume|"


def test_the_script_asks_slurm_for_what_its_logic_needs():
    options = [line.split()[1] for line in SCRIPT.read_text().splitlines() if "#SBATCH" in line[:7]]
    assert {"--signal=B:USR1@300", "--requeue", "--open-mode=append"} <= set(options)
    refused = subprocess.run(["bash", SCRIPT], capture_output=True, text=True)
    assert refused.returncode != 0
    assert "a recipe: sbatch train.sbatch RECIPE" in refused.stderr
