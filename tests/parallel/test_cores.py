"""A second core is free where two threads run at full speed, and not where others use the cores."""

import os
import subprocess
import sys
import threading
import time

import pytest

from turnwise.parallel import cores

ENDLESS = [sys.executable, "-c", "while True: pass"]


class Machine:
    """A machine with `cores` cores: a round of n threads takes as long as the slowest of them."""

    def __init__(self, cores):
        self.cores = cores

    def round(self, threads, clock):
        assert (threads, clock) in {(1, time.thread_time), (2, time.perf_counter)}
        return 1.0 if threads == 1 else max(1.0, threads / self.cores)


@pytest.mark.parametrize(("count", "free"), [(2.0, True), (1.7, True), (1.3, False), (1.0, False)])
def test_it_is_decided_by_the_work_that_two_threads_do(monkeypatch, count, free):
    monkeypatch.setattr(cores, "usable_cores", lambda: 2)
    monkeypatch.setattr(cores, "_round", Machine(count).round)
    assert cores.second_core_is_free() is free


@pytest.mark.parametrize(
    ("files", "most"),
    [
        ({"cpu.max": "100000 100000\n"}, 1.0),
        ({"cpu.max": "max 100000\n"}, None),
        ({"a/b/cpu.max": "50000 100000\n", "cpu.max": "max 100000\n"}, 0.5),
        ({"a/cpu.max": "150000 100000\n"}, 1.5),
        ({"other/cpu.max": "50000 100000\n"}, None),
        ({"cpu/cpu.cfs_quota_us": "50000\n", "cpu/cpu.cfs_period_us": "100000\n"}, 0.5),
        ({"cpu/cpu.cfs_quota_us": "-1\n", "cpu/cpu.cfs_period_us": "100000\n"}, None),
        ({"cpu.max": "nonsense"}, None),
    ],
)
def test_what_a_container_is_allowed_counts(monkeypatch, tmp_path, files, most):
    monkeypatch.setattr(cores, "CGROUPS", tmp_path / "none")
    free = cores.usable_cores()
    monkeypatch.setattr(cores, "CGROUPS", tmp_path)
    monkeypatch.setattr(cores, "OWN_CGROUP", tmp_path / "own")
    (tmp_path / "own").write_text("0::/a/b\n")
    for name, text in files.items():
        (tmp_path / name).parent.mkdir(parents=True, exist_ok=True)
        (tmp_path / name).write_text(text)
    assert cores.usable_cores() == (free if most is None else most)


def test_free_memory_is_what_is_available_and_allowed(monkeypatch, tmp_path):
    monkeypatch.setattr(cores, "CGROUPS", tmp_path)
    monkeypatch.setattr(cores, "MEMORY", tmp_path / "meminfo")
    assert cores.free_memory() == float("inf")
    (tmp_path / "meminfo").write_text("MemTotal: 9000 kB\nMemAvailable:    5000 kB\n")
    assert cores.free_memory() == 5000 * 1024
    (tmp_path / "memory.max").write_text("4096000\n")
    assert cores.free_memory() == 4096000


def test_one_usable_core_is_not_measured(monkeypatch):
    monkeypatch.setattr(cores, "usable_cores", lambda: 1)
    monkeypatch.setattr(cores, "_round", lambda *_: pytest.fail("nothing to measure"))
    assert not cores.second_core_is_free()


def test_programs_that_use_all_cores_leave_none_free():
    busy = [subprocess.Popen(ENDLESS) for _ in range(len(os.sched_getaffinity(0)))]
    try:
        assert not cores.second_core_is_free()
    finally:
        for each in busy:
            each.kill()
            each.wait()


def test_a_round_does_the_work_of_every_thread(monkeypatch):
    workers = []
    monkeypatch.setattr(cores, "_work", lambda: workers.append(threading.current_thread()))
    cores._round(3, time.perf_counter)
    assert len(set(workers)) == 3
