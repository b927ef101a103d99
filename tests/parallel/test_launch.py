"""Processes that cannot be started or reached: one sentence, at once, and nothing is left."""

import os
import re
import signal
import subprocess
import sys
import tempfile
import time
from datetime import timedelta
from pathlib import Path

import pytest

from turnwise.errors import ProcessError
from turnwise.parallel import connected, launch
from turnwise.parallel.launch import Launcher

HERE = str(Path(__file__).parent)


def again():
    return "start again"


def test_without_a_loopback_the_cure_is_said(monkeypatch, tmp_path):
    monkeypatch.setattr(launch, "HOST", "192.0.2.1")  # kept for documentation: nobody is there
    monkeypatch.setattr(launch, "MEETING", timedelta(seconds=0.5))
    monkeypatch.setattr(tempfile, "tempdir", str(tmp_path))
    with pytest.raises(ProcessError, match=r"cannot meet at 192\.0\.2\.1 .* set processes = 1"):
        Launcher("partner", 2, again)
    assert not list(tmp_path.iterdir())


def test_what_was_started_ends_if_another_process_cannot_be(monkeypatch, tmp_path):
    started, popen = [], subprocess.Popen

    def start(*args, **kwargs):
        if started:
            raise BlockingIOError(11, "Resource temporarily unavailable")
        started.append(popen(*args, **kwargs))
        return started[0]

    monkeypatch.setattr(subprocess, "Popen", start)
    monkeypatch.setattr(tempfile, "tempdir", str(tmp_path))
    with pytest.raises(ProcessError, match=re.escape("process 3 of 3 cannot be started")):
        Launcher("partner", 3, again)
    assert started[0].returncode == -signal.SIGKILL
    assert not list(tmp_path.iterdir())


def test_a_process_that_dies_before_it_is_needed_is_named(monkeypatch, capfd):
    monkeypatch.setattr(sys, "path", [HERE, *sys.path])
    launcher = Launcher("partner", 2, again)
    try:
        deadline = time.monotonic() + 100
        while not launcher._store.check(["ready/1"]):
            assert time.monotonic() < deadline
            time.sleep(0.05)
        (process,) = launcher._processes
        os.kill(process.pid, signal.SIGKILL)
        process.wait()
        with pytest.raises(ProcessError, match=r"process 2 of 2 was killed .* start again"):
            launcher.group.broadcast(1)
        assert not capfd.readouterr().err, "nobody tries to connect to it"
    finally:
        launcher.close(finished=False)


class Touch:
    """An object that makes a file when it is read from its pickle."""

    def __init__(self, path):
        self.path = str(path)

    def __reduce__(self):
        return open, (self.path, "w")


@pytest.fixture
def launched(monkeypatch):
    monkeypatch.setattr(sys, "path", [HERE, *sys.path])
    launcher = Launcher("partner", 2, again)
    yield launcher
    launcher.close(finished=False)


def test_a_program_without_the_secret_is_noticed_when_it_connects(launched):
    launched.group._secret = bytes(32)
    with pytest.raises(ProcessError, match="process 2 of 2 does not have this run's signature"):
        launched.group.broadcast(None)


def test_what_is_not_signed_is_not_read(launched, tmp_path):
    launched.group.broadcast(("gather", {"value": Touch(tmp_path / "signed")}))
    launched.group.gather(None)
    launched.group._secret = bytes(32)
    launched.group.broadcast(("gather", {"value": Touch(tmp_path / "forged")}))
    launched._processes[0].wait(100)
    assert [path.name for path in tmp_path.iterdir()] == ["signed"]


def test_what_was_signed_for_another_exchange_is_not_read(launched, tmp_path):
    launched.group.broadcast(("gather", {"value": None}))
    launched.group.gather(None)
    launched.group._objects -= 1
    launched.group.broadcast(("gather", {"value": Touch(tmp_path / "again")}))
    launched._processes[0].wait(100)
    assert not list(tmp_path.iterdir())


def test_the_secret_is_neither_an_argument_nor_in_the_environment(launched):
    (process,) = launched._processes
    for name in ("cmdline", "environ"):
        assert launched._secret.encode() not in Path(f"/proc/{process.pid}/{name}").read_bytes()


def test_other_machines_cannot_reach_the_processes(launched):
    launched.group.broadcast(("gather", {"value": None}))
    launched.group.gather(None)
    pids = [os.getpid(), launched._processes[0].pid]
    sockets = {
        os.readlink(link)
        for pid in pids
        for link in Path(f"/proc/{pid}/fd").iterdir()
        if link.is_symlink() and os.path.lexists(link)
    }
    found = []
    for name in ("tcp", "tcp6"):
        for line in Path(f"/proc/net/{name}").read_text().splitlines()[1:]:
            fields = line.split()
            if fields[3] == "0A" and f"socket:[{fields[9]}]" in sockets:
                found.append(fields[1].partition(":")[0])
    assert found
    assert set(found) == {"0100007F"}, "127.0.0.1, in the byte order of the machine"


def test_a_process_that_is_sent_no_secret_does_not_go_on(tmp_path):
    ended = subprocess.run(
        [sys.executable, "-c", "from turnwise.parallel.launch import join; join(['1'] * 5)"],
        stdin=subprocess.DEVNULL,
        capture_output=True,
        text=True,
    )
    assert "ended before it sent the secret" in ended.stderr


def test_a_length_without_a_signature_takes_no_memory():
    for length in (1 << 62, 1 << 64):
        with pytest.raises(ProcessError, match="there is no memory"):
            connected._room(length)
