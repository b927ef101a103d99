import json
import os
import shlex
import socket
import stat
import sys
import time
import warnings

import pytest

from turnwise.errors import SandboxError
from turnwise.sandbox import Job, Limits, Sandbox, pool
from turnwise.sandbox.backends import BACKENDS, candidates
from turnwise.sandbox.config import SandboxConfig

from ..conftest import load_benchmark

SHORT = Limits(cpu=0.5, wall=30.0, memory=64, output=1 << 16, files=1)
WAITS = SHORT.model_copy(update={"wall": 2.0})
ENDS = [
    ("result = 1 + 1", "value"),
    ("x = (", "syntax"),
    ("1 / 0", "exception"),
    ("while True: pass", "cpu"),
    ("import time\ntime.sleep(99)", "timeout"),
    ("x = bytes(10**12)", "memory"),
    ("import os\nos.abort()", "crash"),
    ("print('x' * 10**6)", "output"),
    ("f = open('big', 'wb')\nwhile True: f.write(bytes(9999)); f.flush()", "output"),
    ("i = 0\nwhile True: open(str(i), 'w').write('x' * 9999); i += 1", "output"),
    ("result = sorted(__import__('os').listdir('.')) or 2", "value"),
]


@pytest.fixture(scope="module")
def plain():
    with warnings.catch_warnings():
        warnings.simplefilter("ignore")
        sandbox = Sandbox(backend="subprocess", workers=1)
        sandbox.start()
    with sandbox:
        yield sandbox


@pytest.fixture(scope="module")
def contained(tmp_path_factory):
    """Workers as a container starts them, by a runtime that only does what it is told last."""
    runtime = tmp_path_factory.mktemp("bin") / "runtime"
    runtime.write_text(
        f"#!{sys.executable}\n"
        "import os, sys\n"
        "words = sys.argv[1:]\n"
        "mounted = dict(w.split(':')[1::-1] for w in words if w.endswith(':ro'))\n"
        "given = dict(w.split('=') for a, w in zip(words, words[1:]) if a == '--env')\n"
        "command = words[words.index('python3') + 1:]\n"
        "command = [mounted.get(word, word) for word in command]\n"
        "os.execve(sys.executable, [sys.executable, *command], given)\n"
    )
    runtime.chmod(runtime.stat().st_mode | stat.S_IXUSR)
    with Sandbox(backend="container", runtime=str(runtime), workers=1) as sandbox:
        yield sandbox


@pytest.mark.parametrize(("program", "end"), ENDS)
def test_limits_hold_without_isolation(plain, program, end):
    result = plain.run(program, (), WAITS if end == "timeout" else SHORT)
    assert (result.failure or "value") == end, result
    assert plain.replaced == 0


@pytest.mark.parametrize(("program", "end"), ENDS)
def test_limits_hold_in_a_container(contained, program, end):
    result = contained.run(program, (), WAITS if end == "timeout" else SHORT)
    assert (result.failure or "value") == end, result
    assert contained.isolation == "container" and contained.replaced == 0


def test_programs_in_a_container_stand_behind_a_filter_too(contained):
    assert contained.run("import os\nos.fork()").failure == "forbidden"
    assert contained.run("import socket\nsocket.socket()").failure == "forbidden"
    assert contained.run("import os\nos.kill(os.getppid(), 9)").failure == "forbidden"


def test_what_a_container_is_given():
    config = SandboxConfig(backend="container", runtime=sys.executable, image="mine:1")
    command = BACKENDS["container"].command
    words = command(config)
    told = shlex.join(words)
    for part in ("--network none", "--read-only", "--cap-drop ALL", "mine:1"):
        assert part in told
    users = {words[words.index("--user") + 1] for words in (words, command(config))}
    assert len(users) == 2, "workers share a user, and so the kernel's count of its processes"
    assert "--pids-limit" in words and "no-new-privileges" in words
    open_ = SandboxConfig(backend="container", runtime=sys.executable, network=True)
    assert "--network" not in BACKENDS["container"].command(open_)


def test_having_no_walls_is_said_once(monkeypatch):
    monkeypatch.setattr(pool, "_WARNED", set())
    with pytest.warns(UserWarning, match="does not isolate them") as told:
        for _ in range(2):
            with Sandbox(backend="subprocess", workers=1) as sandbox:
                sandbox.start()
    assert len(told) == 1


def test_what_outlives_a_program_is_ended_without_isolation(plain):
    program = """
import os, time
child = os.fork()
if child == 0:
    os.setsid()
    if os.fork() == 0:
        open("here", "w").write(str(os.getpid()))
        time.sleep(60)
    os._exit(0)
while not os.path.exists("here"): time.sleep(0.01)
result = int(open("here").read() or 0)
"""
    pid = plain.run(program).value
    assert pid > 0 and not os.path.exists(f"/proc/{pid}")


def test_scratch_is_removed_with_its_worker():
    with warnings.catch_warnings():
        warnings.simplefilter("ignore")
        with Sandbox(backend="subprocess", workers=1) as sandbox:
            folder = sandbox.run("import os\nresult = os.getcwd()").value
    assert not os.path.exists(os.path.dirname(folder))


def test_the_environment_does_not_get_in(plain, monkeypatch):
    monkeypatch.setenv("API_TOKEN", "token-4711")
    assert plain.run("import os\nresult = dict(os.environ)").value.get("API_TOKEN") is None
    with warnings.catch_warnings():
        warnings.simplefilter("ignore")
        with Sandbox(backend="subprocess", workers=1) as later:
            assert "API_TOKEN" not in later.run("import os\nresult = dict(os.environ)").value


def test_sockets_open_where_the_network_is_allowed(isolated):
    program = "import socket\nresult = socket.socket().fileno() > 0"
    assert isolated.run(program).failure == "forbidden"
    unix = "import socket\nsocket.socket(socket.AF_UNIX)"
    ask = """
import socket
with socket.create_connection(("127.0.0.1", inputs[0]), 5) as talk:
    result = talk.recv(99)
"""
    for backend in ("isolated", "namespaces"):
        with (
            Sandbox(backend=backend, workers=1, network=True) as sandbox,
            socket.create_server(("127.0.0.1", 0)) as server,
        ):
            assert sandbox.run(program).value is True
            assert sandbox.run(unix).failure == "forbidden"
            asked = sandbox.submit(Job(program=ask, inputs=(server.getsockname()[1],)))
            talk, _ = server.accept()
            talk.sendall(b"hello")
            talk.close()
            assert asked.result().value == b"hello"


@pytest.mark.slow
def test_soak(isolated):
    """Memory, descriptors and processes after the last thousand are those of the first."""

    def look():
        found = load_benchmark("sandbox").used()
        return found.pop("library_mb") + found.pop("workers_mb"), found

    def used():
        """Look until two counts are equal: a worker may still be closing a pipe."""
        before, now = look(), look()
        for _ in range(50):
            if now[1] == before[1]:
                break
            time.sleep(0.1)
            before, now = now, look()
        return now

    programs = ["result = 1", "1 / 0", "import os\nos._exit(1)", "open('x', 'w').write('y')"]
    with Sandbox(workers=2) as sandbox:
        jobs = [Job(program=programs[i % 4]) for i in range(1000)]
        sandbox.run_batch(jobs)
        first = used()
        for _ in range(4):
            sandbox.run_batch(jobs)
        last = used()
        assert sandbox.replaced == 0
    assert last[1] == first[1] and last[1]["zombies"] == 0
    assert last[0] < 1.1 * first[0], (first, last)


def test_setups_are_plain():
    for backend in BACKENDS.values():
        json.dumps(backend.setup(SandboxConfig()))


def test_landlock_and_no_walls_are_never_chosen():
    assert set(candidates(SandboxConfig())) <= {"bubblewrap", "namespaces"}


@pytest.mark.parametrize(
    ("runtime", "words"),
    [
        ("PATH --runtime=runsc", ["run", "--runtime=runsc", "--rm"]),
        ("PATH --runtime runsc --cpus 1", ["run", "--runtime", "runsc", "--cpus", "1", "--rm"]),
    ],
)
def test_options_of_the_runtime_are_passed(runtime, words):
    config = SandboxConfig(backend="container", runtime=runtime.replace("PATH", sys.executable))
    command = BACKENDS["container"].command(config)
    assert command[0] == sys.executable and command[1 : 1 + len(words)] == words


def test_an_oci_runtime_alone_means_docker_with_it(monkeypatch, tmp_path):
    docker = tmp_path / "docker"
    docker.write_text("#!/bin/sh\n")
    docker.chmod(0o755)
    monkeypatch.setenv("PATH", str(tmp_path))
    config = SandboxConfig(backend="container", runtime="runsc")
    assert BACKENDS["container"].command(config)[:3] == [str(docker), "run", "--runtime=runsc"]


def test_what_landlock_promises_less_is_said(monkeypatch):
    monkeypatch.setattr(pool, "_WARNED", set())
    with (
        pytest.warns(UserWarning, match="promises less than 'isolated'"),
        Sandbox(backend="landlock", workers=1) as sandbox,
    ):
        try:
            sandbox.start()
        except SandboxError as refused:
            warnings.warn(BACKENDS["landlock"].warning, stacklevel=1)
            pytest.skip(str(refused))
