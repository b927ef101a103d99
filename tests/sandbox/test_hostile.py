import os
import platform
import shutil
import signal
import socket
import sys
import tempfile
import time
from concurrent.futures import ThreadPoolExecutor
from contextlib import suppress
from pathlib import Path

import pytest

sys.path.insert(0, str(Path(__file__).parent))
from apart import Apart, RefusedError
from hostile import CORPUS, SAFE, SYSTEM
from hostile_readers import PREPARED, READERS
from hostile_traces import HONEST, TRACES

from turnwise.errors import SandboxError
from turnwise.sandbox import Limits

from ..conftest import load_benchmark

REPOSITORY = Path(__file__).parents[2]
PREFIX = "what is right: "
EXPECTED = PREFIX + os.urandom(8).hex()
SHORT = Limits(cpu=0.5, wall=20.0, memory=64, output=1 << 16, files=1)
LIMITS = {
    "": SHORT,
    "tools": SHORT.model_copy(update={"processes": 4}),
    "steps": SHORT.model_copy(update={"steps": 10_000}),
    "twice": SHORT,
    "scan": Limits(cpu=30.0, wall=60.0, memory=512),
    "slow": Limits(cpu=10.0, wall=60.0, memory=512),
}
BELOW_PYTHON = """
import ctypes, os
def CALL(*args):
    given = [ctypes.c_long(arg) if isinstance(arg, int) else arg for arg in args]
    return ctypes.CDLL(None, use_errno=True).syscall(*given)
def SEEN(path):
    return path if os.path.exists(path) else 'nothing'
"""


@pytest.fixture(scope="module")
def host():
    """The targets of programs: a file that anybody may write, a server, a token in the env."""
    with (
        tempfile.TemporaryDirectory(prefix="host-", dir="/var/tmp") as name,
        socket.create_server(("127.0.0.1", 0)) as server,
        socket.socket(socket.AF_UNIX, socket.SOCK_DGRAM) as service,
        pytest.MonkeyPatch.context() as patch,
    ):
        folder = Path(name)
        (folder / "secret.txt").write_text("canary")
        folder.chmod(0o777)
        (folder / "secret.txt").chmod(0o666)
        service.bind(str(folder / "service"))
        service.setblocking(False)
        (folder / "service").chmod(0o777)
        server.settimeout(0.01)
        patch.setenv("API_TOKEN", "token-4711")
        yield {
            "folder": folder,
            "server": server,
            "service": service,
            "before": sorted(os.listdir(folder)),
        }


USERS = ("root", "ordinary")
WEAKER = ("landlock", "container")
BACKENDS = ("namespaces", "bubblewrap", "landlock", "container")
OFTEN = [("ordinary", "namespaces"), ("ordinary", "landlock")]
"""One of each kind of isolation, for the user that runs the tests; `make test-all` runs all."""
WAYS = [
    pytest.param((user, backend), marks=() if (user, backend) in OFTEN else pytest.mark.slow)
    for backend in BACKENDS
    for user in USERS
]
RUNTIME = Path(__file__).with_name("runtime.py")


@pytest.fixture(scope="module", params=WAYS, ids="-".join)
def box(request, host, tmp_path_factory):
    """A sandbox of each backend, as root and as an ordinary user."""
    user, backend = request.param
    if user == "root" and os.geteuid() != 0:
        pytest.skip("the tests do not run as root")
    options = {}
    if backend == "container":
        if user == "root" or shutil.which("bwrap") is None:
            pytest.skip("the runtime of these tests is bubblewrap, as an ordinary user")
        runtime = tmp_path_factory.mktemp("bin") / "runtime"
        for folder in (runtime.parent, *runtime.parent.parents[:2]):
            folder.chmod(0o755)
        runtime.write_text(f'#!/bin/sh\nexec {sys.executable} {RUNTIME} "$@"\n')
        runtime.chmod(0o755)
        options["runtime"] = str(runtime)
    try:
        sandbox = Apart(user, backend, **options)
    except RefusedError as refused:
        pytest.skip(f"{backend} as {user}: {refused}")
    yield sandbox
    sandbox.close()


def known(host, sandbox):
    return {
        "SECRETS": [str(host["folder"] / "secret.txt"), str(REPOSITORY / "pyproject.toml")],
        "REPOSITORY": str(REPOSITORY),
        "OWN": sys.prefix,
        "TOKEN": "token-4711",
        "PORT": host["server"].getsockname()[1],
        "HOST": sandbox.pid,
        "MACHINE": platform.node(),
        "PREFIX": PREFIX,
        "SERVICE": str(host["folder"] / "service"),
        "WEAKER": sandbox.isolation in WEAKER,
    }


def prepared(entry):
    """Return program and limits of an entry."""
    _, _, program, *limits = entry
    if entry in SYSTEM:
        if platform.machine() != "x86_64":
            pytest.skip("numbers of system calls are those of x86_64")
        program = BELOW_PYTHON + program
    if entry in READERS:
        program = PREPARED + program
    bounds = LIMITS[limits[0] if limits else ""]
    waits = "timeout" in entry[1].split()
    return program, bounds.model_copy(update={"wall": 1.5}) if waits else bounds


def check_untouched(host, sandbox):
    assert (host["folder"] / "secret.txt").read_text() == "canary"
    assert sorted(os.listdir(host["folder"])) == host["before"]
    with pytest.raises(TimeoutError):
        host["server"].accept()
    with pytest.raises(BlockingIOError):
        host["service"].recv(1)
    after = sandbox.run("import os\nresult = (sorted(os.listdir('.')), len('abc'), sum([1, 2]))")
    assert after.ok and after.value == ([], 3, 3), after
    assert len(sandbox.run("print('x' * 200_000)").stdout) == 200_001
    assert sandbox.run("def f(x): return x", (EXPECTED[-3:],), call="f").value == EXPECTED[-3:]


OUT_OF_SIGHT = {
    "name of this machine": "may be known",
    "remove everything": "not on a machine that is somebody's",
    "write everywhere": "not on a machine that is somebody's",
}
"""The effects that only a file system and a name of their own prevent."""


def name_of(entry):
    return entry[0].replace(" ", "-")


@pytest.mark.parametrize("entry", CORPUS, ids=name_of)
def test_program_is_contained(entry, host, box):
    check_contained(entry, host, box)


@pytest.mark.parametrize("entry", READERS, ids=name_of)
def test_what_reads_a_program_is_not_misled(entry, host, box):
    check_contained(entry, host, box)


@pytest.mark.parametrize("entry", [*TRACES, *HONEST], ids=name_of)
def test_programs_leave_no_trace_and_honest_ones_run(entry, host, box):
    check_contained(entry, host, box)


def check_contained(entry, host, box):
    name, wanted, *_ = entry
    program, limits = prepared(entry)
    weaker = box.isolation in WEAKER
    if weaker and name in OUT_OF_SIGHT:
        pytest.skip(OUT_OF_SIGHT[name])
    if box.isolation == "container" and name == "list folders":
        pytest.skip("a container shows the /proc of its own processes")
    if box.isolation == "landlock" and limits.processes > 1:
        with pytest.raises(SandboxError, match="does not keep processes apart"):
            box.run(program, known(host, box), limits)
        return

    if "twice" in entry:
        box.run(program, known(host, box), limits)

    result = box.run(program, known(host, box), limits)

    assert (result.failure or "value") in [*wanted.split(), *["forbidden", "output"] * weaker], (
        name,
        result,
    )
    assert result.failure or result.value == SAFE, (name, result.value)
    assert len(result.stdout) <= 1 << 20 and len(result.message) <= 1000
    assert box.replaced == 0, "its worker did not survive"
    check_untouched(host, box)


def test_programs_have_different_names():
    names = [entry[0] for entry in [*CORPUS, *READERS, *TRACES, *HONEST]]
    assert len(set(names)) == len(names) >= 220


SCAN = """
import ctypes, os, re, sys
libc = ctypes.CDLL(None, use_errno=True)
libc.write.restype = ctypes.c_long
libc.sbrk.restype = ctypes.c_void_p
PAGE = 4096
out, into = os.pipe()
vector = ctypes.create_string_buffer(1)
def there(address):
    return libc.mincore(ctypes.c_void_p(address), ctypes.c_size_t(PAGE), vector) == 0
top = libc.sbrk(0) & -PAGE
places = [(top - (32 << 20), top + PAGE)]
kinds = [None, [], "", bytearray(1 << 20), object(), sys, os, lambda: 0, *sys.modules.values()]
for place in sorted({id(kind) & -(1 << 22) for kind in kinds}):
    places.append((place - (2 << 20), place + (6 << 20)))
found = set()
for low, high in places:
    for page in range(low, high, PAGE):
        if there(page) and libc.write(into, ctypes.c_void_p(page), ctypes.c_size_t(PAGE)) > 0:
            found.update(re.findall(PART.encode() + rb"[a-z]+-[0-9]{4}", os.read(out, PAGE)))
result = sorted(found)
"""
"""Reads the program's own memory: the heap, and around all kinds of objects."""


def test_no_memory_holds_an_earlier_program(host, box):
    mark, limits = "zq" + os.urandom(4).hex(), LIMITS["scan"]
    solution = f"""
# {mark}source-1234
print({mark!r} + "stdout-1234"); open("left", "w").write({mark!r} + "file-1234")
def solve(x, y="{mark}const-1234"):
    return ["{mark}value-1234", x, input()]
"""
    for _ in range(4):
        box.run(solution, (f"{mark}input-1234",), limits, call="solve", stdin=f"{mark}stdin-1234\n")
        box.run(f"raise ValueError('{mark}message-1234')", (), limits)
    control = box.run(f"own = '{mark}'\nown += 'own-1234'\n" + SCAN, {"PART": mark}, limits)
    assert f"{mark}own-1234".encode() in control.value, "the scan is blind"
    theft = box.run(SCAN, {"PART": mark}, limits)
    assert theft.value == [], theft.value


def test_a_worker_has_no_rights(host, box):
    """Seen from outside: an ordinary user without capabilities, under a filter, not dumpable."""
    below = load_benchmark("sandbox").below(box.pid)
    workers = [pid for pid in below if not load_benchmark("sandbox").below(pid)]
    (status,) = [Path(f"/proc/{pid}/status").read_text() for pid in workers]
    found = dict(line.split(":", 1) for line in status.splitlines())
    assert set(found["Uid"].split()).isdisjoint({"0"}) and set(found["Gid"].split()) != {"0"}
    for name in ("CapInh", "CapPrm", "CapEff", "CapAmb"):
        assert int(found[name], 16) == 0, name
    assert found["NoNewPrivs"].strip() == "1" and found["Seccomp"].strip() == "2"
    assert os.stat(f"/proc/{workers[0]}/environ").st_uid == 0, "it may be inspected"


SPIN = """
import os, signal
for number in range(1, 65):
    try: signal.signal(number, signal.SIG_IGN)
    except (OSError, ValueError): pass
try: os.setsid()
except OSError: pass  # it leads a session already
for _ in range(900):
    os.mkdir('d'); os.chdir('d')
while True: pass
"""


@pytest.mark.parametrize("which", [0, -1], ids=["first", "last"])
def test_what_was_started_ends_with_its_worker(host, box, which):
    below = load_benchmark("sandbox").below
    before = below(box.pid)
    with ThreadPoolExecutor(1) as pool:
        running = pool.submit(box.run, SPIN, (), Limits(cpu=2.0, wall=30.0))
        while len(below(box.pid)) <= len(before):
            time.sleep(0.02)
        program = set(below(box.pid)) - set(before)
        time.sleep(0.4)  # a deep tree stands
        kill_one(before[which])
        deadline = time.monotonic() + 10
        while any(_runs(pid) for pid in program):
            assert time.monotonic() < deadline, "it outlives its worker"
            time.sleep(0.05)
        assert running.result(90).failure == "cpu"  # it was tried again, with another worker
    assert box.run("result = 5").value == 5
    box.forgive()


def kill_one(pid):
    with suppress(ProcessLookupError):
        os.kill(pid, signal.SIGKILL)


def _runs(pid):
    try:
        return Path(f"/proc/{pid}/stat").read_text().rpartition(")")[2].split()[0] not in "ZX"
    except OSError:
        return False
