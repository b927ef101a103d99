import os
import random
from dataclasses import replace

import pytest

from turnwise.errors import SandboxError
from turnwise.sandbox import Job, Limits
from turnwise.sandbox.inside import filters
from turnwise.sandbox.inside.frames import Task
from turnwise.sandbox.inside.plan import FREE, Calls
from turnwise.sandbox.inside.processes import end_all_others

BOUNDS = """
import os, resource as r
place = os.statvfs('.')
result = {
    'cpu': r.getrlimit(r.RLIMIT_CPU)[0], 'file': r.getrlimit(r.RLIMIT_FSIZE)[0],
    'threads': r.getrlimit(r.RLIMIT_NPROC)[0], 'all': place.f_blocks * place.f_frsize,
}
"""


def test_each_program_has_its_own_limits_whatever_the_one_before_had(isolated):
    few = Limits(cpu=1, files=1, threads=0, wall=60)
    many = Limits(cpu=3, files=5, threads=7, wall=60)
    for limits in (few, many, few, few, many):
        size = limits.files << 20
        wanted = {"cpu": limits.cpu + 1, "file": size, "threads": 1 + limits.threads, "all": size}
        assert isolated.run(BOUNDS, (), limits).value == wanted
    tools = few.model_dump(exclude_unset=True, exclude={"threads"}) | {"processes": 2}
    found = isolated.run(BOUNDS, (), Limits(**tools))
    assert found.value["threads"] == 2, found.message


def test_a_child_copies_few_pages_before_its_program_begins(isolated):
    """Most of a program's cost is copied pages; load does not change their number."""
    program = "import resource\nresult = resource.getrusage(resource.RUSAGE_SELF).ru_minflt"
    copied = [isolated.run(program).value for _ in range(20)]
    assert min(copied) < 450


def test_the_time_of_a_program_is_counted_from_its_begin(isolated):
    program = """
import time
began = time.process_time()
while time.process_time() < began + 0.3: pass
result = began
"""
    result = isolated.run(program)
    assert 0.3 <= result.cpu_seconds < 0.4
    assert result.value > 0


def test_nothing_of_the_rehearsal_is_left(isolated):
    program = """
import sys
result = [name for name in sys.modules if name == 'program'], list(vars()), sys.gettrace()
"""
    assert isolated.run(program).value == ([], ["__name__", *NAMES], None)


NAMES = ["__doc__", "__package__", "__loader__", "__spec__", "__builtins__", "inputs", "sys"]


def test_calls_stop_at_the_first_that_fails(tmp_path):
    calls, path = Calls(), str(tmp_path / "folder")
    calls.add("mkdir", path.encode(), 0o700)
    calls.add("rmdir", (path + "s").encode())
    calls.add("rmdir", path.encode())
    with pytest.raises(FileNotFoundError, match="rmdir: No such file"):
        calls.make()
    assert os.path.isdir(path) and FREE == 4
    with pytest.raises(FileExistsError, match="mkdir"):
        calls.make()


@pytest.mark.parametrize("seed", [0, -1, 127, 128, -129, 10**30, -(10**30)])
def test_tasks_come_through_as_they_are(seed):
    task = Task("x = '\ud800ä'", "f\udcff", b"\x00\xff", b"", seed, 3)
    assert Task.unpack(task.pack()) == task
    most = task._replace(steps=1 << 70)
    assert Task.unpack(most.pack()).steps == (1 << 63) - 1


def test_a_program_that_is_too_large_costs_no_worker(isolated, monkeypatch):
    monkeypatch.setattr("turnwise.sandbox.link.LARGEST_JOB", 2000)
    before = isolated.replaced
    large = Job(program="result = 1\n" + "#" * 2000)
    with pytest.raises(SandboxError, match="at most 2000 can be run"):
        isolated.run_batch([large])
    assert isolated.run_batch([replace(large, program="result = 1")])[0].value == 1
    assert isolated.replaced == before


def verdict(code, number):
    """Follow a filter's search for a call's number to the first instruction of its verdict."""
    place = 0
    while code[place][0] in (filters._AT_LEAST, filters._JUMP):
        operation, true, false, constant = code[place]
        if operation == filters._JUMP:
            place += 1 + constant
        else:
            assert true < 256 and false < 256  # as much as a condition can jump
            place += 1 + (true if number >= constant else false)
    return code[place]


def test_a_filter_finds_the_verdict_on_every_call():
    draw = random.Random(0)
    verdicts = {
        number: [(filters._RETURN, 0, 0, draw.randrange(5))] * draw.choice([1, 1, 9])
        for number in draw.sample(range(460), 300)
    }
    runs = filters._runs(verdicts)
    code = filters._search(runs)
    unknown = filters._runs({0: verdicts[min(verdicts)]})[-2][1]
    for number in range(500):
        assert verdict(code, number) == verdicts.get(number, unknown)[0]
    assert len(code) > 700  # long enough that some jumps take an instruction of their own
    assert verdict(code, filters._FOREIGN_CALLS)[3] == filters._KILL


def test_all_others_are_only_ended_by_the_first_process_of_a_namespace():
    assert os.getpid() != 1
    with pytest.raises(RuntimeError, match="only the first process"):
        end_all_others()
