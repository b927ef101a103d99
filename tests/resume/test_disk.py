"""A disk that is full, or lets no file grow: one sentence, and the run goes on once there is space.

A limit on the size of files, which needs no rights, fails at any write; a small file system of its
own, where one may be mounted, runs full as disks do.
"""

import shutil
import subprocess

import pytest

PLACES = {
    "saving weights": {"place": "saving weights", "call": 3, "largest": 4096},
    "saving the optimizer": {"place": "saving optimizer", "call": 7, "largest": 4096},
    "a line of metrics": {"place": "line", "call": 8, "largest": 1024},
    "recording episodes": {"place": "episodes", "call": 3, "largest": 2048},
    "making the model": {"place": "renaming", "largest": 512},
}
SLOW = [pytest.param(name, marks=pytest.mark.slow) for name in list(PLACES)[1:]]


def is_one_sentence(ended, words):
    lines = [line for line in ended.said.splitlines() if "error:" in line]
    assert ended.code == 2, ended.said
    assert "Traceback" not in ended.said
    assert len(lines) == 1 and words in lines[0], ended.said
    assert ended.said.rstrip().endswith(lines[0])


@pytest.mark.parametrize("where", [next(iter(PLACES)), *SLOW])
def test_a_file_that_may_not_grow(turnwise, unbroken, traces, differences, tmp_path, where):
    run = tmp_path / "run"
    ended = turnwise.train(run, PLACES[where])
    is_one_sentence(
        ended,
        "a file may not be that large: raise the limit (`ulimit -f`), then go on with "
        f"`turnwise resume {run}`",
    )
    assert not list(run.glob("checkpoints/.saving-*"))
    ended = turnwise.resume(run)
    assert ended.code == 0, ended.said
    assert differences(traces(run), unbroken) == []


@pytest.fixture
def small_disk(tmp_path):
    """A file system of four megabytes."""
    disk = tmp_path / "disk"
    disk.mkdir()
    mount = ["mount", "-t", "tmpfs", "-o", "size=4m", "tmpfs", str(disk)]
    if not shutil.which("mount") or subprocess.run(mount, capture_output=True).returncode:
        pytest.skip("needs the right to mount a tmpfs")
    yield disk
    subprocess.run(["umount", str(disk)], check=True)


@pytest.mark.parametrize("place", ["saving weights", "metrics"])
def test_a_full_disk(turnwise, unbroken, traces, differences, small_disk, place):
    run = small_disk / "run"
    ended = turnwise.train(run, {"place": place, "call": 3, "full": str(small_disk)})
    is_one_sentence(
        ended, "no space left on the disk: make space, then go on with `turnwise resume"
    )
    is_one_sentence(turnwise.resume(run), "no space left on the disk")
    (small_disk / "ballast").unlink()
    ended = turnwise.resume(run)
    assert ended.code == 0, ended.said
    assert differences(traces(run), unbroken) == []
