"""Processes on this machine that run a program beside this one, and end with it.

Provides `Launcher`, which starts them and knows what became of them, and `begin` and `join`, which
a started process calls. They meet at an address of the loopback.
"""

from __future__ import annotations

import os
import secrets
import signal
import socket
import subprocess
import sys
import tempfile
import time
from collections.abc import Callable
from contextlib import suppress
from datetime import timedelta
from pathlib import Path
from typing import TYPE_CHECKING

from turnwise.errors import ProcessError
from turnwise.parallel.group import ProcessGroup
from turnwise.utils.parents import end_with

if TYPE_CHECKING:
    from torch._C._distributed_c10d import TCPStore

HOST = "127.0.0.1"
SECRET = 32
"""Bytes of the secret with which the processes of a run sign what they send."""
NOTICE = 5.0
"""Seconds in which a process whose connection is lost is expected to have ended."""
FAREWELL = 5.0
"""Seconds that processes have to end by themselves before they are killed."""
MEETING = timedelta(seconds=5)
"""How long this process tries to reach its own address, where there may be no network at all."""
CONNECTING = timedelta(minutes=5)
"""How long processes that run may take to connect."""
LEFT_TO_FIRST = ("SIGINT", "SIGTERM", "SIGHUP", "SIGUSR1")


class Launcher:
    """Processes 1 to `size` - 1 of a group; this one is process 0.

    Args:
        module: what each process runs, as `python -m module`; it calls `begin` and `join`.
        size: how many processes there are, this one included.
        cure: returns what the user can do when a process is lost.

    Raises:
        ProcessError: if the loopback cannot be used, or a process cannot be started.
    """

    def __init__(self, module: str, size: int, cure: Callable[[], str]) -> None:
        from turnwise.parallel.connected import ConnectedGroup

        self._cure = cure
        self._store, self._secret = _open_store(size), secrets.token_hex(SECRET)
        self._scratch = tempfile.TemporaryDirectory(prefix="turnwise-")
        self._processes: list[subprocess.Popen[bytes]] = []
        try:
            for rank in range(1, size):
                self._processes.append(self._start(module, rank, size))
        except OSError as error:
            self._end(0.0)
            raise ProcessError(
                f"process {len(self._processes) + 2} of {size} cannot be started ({error}): set "
                "processes = 1"
            ) from error
        self.group: ProcessGroup = ConnectedGroup(
            rank=0,
            size=size,
            store=self._store,
            host=HOST,
            secret=bytes.fromhex(self._secret),
            wait_for_all=self._wait_for_all,
            lost=self._lost,
        )

    def close(self, *, finished: bool) -> None:
        """End the processes: at once, or when they have `finished` the program as this one has."""
        self.group.close()
        self._end(FAREWELL if finished else 0.0)

    def _end(self, patience: float) -> None:
        """Wait so many seconds for the processes, and kill those that still run."""
        deadline = time.monotonic() + patience
        for process in self._processes:
            try:
                process.wait(max(0.0, deadline - time.monotonic()))
            except subprocess.TimeoutExpired:
                process.kill()
                process.wait()
        self._scratch.cleanup()

    def _start(self, module: str, rank: int, size: int) -> subprocess.Popen[bytes]:
        """Start process `rank`; it imports modules from where this one does.

        The secret goes through its standard input: arguments can be seen by all users, and the
        environment is inherited by programs that it starts.
        """
        environment = os.environ | {
            "PYTHONPATH": os.pathsep.join(os.path.abspath(entry) for entry in sys.path),
            **_card(rank),
        }
        where = [str(self._store.port), str(rank), str(size), str(os.getpid())]
        started = subprocess.Popen(
            [sys.executable, "-P", "-m", module, *where, str(self._farewell(rank))],
            stdin=subprocess.PIPE,
            stdout=_error_output(),
            env=environment,
            start_new_session=True,  # a terminal's Ctrl-C does not reach it while it starts
        )
        assert started.stdin is not None
        with suppress(BrokenPipeError), started.stdin:  # one that has ended is noticed later
            started.stdin.write(f"{self._secret}\n".encode())
        return started

    def _farewell(self, rank: int) -> Path:
        """Return the file in which process `rank` says why it failed."""
        return Path(self._scratch.name) / f"{rank}.txt"

    def _wait_for_all(self) -> None:
        """Wait until all processes run.

        Raises:
            ProcessError: if one ended before.
        """
        names = [f"ready/{rank}" for rank in range(1, len(self._processes) + 1)]
        while True:
            if any(process.poll() is not None for process in self._processes):
                raise ProcessError(self._lost("it ended while it started"))
            if self._store.check(names):
                return
            time.sleep(0.01)

    def _lost(self, what: str) -> str:
        """Say which process ended and why; `what` is what this process noticed."""
        deadline = time.monotonic() + NOTICE
        while all(each.poll() is None for each in self._processes):
            if time.monotonic() > deadline:
                return f"the connection to another process was lost ({what}): {self._cure()}"
            time.sleep(0.01)
        number, process = next(
            (number, each)
            for number, each in enumerate(self._processes, start=2)
            if each.poll() is not None
        )
        return f"process {number} of {len(self._processes) + 1} {self._end_of(number - 1, process)}"

    def _end_of(self, rank: int, process: subprocess.Popen[bytes]) -> str:
        code, farewell = process.returncode, self._farewell(rank)
        if farewell.is_file():
            return f"failed: {farewell.read_text(encoding='utf-8')}"
        if code == -signal.SIGKILL:
            return (
                "was killed by signal 9 (SIGKILL), as the system does when memory is short: "
                f"{self._cure()}"
            )
        if code < 0:
            return f"was ended by signal {-code} ({signal.Signals(-code).name}): {self._cure()}"
        return f"ended with exit code {code}: {self._cure()}"


def _open_store(size: int) -> TCPStore:
    """Return where `size` processes find each other.

    Raises:
        ProcessError: if this machine has no loopback, as in some sandboxes.
    """
    from torch._C._distributed_c10d import TCPStore

    try:
        with socket.socket() as listener:  # torch's own would listen on all interfaces
            listener.bind((HOST, 0))
            listener.listen()
            port = listener.getsockname()[1]
            store = TCPStore(
                HOST,
                port,
                size,
                is_master=True,
                timeout=MEETING,
                wait_for_workers=False,
                master_listen_fd=listener.detach(),
            )
    except (RuntimeError, OSError) as error:
        raise ProcessError(
            f"processes = {size}, but they cannot meet at {HOST} "
            f"({str(error).splitlines()[0]}): allow connections there, or set processes = 1"
        ) from error
    store.set_timeout(CONNECTING)
    return store


def begin(arguments: list[str]) -> None:
    """Leave signals to the process that started this one, and end with it.

    A terminal or a cluster sends signals to all processes; process 0 decides when the run stops.
    """
    for name in LEFT_TO_FIRST:
        if name in signal.Signals.__members__:  # SIGUSR1 does not exist on Windows
            signal.signal(signal.Signals[name], signal.SIG_IGN)
    end_with(int(arguments[3]), signal.SIGKILL)  # elsewhere it ends at the next exchange


def join(arguments: list[str]) -> tuple[ProcessGroup, Path]:
    """Join the group that a `Launcher` made; return it, and the file to say in why one failed."""
    from torch._C._distributed_c10d import TCPStore

    from turnwise.parallel.connected import PATIENCE, ConnectedGroup

    port, rank, size, _, farewell = arguments
    secret = bytes.fromhex(sys.stdin.readline())
    if len(secret) != SECRET:
        raise ProcessError("the process that started this one ended before it sent the secret")
    store = TCPStore(HOST, int(port), int(size), is_master=False, timeout=timedelta(seconds=60))
    store.set_timeout(PATIENCE)
    store.set(f"ready/{rank}", "yes")
    group = ConnectedGroup(rank=int(rank), size=int(size), store=store, host=HOST, secret=secret)
    return group, Path(farewell)


def _card(rank: int) -> dict[str, str]:
    """Return the environment in which process `rank` uses a CUDA card of its own."""
    import torch

    if not torch.cuda.is_available() or rank >= torch.cuda.device_count():
        return {}
    visible = os.environ.get("CUDA_VISIBLE_DEVICES")
    cards = visible.split(",") if visible else [str(n) for n in range(torch.cuda.device_count())]
    return {"CUDA_VISIBLE_DEVICES": cards[rank]}


def _error_output() -> int | None:
    """Return the descriptor of standard error, where processes print; None leaves them their own.

    Standard output may be a JSON object that nothing else may enter.
    """
    try:
        return None if sys.__stderr__ is None else sys.__stderr__.fileno()
    except (OSError, ValueError):
        return None
