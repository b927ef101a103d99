"""A worker: stands behind walls, runs one program after another, each in a fresh child, and judges.

Owns how a program ended. It watches the child from outside, by clocks and pipes that are not the
child's, kills it at its limits, cleans up behind it, and answers over a pipe that no child ever
has. It holds nothing worth stealing: whoever checks a program's answer knows what is right, and is
not here.
"""

from __future__ import annotations

import gc
import importlib
import os
import random
import select
import shutil
import signal
import sys
import tempfile
import time
from contextlib import suppress
from typing import Any

from turnwise.sandbox.inside import files, jail, kernel, wire
from turnwise.sandbox.inside.child import ROOM, Job, Sheet, limit, live, make_streams
from turnwise.sandbox.inside.filters import Filter
from turnwise.sandbox.inside.jail import Walls

NOTHING, CONTROL, ANSWERS = 4, 60, 61
"""Descriptors: of /dev/null, of what comes from the library, and of what goes to it."""
SOON = 0.0005
"""Seconds between two looks at the clock of a program that is near its limit."""
OFTEN = 0.02
"""Seconds between two looks at what a program has written, where no file system bounds it."""
MARGIN = 16 << 20
_TOLD = ("syntax", "exception", "memory", "output", "forbidden", "cpu", "crash")
_CORES = os.cpu_count() or 1


class Worker:
    """The state of a worker: its walls, and what programs use one after the other.

    No descriptor that a program has had is another's: the pipe that tells of walls is closed in
    every child before its program begins.
    """

    def __init__(self, walls: Walls, network: bool, base: int) -> None:
        self.walls, self.network, self.base = walls, network, base
        self.sheet = Sheet(1 << 20)
        self.filters: dict[bool, Filter] = {}
        self.limits: dict[str, Any] = {}
        self.seed: int | None = None
        self.scratch_size = 0
        self.runs = 0
        self.ready = os.pipe()
        os.set_blocking(self.ready[0], False)

    def filter(self, tools: bool) -> Filter | None:
        """Return what programs are put under; None where there are no walls at all."""
        if self.walls.kind == "none":
            return None
        if tools not in self.filters:
            own = self.walls.kind != "landlock"
            self.filters[tools] = Filter(tools=tools, network=self.network, whole=own)
        return self.filters[tools]

    def serve(self, header: dict[str, Any], blobs: list[bytes]) -> tuple[dict[str, Any], Any]:
        """Run one program; return what became of it, and its value, output and errors."""
        source, inputs, stdin = blobs
        limits = header["limits"] | {"base": self.base + MARGIN}
        if limits != self.limits:
            self.limits = limits
            self.sheet = Sheet(limits["output"] + ROOM)
            limit(limits, self.walls)
        job = Job(
            source=source.decode("utf-8", "surrogatepass"),
            call=header["call"],
            inputs=inputs,
            stdin=stdin,
            limits=limits,
        )
        if header["seed"] != self.seed:
            self.seed = header["seed"]
            _seed_generators(header["seed"])
        return Run(self, job).to_the_end()

    def folder(self, size: int) -> str:
        """Return an empty folder for the next program."""
        if not self.walls.own_root:
            self.runs += 1
            folder = os.path.join(self.walls.scratch, str(self.runs))
            os.mkdir(folder)
            os.chmod(folder, 0o777 if self.walls.user is not None else 0o700)
            return folder
        if size != self.scratch_size or os.listdir(self.walls.scratch):
            kernel.unmount(self.walls.scratch)
            jail.mount_scratch(self.walls.scratch, size)
            self.scratch_size = size
            os.chdir(self.walls.scratch)
        return self.walls.scratch

    def leave(self, folder: str) -> None:
        """Remove what a program leaves behind, where it is not on a file system of its own."""
        if not self.walls.own_root:
            files.remove(folder, self.walls.scratch)


class Run:
    """One program's child, as it is watched from outside."""

    def __init__(self, worker: Worker, job: Job) -> None:
        self.worker, self.job, self.limits = worker, job, job.limits
        self.verdict: tuple[str, str] | None = None
        self.output: dict[int, bytearray] = {}

    def to_the_end(self) -> tuple[dict[str, Any], list[bytes]]:
        """Start the child, watch it, end it; return the verdict and all that it said."""
        worker, limits = self.worker, self.limits
        folder = worker.folder(limits["files"])
        filter = worker.filter(limits["processes"] > 1)
        stdin = _stdin(self.job.stdin)
        out, err = os.pipe(), os.pipe()
        began = time.monotonic()
        pid = kernel.fork()
        if pid == 0:
            for place, end in enumerate((stdin, out[1], err[1], worker.ready[1])):
                os.dup2(end, place)
            live(self.job, worker.walls, filter, worker.sheet, folder)
        for descriptor in (out[1], err[1], *([] if stdin == NOTHING else [stdin])):
            os.close(descriptor)
        self.output = {out[0]: bytearray(), err[0]: bytearray()}
        self.watch(pid, began, folder)
        status, usage = self.end(pid)
        wall = time.monotonic() - began
        self.drain()
        try:
            stood = os.read(worker.ready[0], 1) == b"!"
        except BlockingIOError:
            stood = False
        cpu = usage.ru_utime + usage.ru_stime
        said = worker.sheet.take()
        worker.leave(folder)
        header, value = self.judge(status, cpu, said)
        header |= {"stood": stood, "cpu": cpu, "wall": wall, "peak": usage.ru_maxrss * 1024}
        return header, [value, *(bytes(part) for part in self.output.values())]

    def watch(self, pid: int, began: float, folder: str) -> None:
        """Return when the child has ended, or has reached a limit."""
        clock = (~pid << 3) | 2  # CLOCK_PROCESS_CPUTIME_ID of another process
        ended = os.pidfd_open(pid)
        poll = select.poll()
        poll.register(ended, select.POLLIN)
        poll.register(CONTROL, 0)  # its end, not what it brings
        for descriptor in self.output:
            os.set_blocking(descriptor, False)
            poll.register(descriptor, select.POLLIN)
        cores = min(_CORES, self.limits["threads"] + self.limits["processes"])
        bounded = self.worker.walls.own_root
        used = 0.0
        try:
            while self.verdict is None:
                with suppress(OSError):
                    used = time.clock_gettime(clock)
                    if used >= self.limits["cpu"]:
                        self.verdict = "cpu", f"more than {self.limits['cpu']:g} s of CPU time"
                        return
                left = self.limits["wall"] - (time.monotonic() - began)
                if left <= 0:
                    self.verdict = "timeout", f"more than {self.limits['wall']:g} s"
                    return
                pause = min(left, max((self.limits["cpu"] - used) / cores, SOON))
                events = poll.poll(1e3 * (pause if bounded else min(pause, OFTEN)))
                if any(descriptor == CONTROL for descriptor, _ in events):
                    os.kill(pid, signal.SIGKILL)
                    os._exit(0)  # nobody waits for an answer any more
                for descriptor, _ in events:
                    if descriptor in self.output and not self.read(descriptor):
                        poll.unregister(descriptor)  # closed
                if not bounded and files.size(folder) > self.limits["files"]:
                    self.verdict = "output", f"more than {self.limits['files']} bytes in files"
                if any(descriptor == ended for descriptor, _ in events):
                    return
        finally:
            os.close(ended)

    def read(self, descriptor: int) -> bool:
        """Take what there is to read; return whether there was anything."""
        try:
            part = os.read(descriptor, 1 << 16)
        except BlockingIOError:
            return False
        most, kept = self.limits["output"], self.output[descriptor]
        kept += part
        if len(kept) > most:
            del kept[most:]
            self.verdict = self.verdict or ("output", f"more than {most} bytes printed")
        return bool(part)

    def drain(self) -> None:
        """Take the rest of the output, of a child that has ended, and close the pipes."""
        for descriptor in self.output:
            while len(self.output[descriptor]) < self.limits["output"] and self.read(descriptor):
                pass
            os.close(descriptor)

    def end(self, pid: int) -> tuple[int, Any]:
        """End the child and all it has started; return its status and what it used."""
        with suppress(ProcessLookupError):
            os.kill(pid, signal.SIGKILL)
        _, status, usage = os.wait4(pid, 0)
        if self.worker.walls.own_root:
            with suppress(ProcessLookupError):
                os.kill(-1, signal.SIGKILL)  # all in this namespace but its first process
            with suppress(ChildProcessError):
                while True:
                    os.waitpid(-1, 0)
        else:
            _end_all_below()
        return status, usage

    def judge(self, status: int, cpu: float, said: bytes | None) -> tuple[dict[str, Any], bytes]:
        """Return how it ended, and the value if it has one."""
        if self.verdict is None and cpu >= self.limits["cpu"]:
            self.verdict = "cpu", f"more than {self.limits['cpu']:g} s of CPU time"
        if self.verdict is None and os.WIFSIGNALED(status):
            self.verdict = _of_signal(os.WTERMSIG(status))
        if self.verdict is not None:
            return _failed(*self.verdict), b""
        if said is None:
            code = os.WEXITSTATUS(status)
            return _failed("crash", f"it ended its process, with status {code}"), b""
        if said.startswith(b'["value",'):
            return {"failure": ""}, said
        try:
            _, kind, message, line = wire.load(said[:ROOM])
            assert kind in _TOLD and type(message) is str and type(line) is int
        except (wire.NotPlainError, ValueError, TypeError, AssertionError):
            return _failed("crash", "what it left behind cannot be read"), b""
        return _failed(kind, message, line), b""


def _seed_generators(seed: int) -> None:
    """Seed the generators that programs share by convention: all children begin with copies."""
    random.seed(seed)
    if "numpy.random" in sys.modules:
        sys.modules["numpy.random"].seed(seed % 2**32)


def _failed(kind: str, message: str, line: int = 0) -> dict[str, Any]:
    return {"failure": kind, "message": message[:1000], "line": line}


def _of_signal(number: int) -> tuple[str, str]:
    """Return what it means that a signal ended a child which nobody killed."""
    if number == signal.SIGSYS:
        return "forbidden", "it made a system call that programs may not make"
    if number == signal.SIGXCPU:
        return "cpu", "more CPU time than allowed"
    if number == signal.SIGXFSZ:
        return "output", "a larger file than allowed"
    try:
        name = signal.Signals(number).name
    except ValueError:
        name = f"signal {number}"
    return "crash", f"it was ended by {name}"


def _stdin(text: bytes) -> int:
    """Return a descriptor from which `text` can be read."""
    if not text:
        return NOTHING
    descriptor = os.memfd_create("stdin")
    wire.write_all(descriptor, text)
    os.lseek(descriptor, 0, os.SEEK_SET)
    return descriptor


def _end_all_below() -> None:
    """Kill whatever descends from this process, until nothing does."""
    while True:
        children = _children()
        for child in children:
            with suppress(ProcessLookupError, PermissionError):
                os.kill(child, signal.SIGKILL)
        with suppress(ChildProcessError):
            while os.waitpid(-1, 0 if children else os.WNOHANG)[0]:
                pass
        if not children:
            return


def _children() -> list[int]:
    """Return the processes whose parent this is; those whose parents are gone among them."""
    try:
        with open(f"/proc/self/task/{os.getpid()}/children", encoding="ascii") as file:
            return [int(word) for word in file.read().split()]
    except OSError:  # no /proc to be read behind these walls, and no way to start processes
        return []


def main() -> None:
    """Stand behind the walls that the first frame asks for, and serve until there are no more."""
    os.dup2(0, CONTROL)
    os.dup2(1, ANSWERS)
    nothing = os.open(os.devnull, os.O_RDWR)
    for descriptor in (0, 1, 3, NOTHING):  # so that nothing else is opened there
        if descriptor != nothing:
            os.dup2(nothing, descriptor)
    signal.signal(signal.SIGINT, signal.SIG_IGN)  # Ctrl-C is for the one at the keyboard
    asked, _ = wire.read_frame(CONTROL)
    try:
        worker = _prepared(asked)
    except jail.RefusedError as refused:
        wire.write_frame(ANSWERS, {"refused": str(refused)})
        return
    walls = worker.walls
    wire.write_frame(ANSWERS, {"walls": walls.kind, "scratch": walls.scratch})
    with suppress(EOFError, BrokenPipeError):
        while True:
            header, blobs = wire.read_frame(CONTROL)
            wire.write_frame(ANSWERS, *worker.serve(header, blobs))
    if not walls.own_root:
        shutil.rmtree(walls.scratch, ignore_errors=True)


def _prepared(asked: dict[str, Any]) -> Worker:
    """Import what programs are to find imported, then build the walls."""
    for name in asked["preload"]:
        importlib.import_module(name)
    if "numpy" in sys.modules:  # or it would come, and draw its own seed, with the program
        importlib.import_module("numpy.random")
    base = _address_space()
    walls = jail.enter(asked["walls"], asked["readable"], asked["network"])
    os.environ.clear()
    os.environ.update(
        {"HOME": walls.scratch, "TMPDIR": walls.scratch, "PATH": "/usr/bin:/bin", "LANG": "C.UTF-8"}
        | {"OMP_NUM_THREADS": "1", "OPENBLAS_NUM_THREADS": "1", "PYTHONHASHSEED": "0"}
    )
    tempfile.tempdir = None
    if not walls.own_root:  # what a program leaves behind becomes this process's child
        kernel.prctl(kernel.PR_SET_CHILD_SUBREAPER, 1)
    if walls.kind != "none":
        kernel.prctl(kernel.PR_SET_NO_NEW_PRIVS, 1)
    worker = Worker(walls, asked["network"], base)
    make_streams()
    gc.collect()
    gc.freeze()  # so that no child's collector touches, and copies, what all share
    return worker


def _address_space() -> int:
    """Return the bytes of addresses that this process has in use."""
    with open("/proc/self/statm", encoding="ascii") as file:
        return int(file.read().split()[0]) * os.sysconf("SC_PAGE_SIZE")
