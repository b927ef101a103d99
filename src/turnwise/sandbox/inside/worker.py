"""A worker: an isolated process that runs one program after another, each in a fresh child.

Provides `main`. The worker monitors a child by its own clocks and pipes, kills it at its limits,
cleans up and reports measurements. It never has a program, its inputs, its value or its output in
memory: the child reads the program and its inputs, and the kernel copies value and output from
memory files to the library. After its start it imports nothing, has no capability and is under a
filter of system calls.
"""

from __future__ import annotations

import atexit
import gc
import importlib
import json
import os
import select
import signal
import sys
import time
from contextlib import suppress
from typing import Any

from . import files, filters, frames, kernel
from .child import (
    CONTROL,
    FILE,
    ChildSettings,
    RecordMemory,
    make_streams,
    run_child,
    seed_generators,
    warm_up_interpreter,
)
from .frames import CPU, FILES, NONE, STDERR, STDOUT, THREADS, TIMEOUT, Order, Report
from .isolation import Isolation, RefusedError, enter
from .plan import LaunchPlan
from .processes import Clock, contents, end_all_below, end_all_others, threads_of

NOTHING, ANSWERS = 5, 61
"""Descriptors: of /dev/null, and of the pipe to the library."""
SOON = 0.0005
"""Seconds between two polls of a program that is near its limit."""
OFTEN = 0.005
"""Seconds between two polls of resources that the kernel does not limit."""
PREPARED = 20.0
"""Seconds in which a child must read its program and complete its isolation."""
MARGIN = 16 << 20
_CORES = os.cpu_count() or 1


class Worker:
    """The state of a worker: its isolation, and the prepared state of its children."""

    def __init__(self, isolation: Isolation, network: bool) -> None:
        self.isolation, self.network = isolation, network
        self.base: tuple[int, int] = (0, 0)
        self.imports: tuple[list[Any], list[Any], list[Any]] = ([], [], [])
        self._prepared: tuple[tuple[Any, ...], ChildSettings] | None = None
        self.filters: dict[bool, filters.Filter] = {}

    def filter(self, tools: bool) -> filters.Filter | None:
        """Return the filter for programs; None without any isolation."""
        if not self.isolation.filtered:
            return None
        if tools not in self.filters:
            guard = filters.Guard(
                modes=self.isolation.kind != "landlock",
                times=self.isolation.nested,
                nameless=self.isolation.nested or self.isolation.mounted,
                maps=self.isolation.zero_closed,
            )
            self.filters[tools] = filters.Filter(guard, tools=tools, network=self.network)
        return self.filters[tools]

    def freeze(self) -> None:
        """Remove the import machinery; children restore it."""
        self.imports = (sys.path, sys.meta_path, sys.path_hooks)
        sys.path, sys.meta_path, sys.path_hooks = [], [], []

    def settings(self, order: Order) -> ChildSettings:
        """Return the prepared state for programs with these limits; it is cached."""
        limits = order[1:]
        if self._prepared is None or self._prepared[0] != limits:
            settings = ChildSettings(
                isolation=self.isolation,
                plan=LaunchPlan(self.isolation, order, self.base),
                filter=self.filter(order.processes > 1),
                imports=self.imports,
            )
            self._prepared = limits, settings
        return self._prepared[1]

    def serve(self, order: Order) -> None:
        """Run one program and report on it."""
        if self.isolation.nested:
            self.carry_out(order, self.isolation.scratch, -1)
            return
        name = os.urandom(16).hex()  # a program cannot guess the folder of a later one
        os.mkdir(name, 0o700, dir_fd=self.isolation.place)
        own = os.open(
            name, os.O_RDONLY | os.O_DIRECTORY | os.O_CLOEXEC, dir_fd=self.isolation.place
        )
        try:
            self.carry_out(order, os.path.join(self.isolation.scratch, name), own)
        finally:
            os.close(own)
            if not files.clear(self.isolation.place):
                os._exit(1)  # processes that survive must not meet a later program

    def carry_out(self, order: Order, folder: str, own: int) -> None:
        """Run one program in `folder`, of which `own` is a descriptor, and report on it."""
        run = Run(self.isolation, order, self.isolation.place if self.isolation.mounted else own)
        run.start(self.settings(order), folder)
        run.watch()
        run.end()
        run.report()


class Run:
    """The child of one program, as the worker monitors it."""

    def __init__(self, isolation: Isolation, order: Order, place: int) -> None:
        self.isolation, self.order, self.place = isolation, order, place
        self.ended = self.status = self.peak = 0
        self.began = self.cpu = self.wall = 0.0
        self.reason = b""
        self.isolated = False
        self.left = False
        """Whether its process has ended by itself."""
        self.record = os.memfd_create("record")
        self.output: dict[int, list[int]] = {}
        """Of each stream's pipe: the memory file of its output or -1, and its size in bytes."""

    def start(self, settings: ChildSettings, folder: str) -> None:
        """Start the child, whose program writes in `folder`."""
        out, err, ready = os.pipe(), os.pipe(), os.pipe()
        self.pid = kernel.fork()
        if self.pid == 0:
            run_child(
                self.order, settings, folder, (NOTHING, out[1], err[1], ready[1], self.record)
            )
        for end in (out[1], err[1], ready[1]):
            os.close(end)
        self.ready, self.due = ready[0], time.monotonic() + PREPARED
        self.streams = {out[0]: STDOUT, err[0]: STDERR}
        self.output = {out[0]: [-1, 0], err[0]: [-1, 0]}
        self.open = {out[0], err[0]}

    def _note_begin(self) -> None:
        """Record whether and when the program began, or why its isolation failed."""
        try:
            told = os.read(self.ready, frames.ROOM)
        except BlockingIOError:
            if time.monotonic() > self.due:
                self.reason = b"its isolation was not complete in time"
            return
        if len(told) != frames.BEGUN.size:
            self.reason = told or b"its process ended before its isolation was complete"
            return
        self.isolated = True
        _, self.began, start = frames.BEGUN.unpack(told)
        alone = self.isolation.nested or self.isolation.kind == "container"  # in its view of /proc
        self.clock = Clock(self.pid, alone and self.order.processes > 1, start)

    def _leave_with_the_library(self) -> None:
        """Kill everything, because the library has closed the connection."""
        with suppress(OSError):
            os.kill(self.pid, signal.SIGKILL)
            os.waitpid(self.pid, 0)
        if not self.isolation.nested:
            end_all_below()
            files.clear(self.isolation.place)
        os._exit(0)

    def watch(self) -> None:
        """Return when the child has ended, or has reached a limit."""
        try:
            alive = os.pidfd_open(self.pid)
        except OSError:  # a kernel without pidfds is polled instead
            alive = -1
        try:
            self._watch(alive)
        finally:
            if alive >= 0:
                os.close(alive)

    def _watch(self, alive: int) -> None:
        poll = select.poll()
        poll.register(CONTROL, 0)  # only its end counts
        for descriptor in (*self.open, *([alive] if alive >= 0 else [])):
            poll.register(descriptor, select.POLLIN)
        order, often = (
            self.order,
            alive < 0 or not self.isolation.nested or self.order.processes > 1,
        )
        cores = min(_CORES, order.threads + order.processes)
        pause = min(order.wall, max(order.cpu / cores, SOON), OFTEN if often else PREPARED)
        while self.ended == NONE and not self.left and not self.reason:
            events = poll.poll(1e3 * pause)
            for descriptor, event in events:
                if descriptor == alive:
                    self.left = True
                elif descriptor == CONTROL:
                    self._leave_with_the_library()
                elif not event & select.POLLIN or not self.keep(descriptor):
                    self.open.remove(descriptor)  # closed
                    poll.unregister(descriptor)
            if alive < 0:
                self.left = bool(os.waitid(os.P_PID, self.pid, _ENDED))
            if not self.left:
                pause = min(self._pause(cores), OFTEN if often else PREPARED)

    def _pause(self, cores: int) -> float:
        """Return the seconds until the next poll; record a limit that was exceeded."""
        order = self.order
        if not self.isolated:
            os.set_blocking(self.ready, False)
            self._note_begin()
            if not self.isolated:
                return OFTEN
        self.cpu = self.clock.read()
        left = order.wall - (time.monotonic() - self.began)
        if self.cpu >= order.cpu or left <= 0:
            self.ended = CPU if self.cpu >= order.cpu else TIMEOUT
        elif self.ended == NONE:
            self.ended = self._beyond()
        return min(left, max((order.cpu - self.cpu) / cores, SOON))

    def _beyond(self) -> int:
        """Return the limit that a program has exceeded, of those not enforced by the kernel."""
        if self.isolation.nested:
            return NONE
        if files.used(self.place, self.order.files, self.isolation.mounted) > self.order.files:
            return FILES
        if not self.isolation.counted and threads_of(self.pid) > 1 + self.order.threads:
            return THREADS
        return NONE

    def keep(self, descriptor: int) -> bool:
        """Move the output of a stream to a memory file; return whether the stream is open."""
        kept = self.output[descriptor]
        if kept[0] < 0:
            kept[0] = os.memfd_create("stream")
        try:
            moved = os.splice(descriptor, kept[0], 1 << 20, flags=os.SPLICE_F_NONBLOCK)
        except BlockingIOError:
            return True
        kept[1] += moved
        if kept[1] > self.order.output and self.ended == NONE:
            self.ended = self.streams[descriptor]
        return moved > 0

    def end(self) -> None:
        """Kill the child and its descendants, and read the rest of its output."""
        if not self.left:
            with suppress(ProcessLookupError):
                os.kill(self.pid, signal.SIGKILL)
        _, self.status, usage = os.wait4(self.pid, 0)
        if not self.isolated and not self.reason:
            self._note_begin()  # it ended before the first poll
        os.close(self.ready)
        if self.isolated:
            self.wall = time.monotonic() - self.began
            used = usage.ru_utime + usage.ru_stime - self.clock.start
            self.cpu = max(used, self.cpu, 0.0)
        self.peak = usage.ru_maxrss * 1024
        if os.getpid() == 1:  # the first process of its own namespace: all others are the child's
            end_all_others()
        else:
            end_all_below()
        for descriptor, kept in self.output.items():
            if descriptor in self.open:
                while kept[1] <= self.order.output and _waits(descriptor) and self.keep(descriptor):
                    pass
            os.close(descriptor)

    def report(self) -> None:
        """Report to the library; the program's output is sent without being read here."""
        most = self.order.output
        record = RecordMemory.length(self.record, most + frames.ROOM) if self.isolated else 0
        streams = [(kept, min(size, most)) for kept, size in self.output.values()]
        report = Report(
            isolated=int(self.isolated),
            ended=self.ended,
            status=self.status,
            cpu=self.cpu,
            wall=self.wall,
            peak=self.peak,
            record=record,
            stdout=streams[0][1],
            stderr=streams[1][1],
            reason=len(self.reason),
        )
        frames.write_all(ANSWERS, report.pack() + self.reason)
        _send(self.record, RecordMemory.START, record)
        for kept, size in streams:
            if kept >= 0:
                _send(kept, 0, size)


_ENDED = os.WEXITED | os.WNOWAIT | os.WNOHANG


def _send(descriptor: int, start: int, size: int) -> None:
    """Copy `size` bytes of a file to the library in the kernel, and close the file."""
    sent = 0
    while sent < size:
        part = os.sendfile(ANSWERS, descriptor, start + sent, size - sent)
        if not part:  # the file was truncated: later bytes must not be taken for its content
            os._exit(1)
        sent += part
    os.close(descriptor)


def _waits(descriptor: int) -> bool:
    """Return whether there is anything to read."""
    poll = select.poll()
    poll.register(descriptor, select.POLLIN)
    return any(event & select.POLLIN for _, event in poll.poll(0))


def main() -> None:
    """Isolate this process as requested, and run programs until the library disconnects."""
    os.dup2(0, CONTROL)
    os.dup2(1, ANSWERS)
    nothing = os.open(os.devnull, os.O_RDWR)
    for descriptor in (0, 1, 3, 4, NOTHING):  # reserve these numbers
        if descriptor != nothing:
            os.dup2(nothing, descriptor)
    signal.signal(signal.SIGINT, signal.SIG_IGN)  # Ctrl-C is handled by the library
    try:
        worker = _prepared(json.loads(frames.read_text(CONTROL)))
    except RefusedError as refused:
        frames.write_text(ANSWERS, json.dumps({"refused": str(refused)}).encode())
        return
    isolation = worker.isolation
    frames.write_text(ANSWERS, json.dumps({"scratch": isolation.scratch}).encode())
    with suppress(frames.BrokenFrameError, BrokenPipeError):
        while True:
            worker.serve(Order.unpack(frames.read_exactly(CONTROL, frames.ORDER_SIZE)))
    if not isolation.nested:
        files.clear(isolation.place)
        with suppress(OSError):  # behind Landlock the library removes the folder
            os.rmdir(isolation.scratch)


def _prepared(asked: dict[str, Any]) -> Worker:
    """Import the modules for programs, complete the isolation and drop all rights."""
    for name in asked["preload"]:
        importlib.import_module(name)
    if "numpy" in sys.modules:  # otherwise a program would load it, with a seed of its own
        importlib.import_module("numpy.random")
    isolation = enter(asked["isolation"], asked["readable"], asked["network"])
    os.environ.clear()
    os.environ.update(
        {
            "HOME": isolation.scratch,
            "TMPDIR": isolation.scratch,
            "PATH": "/usr/bin:/bin",
            "LANG": "C.UTF-8",
        }
        | {"OMP_NUM_THREADS": "1", "OPENBLAS_NUM_THREADS": "1", "PYTHONHASHSEED": "0"}
    )
    loaded: Any = sys.modules.get("tempfile")
    if loaded is not None:
        loaded.tempdir = None  # it was the host's
    if not isolation.nested:  # orphans of a program become this process's children
        kernel.prctl(kernel.PR_SET_CHILD_SUBREAPER, 1)
    worker = Worker(isolation, asked["network"])
    make_streams()
    sys.argv, sys.orig_argv = [FILE], [sys.executable, FILE]  # not the host's paths
    atexit._clear()  # children call what programs registered
    if isolation.filtered:
        kernel.drop_capabilities(bounding=True)
        kernel.prctl(kernel.PR_SET_NO_NEW_PRIVS, 1)
        kernel.prctl(kernel.PR_SET_DUMPABLE, 0)
        for tools in (False, True):
            worker.filter(tools)
        filters.confine_worker()
    warm_up_interpreter()
    seed_generators(0)
    worker.freeze()
    worker.base = _in_use()
    gc.collect()
    gc.freeze()  # so that no child's collector writes to, and thereby copies, shared memory
    return worker


def _in_use() -> tuple[int, int]:
    """Return the bytes of address space and of private memory that this process uses."""
    pages = os.sysconf("SC_PAGE_SIZE")
    sizes = [int(word) * pages for word in contents("/proc/self/statm").split()]
    return sizes[0] + MARGIN, sizes[5] + MARGIN
