import os
import re
import signal
import subprocess
import sys
import tempfile
import threading
import time
from contextlib import suppress
from pathlib import Path

import pytest

from turnwise.errors import ConfigError, MissingDependencyError, SandboxError
from turnwise.sandbox import Job, Limits, Sandbox, SandboxConfig, configure, run, shared
from turnwise.sandbox.link import WorkerLink

from ..conftest import load_benchmark

SOURCE = Path(__file__).parents[2] / "src"


def processes_below(pid):
    """Return all processes that descend from one."""
    return set(load_benchmark("sandbox").below(pid))


def run_apart(program, **options):
    """Run a program of the test's in an interpreter of its own."""
    return subprocess.run(
        [sys.executable, "-c", program],
        env=os.environ | {"PYTHONPATH": str(SOURCE)},
        capture_output=True,
        text=True,
        timeout=60,
        **options,
    )


def started(sandbox):
    """Start a sandbox's workers; return their processes."""
    before = processes_below(os.getpid())
    sandbox.start()
    return processes_below(os.getpid()) - before


def kill(pids):
    """End processes at once, of which some may end with others."""
    for pid in pids:
        with suppress(ProcessLookupError):
            os.kill(pid, signal.SIGKILL)


def test_killed_workers_are_replaced(isolated):
    with Sandbox(workers=1) as sandbox:
        worker = started(sandbox)
        assert sandbox.run("result = 1").value == 1
        before = processes_below(os.getpid())
        slow = sandbox.submit(Job(program="import time\ntime.sleep(30)", limits=Limits(wall=60.0)))
        while not (program := processes_below(os.getpid()) - before):
            time.sleep(0.05)
        time.sleep(0.5)  # its isolation is complete
        kill(program)  # its own misfortune
        assert slow.result().failure == "crash"
        assert sandbox.replaced == 0
        kill(worker)  # tried again
        assert sandbox.run("result = 3").value == 3
        assert sandbox.replaced == 1


def test_a_worker_that_dies_with_a_program_is_no_fault_of_the_programs(isolated):
    with Sandbox(workers=1) as sandbox:
        worker = started(sandbox)
        future = sandbox.submit(Job(program="import time\ntime.sleep(0.4)\nresult = 5"))
        time.sleep(0.15)
        kill(worker)
        assert future.result().value == 5
        assert sandbox.replaced == 1


def test_nothing_is_left_when_it_is_closed(isolated):
    before, open_before = processes_below(os.getpid()), len(os.listdir("/proc/self/fd"))
    with Sandbox(workers=2) as sandbox:
        sandbox.run_batch([Job(program="import threading")] * 10)
        assert len(processes_below(os.getpid())) > len(before)
    assert processes_below(os.getpid()) == before
    assert len(os.listdir("/proc/self/fd")) == open_before


def test_what_is_queued_is_done_before_it_closes(isolated):
    sandbox = Sandbox(workers=1)
    futures = [sandbox.submit(Job(program=f"result = {i}")) for i in range(20)]
    sandbox.close()
    assert [future.result().value for future in futures] == list(range(20))


def test_a_closed_sandbox_starts_again(isolated):
    sandbox = Sandbox(workers=1)
    assert sandbox.run("result = 1").value == 1
    sandbox.close()
    assert sandbox.run("result = 2").value == 2
    sandbox.close()


def test_programs_that_come_while_it_closes_are_done_too(isolated):
    sandbox, futures = Sandbox(workers=2), []

    def ask():
        for i in range(40):
            futures.append((i, sandbox.submit(Job(program=f"result = {i}"))))

    asking = threading.Thread(target=ask)
    asking.start()
    while asking.is_alive():
        sandbox.close()
        time.sleep(0.05)
    sandbox.close()
    assert len(futures) == 40
    assert all(future.result(timeout=20).value == i for i, future in futures)


def test_cancelled_programs_are_not_run(isolated):
    with Sandbox(workers=1) as sandbox:
        first = sandbox.submit(Job(program="import time\ntime.sleep(0.3)"))
        second = sandbox.submit(Job(program="result = 1"))
        assert second.cancel() and first.result().ok
        assert sandbox.run("result = 2").value == 2


def test_many_threads_may_ask(isolated):
    found = {}

    def ask(i):
        found[i] = sandbox.run("result = inputs[0] ** 2", (i,)).value

    with Sandbox(workers=2) as sandbox:
        threads = [threading.Thread(target=ask, args=(i,)) for i in range(16)]
        for thread in threads:
            thread.start()
        for thread in threads:
            thread.join()
    assert found == {i: i * i for i in range(16)}


def test_workers_end_with_the_process_that_started_them(isolated, tmp_path):
    program = f"""
import os, signal
from turnwise.sandbox import Sandbox
sandbox = Sandbox(workers=2)
sandbox.submit(__import__("turnwise.sandbox").sandbox.Job(program="while True: pass"))
sandbox.run("result = 1")
open({str(tmp_path / "pid")!r}, "w").write(str(os.getpid()))
os.kill(os.getpid(), signal.SIGKILL)
"""
    mark = f"TURNWISE_TEST_{os.getpid()}"
    run_apart(program)
    assert (tmp_path / "pid").exists(), mark
    deadline = time.monotonic() + 10
    inside = str(SOURCE / "turnwise/sandbox/inside")
    while time.monotonic() < deadline:
        orphans = [
            p
            for p in Path("/proc").iterdir()
            if p.name.isdigit() and inside in _command(p) and _parent(p) == 1
        ]
        if not orphans:
            return
        time.sleep(0.1)
    raise AssertionError(f"workers without a library: {orphans}")


def _command(process):
    try:
        return (process / "cmdline").read_bytes().decode(errors="replace")
    except OSError:
        return ""


def _parent(process):
    try:
        return int((process / "stat").read_text().rpartition(")")[2].split()[1])
    except OSError:
        return 0


def test_a_forked_copy_has_workers_of_its_own(isolated):
    program = """
import os
from turnwise.sandbox import run
assert run("result = 1").value == 1
pid = os.fork()
if pid == 0:
    os._exit(run("result = 7").value)
assert os.waitstatus_to_exitcode(os.waitpid(pid, 0)[1]) == 7
assert run("result = 2").value == 2
"""
    done = run_apart(program)
    assert done.returncode == 0, done.stderr


def test_an_ordinary_user_is_enough(isolated):
    if os.geteuid() != 0:
        pytest.skip("this is an ordinary user already")
    program = """
from turnwise.sandbox import Limits, Sandbox
with Sandbox(workers=1) as sandbox:
    print(sandbox.run("import os\\nresult = os.getuid()").value, sandbox.isolation)
    print(sandbox.run("import os\\nos.kill(os.getppid(), 9)").failure)
    print(sandbox.run("open('/etc/passwd')").failure, sandbox.run("open('x', 'w')").failure)
    print(sandbox.run("import os\\nwhile True: os.fork()", (), Limits(processes=5)).failure)
"""
    try:
        run_apart("import turnwise.sandbox", user=65534, group=65534, cwd="/")
    except PermissionError:
        pytest.skip("nobody may not run this interpreter")
    done = run_apart(program, user=65534, group=65534, extra_groups=[], cwd="/")
    assert done.stdout.splitlines() == [
        "65534 namespaces",
        "forbidden",
        "exception None",
        "exception",
    ], done.stderr


def test_where_the_kernel_refuses_one_sentence_says_so(isolated):
    program = """
import os
from turnwise.sandbox.inside import kernel
from turnwise.sandbox.inside.filters import Filter, Guard
kernel.prctl(kernel.PR_SET_NO_NEW_PRIVS, 1)
guard = Guard(modes=True, times=True, nameless=True, maps=True)
Filter(guard, tools=True, network=True).put_on(os.getpid())  # no namespaces
from turnwise.errors import SandboxError
from turnwise.sandbox import Sandbox
try:
    Sandbox(workers=1).run("result = 1")
except SandboxError as refused:
    print(refused)
"""
    done = run_apart(program)
    assert done.stdout.count("\n") == 1, done.stderr
    for words in ("cannot be isolated here", "namespaces: ", "which promises less", "'subprocess'"):
        assert words in done.stdout


def test_without_walls_around_files_none_is_cut_by_opening_it_to_read(isolated, tmp_path):
    """The first versions of Landlock do not guard it."""
    program = f"""
import os
from turnwise.sandbox.inside import kernel
from turnwise.sandbox.inside.filters import Filter, Guard
kernel.prctl(kernel.PR_SET_NO_NEW_PRIVS, 1)
guard = Guard(modes=False, times=False, nameless=False, maps=True)
path, found = {str(tmp_path / "kept")!r}, []
Filter(guard, tools=False, network=False).put_on(os.getpid())
for flags in (os.O_RDONLY, os.O_WRONLY, os.O_RDWR, os.O_RDWR | os.O_WRONLY):
    for kind in (0, os.O_APPEND, os.O_CLOEXEC | os.O_NONBLOCK):
        with open(path, "w") as file: file.write("kept")
        try: os.open(path, flags | kind | os.O_TRUNC)
        except PermissionError: assert os.stat(path).st_size == 4
        else: found.append(flags)
print(found)
"""
    done = run_apart(program)
    assert done.stdout.split("\n")[0] == str([os.O_WRONLY] * 3 + [os.O_RDWR] * 3), done.stderr


def test_modules_that_are_not_there_are_named():
    with pytest.raises(SandboxError, match="No module named 'nump'"):
        Sandbox(workers=1, preload=("nump",)).start()


@pytest.mark.parametrize(
    ("options", "words"),
    [
        ({"backend": "isolatd"}, "'isolated'"),
        ({"worker": 3}, "did you mean 'workers'"),
        ({"preload": ["import os"]}, "'import os' is not a module name"),
        ({"image": "python:3.12"}, "does not apply to backend = 'isolated'"),
        ({"workers": 0}, "greater than or equal to 1"),
    ],
)
def test_wrong_options_are_refused(options, words):
    with pytest.raises(ConfigError, match=words):
        Sandbox(**options)


def test_a_container_needs_a_program_that_runs_it():
    with pytest.raises(MissingDependencyError, match="'no-such-runtime' is not a program"):
        Sandbox(backend="container", runtime="no-such-runtime").start()


def test_the_shared_sandbox_takes_its_options_from_configure(isolated):
    assert run("result = 1").value == 1
    first = shared()
    assert configure(first.config) is first
    second = configure(SandboxConfig(workers=1, preload=("fractions",)))
    try:
        assert second is shared() is not first
        assert run("import sys\nresult = 'fractions' in sys.modules").value is True
        assert run("result = 1", (), Limits(steps=5)).value == 1
    finally:
        configure(SandboxConfig()).close()


@pytest.mark.parametrize(
    ("given", "words"),
    [
        ({"program": 3}, "program = '3': expected Python source as text"),
        ({"program": "", "inputs": 3}, "expected a list by position, or a dict by name"),
        ({"program": "", "inputs": "ab"}, "expected a list by position, or a dict by name"),
        ({"program": "", "inputs": {1: 2}}, "every key must be text"),
        ({"program": "", "limits": {"cpu": 1}}, "expected Limits"),
        ({"program": "", "call": len}, "expected a function's name"),
        ({"program": "", "stdin": b"x"}, "expected text"),
        ({"program": "", "seed": "x"}, "expected an int"),
    ],
)
def test_what_is_no_program_is_refused_before_anybody_waits(isolated, given, words):
    with pytest.raises(TypeError, match=re.escape(words)):
        isolated.run(**given)
    assert isolated.run("result = 1").value == 1


def test_threads_outlive_bugs_of_ours(isolated, monkeypatch):
    with Sandbox(workers=1) as sandbox:
        with monkeypatch.context() as patch:
            patch.setattr(sandbox, "_carry_out", None)  # a bug of ours, of whatever kind
            with pytest.raises(SandboxError, match="TypeError"):
                sandbox.run("result = 1")
        assert sandbox.run("result = 2").value == 2


def _fails(*_):
    raise RecursionError("a bug of ours")


@pytest.mark.parametrize("step", ["kill", "_clear", "_hang_up", "_reap"])
def test_threads_outlive_what_fails_when_a_worker_is_cleared_away(isolated, monkeypatch, step):
    slow = Job(program="import time\ntime.sleep(0.6)\nresult = 5")
    with monkeypatch.context() as patch, Sandbox(workers=1) as sandbox:
        worker = started(sandbox)
        future = sandbox.submit(slow)
        time.sleep(0.2)
        patch.setattr(WorkerLink, step, _fails)
        kill(worker)
        assert future.result(60).value == 5
        assert sandbox.run("result = 2").value == 2


def test_an_interrupt_ends_programs_at_once(isolated):
    began, sandbox = time.monotonic(), Sandbox(workers=1)
    with pytest.raises(KeyboardInterrupt), sandbox:
        sandbox.start()
        slow = [sandbox.submit(Job(program="while True: pass", limits=Limits(cpu=60.0, wall=60.0)))]
        slow += [sandbox.submit(Job(program="result = 1")) for _ in range(5)]
        time.sleep(0.3)
        raise KeyboardInterrupt
    for future in slow:
        with pytest.raises(SandboxError):
            future.result(timeout=1)
    assert time.monotonic() - began < 45
    assert sandbox.run("result = 3").value == 3
    sandbox.close()


def test_a_library_that_is_interrupted_ends(isolated):
    program = """
import os, signal, threading
from turnwise.sandbox import Limits, run
threading.Timer(2.0, os.kill, (os.getpid(), signal.SIGINT)).start()
run("while True: pass", (), Limits(cpu=100.0, wall=200.0))
"""
    done = run_apart(program)
    assert "KeyboardInterrupt" in done.stderr and done.returncode != 0


def test_cpu_time_of_all_processes_counts(isolated):
    program = """
import os, signal
signal.signal(signal.SIGCHLD, signal.SIG_IGN)
for _ in range(3):
    if os.fork() == 0:
        while True: pass
signal.pause()
"""
    result = isolated.run(program, (), Limits(cpu=1.0, wall=60.0, processes=4))
    assert result.failure == "cpu" and result.cpu_seconds < 2.5, result


@pytest.mark.parametrize("cpu", [1e-6, 1e-4])
def test_the_smallest_limits_are_the_programs_failure(isolated, cpu):
    result = isolated.run("while True: pass", (), Limits(cpu=cpu))
    assert result.failure == "cpu"


@pytest.mark.skipif(
    Path(__file__).is_relative_to("/tmp"),
    reason="programs cannot write to /tmp if turnwise is there",
)
def test_modules_that_programs_plant_are_not_imported_by_workers(tmp_path, monkeypatch):
    """A folder of `sys.path` lies where programs may write: below /tmp."""
    with tempfile.TemporaryDirectory(dir="/tmp") as folder, monkeypatch.context() as patch:
        patch.syspath_prepend(folder)
        plant = f"""
import os, sys
for name in ("numpy", "json", "encodings", "random", "linecache"):
    for top in ({folder!r}, *sys.path):
        try:
            os.makedirs(os.path.join(top, name), exist_ok=True)
            with open(os.path.join(top, name, "__init__.py"), "w") as file:
                file.write("import builtins\\nbuiltins.planted = True\\n")
        except OSError: pass
result = os.listdir({folder!r})
"""
        with Sandbox(workers=1) as sandbox:
            sandbox.start()
            assert "numpy" in sandbox.run(plant).value
            arrays = sandbox.run(
                "import numpy\nresult = numpy.ones(2)", (), Limits(cpu=30, wall=60)
            )
            assert arrays.ok and arrays.value.tolist() == [1.0, 1.0]
            left = "import builtins, os\nresult = hasattr(builtins, 'planted') or os.listdir('.')"
            assert sandbox.run(left).value == []
        assert os.listdir(folder) == []


def test_half_an_answer_does_not_hang_the_library():
    from turnwise.sandbox.inside import frames

    read, write = os.pipe()
    os.set_blocking(read, False)
    os.write(write, b"tw02" + b"\x01" * 10)
    began = time.monotonic()
    with pytest.raises(frames.BrokenFrameError, match="in time"):
        frames.read_exactly(read, frames.REPORT_SIZE, began + 0.2)
    assert time.monotonic() - began < 10
    for message in (bytes(frames.REPORT_SIZE), b"\xff" * frames.REPORT_SIZE):
        with pytest.raises(frames.BrokenFrameError):
            frames.Report.unpack(message)
    os.write(write, b"\xff" * 4)
    with pytest.raises(frames.BrokenFrameError, match="a message of"):
        frames.read_text(read, time.monotonic() + 5)
    os.close(read)
    os.close(write)


def test_threads_do_not_apply_to_several_processes():
    with pytest.raises(ValueError, match="count them in processes"):
        Limits(processes=4, threads=3)
