import os
import platform
import socket
import sys
from pathlib import Path

import pytest

sys.path.insert(0, str(Path(__file__).parent))
from hostile import CORPUS, SAFE, SYSTEM

from turnwise.errors import SandboxError
from turnwise.sandbox import Limits

REPOSITORY = Path(__file__).parents[2]
PREFIX = "what is right: "
EXPECTED = PREFIX + os.urandom(8).hex()
SHORT = Limits(cpu=0.5, wall=20.0, memory=64, output=1 << 16, files=1)
LIMITS = {
    "": SHORT,
    "tools": SHORT.model_copy(update={"processes": 4}),
    "steps": SHORT.model_copy(update={"steps": 10_000}),
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
def host(tmp_path_factory):
    """What programs are after: a file, a server, a token in the environment."""
    folder = tmp_path_factory.mktemp("host")
    (folder / "secret.txt").write_text("canary")
    with socket.create_server(("127.0.0.1", 0)) as server, pytest.MonkeyPatch.context() as patch:
        server.settimeout(0.01)
        patch.setenv("API_TOKEN", "token-4711")
        yield {"folder": folder, "server": server, "before": sorted(os.listdir(folder))}


def known(host):
    return {
        "SECRETS": [str(host["folder"] / "secret.txt"), str(REPOSITORY / "pyproject.toml")],
        "REPOSITORY": str(REPOSITORY),
        "OWN": sys.prefix,
        "TOKEN": "token-4711",
        "PORT": host["server"].getsockname()[1],
        "HOST": os.getpid(),
        "MACHINE": platform.node(),
        "PREFIX": PREFIX,
    }


def prepared(entry):
    """Return program and limits of an entry."""
    _, _, program, *limits = entry
    if entry in SYSTEM:
        if platform.machine() != "x86_64":
            pytest.skip("numbers of system calls are those of x86_64")
        program = BELOW_PYTHON + program
    bounds = LIMITS[limits[0] if limits else ""]
    waits = "timeout" in entry[1].split()
    return program, bounds.model_copy(update={"wall": 1.5}) if waits else bounds


def check_untouched(host, sandbox):
    assert (host["folder"] / "secret.txt").read_text() == "canary"
    assert sorted(os.listdir(host["folder"])) == host["before"]
    with pytest.raises(TimeoutError):
        host["server"].accept()
    after = sandbox.run("import os\nresult = (sorted(os.listdir('.')), len('abc'), sum([1, 2]))")
    assert after.ok and after.value == ([], 3, 3), after
    assert len(sandbox.run("print('x' * 200_000)").stdout) == 200_001
    assert sandbox.run("def f(x): return x", (EXPECTED[-3:],), call="f").value == EXPECTED[-3:]


@pytest.mark.parametrize("entry", CORPUS, ids=lambda entry: entry[0].replace(" ", "-"))
def test_program_is_contained(entry, host, isolated):
    name, wanted, *_ = entry
    program, limits = prepared(entry)
    replaced = isolated.replaced

    result = isolated.run(program, known(host), limits)

    assert (result.failure or "value") in wanted.split(), (name, result)
    assert result.failure or result.value == SAFE, (name, result.value)
    assert len(result.stdout) <= 1 << 20 and len(result.message) <= 1000
    assert isolated.replaced == replaced, "its worker did not survive"
    check_untouched(host, isolated)


OUT_OF_SIGHT = {
    "name of this machine": "may be known",
    "remove everything": "not on a machine that is somebody's",
    "write everywhere": "not on a machine that is somebody's",
}
"""What only a file system and a name of their own keep from programs."""


@pytest.mark.parametrize("entry", CORPUS, ids=lambda entry: entry[0].replace(" ", "-"))
def test_program_is_contained_without_namespaces(entry, host, landlocked):
    name, wanted, *_ = entry
    program, limits = prepared(entry)
    if name in OUT_OF_SIGHT:
        pytest.skip(OUT_OF_SIGHT[name])
    if limits.processes > 1:
        with pytest.raises(SandboxError, match="does not keep processes apart"):
            landlocked.run(program, known(host), limits)
        return
    result = landlocked.run(program, known(host), limits)

    assert (result.failure or "value") in [*wanted.split(), "forbidden"], (name, result)
    assert result.failure or result.value == SAFE, (name, result.value)
    assert landlocked.replaced == 0, "its worker did not survive"
    check_untouched(host, landlocked)


def test_corpus_has_sixty_programs_of_different_names():
    assert len({entry[0] for entry in CORPUS}) == len(CORPUS) >= 60
