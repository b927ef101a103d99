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
LAST = 16
"""Training iterations of a job: several seconds more than it takes to be stopped."""
SRUN = """#!/bin/bash
# As srun of FAKE_SLURM does: it counts CPUs, hands on SIGUSR1 and kills its task at SIGTERM.
set -u
cpus= export=${SLURM_EXPORT_ENV:-ALL}
while [[ $1 == --* ]]; do
  case $1 in
    --cpus-per-task=*) cpus=${1#*=} ;;
    --export=*) export=${1#*=} ;;
    *) echo "srun: unrecognized option '$1'" >&2; exit 1 ;;
  esac
  shift
done
cpus=${cpus:-${SRUN_CPUS_PER_TASK:-}}
asked=${SLURM_CPUS_PER_TASK:-}
case $FAKE_SLURM in
  22.05) ;;  # to 23.11: SLURM_CPUS_PER_TASK is not read
  24.11)
    if [[ ! $cpus && ${SLURM_TRES_PER_TASK:-} && $SLURM_TRES_PER_TASK != "cpu=$asked" ]]; then
      echo "srun: fatal: cpus-per-task set by two different environment variables" >&2
      exit 1
    fi
    cpus=${cpus:-$asked} ;;
  *) cpus=${cpus:-$asked} ;;
esac
task_environment=("FAKE_CPUS=${cpus:-1}")
[[ $export == NONE ]] && task_environment=(-i PATH=/usr/bin:/bin "${task_environment[@]}")
env "${task_environment[@]}" "$@" &
task=$!
trap 'again=1; kill -USR1 $task' USR1
trap 'again=1; echo "srun: forcing job termination" >&2; kill -KILL $task' TERM
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

    def start(self, *arguments: str, **given: str) -> subprocess.Popen:
        """Start the job, as sbatch does: always under the same id, and with variables `given`."""
        own = {"SLURM_JOB_ID": "4711", "SLURM_JOB_NAME": "lake", "OMP_NUM_THREADS": "1"}
        own |= {"SLURM_CPUS_PER_TASK": "8", "FAKE_SLURM": "22.05", **given}
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
    arguments = (str(TINY), "--set", f"trainer.iterations={LAST}", "--set", "warmup.steps=25")

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
    assert 2 <= before < LAST

    job = cluster.start(*arguments)
    said, _ = job.communicate(timeout=240)
    assert job.returncode == 0, said
    assert trained() == LAST
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
    "it is cancelled": (
        f"trap 'sleep 0.3; touch saved; exit 130' USR1; {PLAY}", "TERM", 130, False,
    ),
    "it is cancelled before Python is": (PLAY, "TERM", 138, False),
    "it runs out of memory as time is up": (
        f"trap 'kill -KILL $$' USR1; {PLAY}", "USR1", 137, False,
    ),
}  # fmt: skip
"""The command, the signal that the job gets, the job's exit code, whether it is requeued."""


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
    assert (tmp_path / "saved").exists() == ("touch saved" in body)
    assert "forcing job termination" not in said


def test_what_is_started_depends_on_whether_there_is_a_run(tmp_path, monkeypatch):
    cluster = Cluster(tmp_path, '#!/bin/bash\nprintf "%s|" "$@"\n')
    said, _ = cluster.start("my.toml", "--set", "name=a b").communicate(timeout=30)
    assert said == "train|my.toml|--run|runs/lake-4711|--set|name=a b|"
    run = tmp_path / "a run"
    run.mkdir()
    (run / "recipe.toml").write_text("")
    monkeypatch.setenv("RUN", str(run))
    said, _ = cluster.start("my.toml").communicate(timeout=30)
    assert said == f"resume|{run}|"


def test_the_script_asks_slurm_for_what_its_logic_needs():
    options = [line.split()[1] for line in SCRIPT.read_text().splitlines() if "#SBATCH" in line[:7]]
    assert {"--signal=B:USR1@300", "--requeue", "--open-mode=append"} <= set(options)
    refused = subprocess.run(["bash", SCRIPT], capture_output=True, text=True)
    assert refused.returncode != 0
    assert "a recipe: sbatch train.sbatch RECIPE" in refused.stderr


@pytest.mark.parametrize("version", ["21.08", "22.05", "24.11"])
@pytest.mark.parametrize("cpus", ["8", None])
def test_the_step_gets_the_cpus_of_the_job_in_every_version(tmp_path, version, cpus, monkeypatch):
    """22.05 to 23.11 would give one; later ones refuse where a site's plugin changed the other."""
    monkeypatch.delenv("SLURM_CPUS_PER_TASK", raising=False)
    cluster = Cluster(tmp_path, "#!/bin/bash\necho cpus: $FAKE_CPUS\n")
    given = {"SLURM_TRES_PER_TASK": "cpu=4"} if cpus else {"SLURM_CPUS_PER_TASK": ""}
    job = cluster.start("frozen-lake", FAKE_SLURM=version, **given)
    said, _ = job.communicate(timeout=30)
    assert (job.returncode, said) == (0, f"cpus: {cpus or 1}\n")


def test_the_step_has_what_the_script_activated_without_the_submitters_variables(tmp_path):
    """`sbatch --export=NONE` leaves SLURM_EXPORT_ENV=NONE, by which srun exports nothing."""
    cluster = Cluster(tmp_path, "#!/bin/bash\necho found: $SLURM_JOB_NAME\n")
    said, _ = cluster.start("frozen-lake", SLURM_EXPORT_ENV="NONE").communicate(timeout=30)
    assert said == "found: lake\n"


ARRAY = {"SLURM_ARRAY_JOB_ID": "4711", "SLURM_ARRAY_TASK_ID": "3"}


def test_each_task_of_an_array_is_a_run_of_its_own_with_its_own_seed(tmp_path):
    """Its last task has the array's own id: requeueing that would requeue all tasks."""
    cluster = Cluster(tmp_path, '#!/bin/bash\nprintf "%s|" "$@"\n')
    said, _ = cluster.start("my.toml", "--set", "a=b", **ARRAY).communicate(timeout=30)
    assert said == "train|my.toml|--run|runs/lake-4711-3|--set|seed=3|--set|a=b|"
    said, _ = cluster.start("my.toml", RUN="my runs/x", **ARRAY).communicate(timeout=30)
    assert said == "train|my.toml|--run|my runs/x-3|--set|seed=3|"


def test_one_task_of_an_array_is_requeued_alone(tmp_path):
    cluster = Cluster(tmp_path, f"#!/bin/bash\ntrap 'exit 130' USR1; {PLAY}\n")
    job = cluster.start("my.toml", **ARRAY)
    until((tmp_path / "up").exists, job)
    job.send_signal(signal.SIGUSR1)
    said, _ = job.communicate(timeout=30)
    assert job.returncode == 0, said
    assert cluster.requeued == ["requeue 4711_3"]


@pytest.mark.parametrize(("left", "requeued"), [(200, False), (-1, True)])
def test_a_signal_to_end_after_the_time_was_up_is_scancel_or_the_limit(tmp_path, left, requeued):
    """With time left somebody cancels a job that was about to be requeued; at the limit SLURM ends
    a save that took too long, and what was saved goes on."""
    save = f"trap 'touch told; sleep 1; exit 130' USR1; {PLAY}"
    cluster = Cluster(tmp_path, f"#!/bin/bash\n{save}\n")
    job = cluster.start("my.toml", SLURM_JOB_END_TIME=str(int(time.time()) + left))
    until((tmp_path / "up").exists, job)
    job.send_signal(signal.SIGUSR1)
    until((tmp_path / "told").exists, job)
    job.send_signal(signal.SIGTERM)
    said, _ = job.communicate(timeout=30)
    assert job.returncode == (0 if requeued else 130), said
    assert cluster.requeued == (["requeue 4711"] if requeued else [])


def test_a_job_that_cannot_be_requeued_fails_and_says_how_to_go_on(tmp_path):
    cluster = Cluster(tmp_path, f"#!/bin/bash\ntrap 'exit 130' USR1; {PLAY}\n")
    (tmp_path / "bin" / "scontrol").write_text("#!/bin/bash\nexit 1\n")
    job = cluster.start("my.toml")
    until((tmp_path / "up").exists, job)
    job.send_signal(signal.SIGUSR1)
    said, _ = job.communicate(timeout=30)
    assert job.returncode == 1
    assert "RUN=runs/lake-4711 sbatch train.sbatch my.toml goes on" in said


def test_settings_that_a_resumed_run_does_not_take_are_named(tmp_path):
    cluster = Cluster(tmp_path, "#!/bin/bash\n:\n")
    (tmp_path / "runs" / "lake-4711").mkdir(parents=True)
    (tmp_path / "runs" / "lake-4711" / "recipe.toml").write_text("")
    said, _ = cluster.start("my.toml", "--set", "seed=2").communicate(timeout=30)
    assert "not applied: --set seed=2" in said
    again = cluster.start("my.toml", "--set", "seed=2", SLURM_RESTART_COUNT="1")
    assert again.communicate(timeout=30)[0] == ""
