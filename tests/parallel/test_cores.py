"""A second core is free where two threads run at full speed, and not where others use the cores."""

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
        return threads if clock is time.process_time else max(1.0, threads / self.cores)


@pytest.mark.parametrize(("count", "free"), [(2.0, True), (1.7, True), (1.3, False), (1.0, False)])
def test_it_is_decided_by_the_work_that_two_threads_do(monkeypatch, count, free):
    monkeypatch.setattr(cores, "usable_cores", lambda: 2)
    monkeypatch.setattr(cores, "_round", Machine(count).round)
    assert cores.second_core_is_free() is free


def test_one_usable_core_is_not_measured(monkeypatch):
    monkeypatch.setattr(cores, "usable_cores", lambda: 1)
    monkeypatch.setattr(cores, "_round", lambda *_: pytest.fail("nothing to measure"))
    assert not cores.second_core_is_free()


def test_programs_that_use_all_cores_leave_none_free():
    busy = [subprocess.Popen(ENDLESS) for _ in range(cores.usable_cores())]
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
