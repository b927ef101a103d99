"""A pool of workers and the queue of programs that wait for one: `Sandbox`.

A failure of a program is a `Result`. If the sandbox fails, the program is tried again with another
worker. After repeated failures it raises, so that no policy is penalised for a failure of the
machine.
"""

from __future__ import annotations

import asyncio
import atexit
import os
import queue
import threading
import warnings
import weakref
from collections.abc import Iterable, Mapping, Sequence
from concurrent.futures import FIRST_EXCEPTION, Future, wait
from contextlib import suppress
from typing import Any, TypeAlias

from turnwise.errors import MissingDependencyError, SandboxError
from turnwise.sandbox.backends import BACKENDS, Name, candidates, refused
from turnwise.sandbox.config import SandboxConfig
from turnwise.sandbox.inside.wire import NotPlainError, TooLargeError, dump
from turnwise.sandbox.leftovers import clear_stale
from turnwise.sandbox.link import ON_HOST, LostError, RefusedError, WorkerLink
from turnwise.sandbox.result import Job, Limits, Result
from turnwise.settings import parse

TRIES = 3
"""The number of workers that may be lost with one program before it is an error."""
LARGEST_INPUT = 64 << 20
_Queue: TypeAlias = "queue.SimpleQueue[tuple[Job, bytes, Future[Result]] | None]"


class Sandbox:
    """Runs programs that a model wrote, each in a fresh isolated process.

    Workers are started by the first program, or by `start`, and stay until `close`. Any thread may
    call the methods. Options are the fields of `SandboxConfig`.

    Raises:
        ConfigError: if an option is unknown or wrong.

    Example:
        >>> Sandbox(workers=3, preload=("math",)).config.at_once
        3
    """

    def __init__(self, config: SandboxConfig | None = None, **options: Any) -> None:
        self.config = config or parse(SandboxConfig, options, "sandbox")
        self._jobs: _Queue = queue.SimpleQueue()
        self._threads: list[threading.Thread] = []
        self._lock = threading.Lock()
        self._links: set[WorkerLink] = set()
        self._ending = threading.Event()
        self.replaced = 0
        """The number of workers that were lost and replaced."""
        self.isolation = ""
        """The isolation in use, once started: "bubblewrap", "namespaces", "landlock",
        "container" or "none"."""
        self._backend: Name = candidates(self.config)[0]
        _OPEN.add(self)

    @property
    def promise(self) -> str:
        """The isolation in use, once started, in one sentence."""
        return BACKENDS[self._backend].promise

    def start(self) -> None:
        """Start all workers, and return when they are ready.

        Raises:
            SandboxError: if the kernel refuses the isolation, or a module cannot be imported.
            MissingDependencyError: if there is no program that runs containers.
        """
        with self._lock:
            self._start()

    def _start(self) -> None:
        if self._threads:
            return
        self._ending = threading.Event()
        first = self._first_link()
        if first.name in ON_HOST:
            clear_stale()
        self._backend = first.name
        self.isolation = BACKENDS[first.name].isolation
        _warn_once(first.name)
        links = [first, *(None for _ in range(self.config.at_once - 1))]
        self._threads = [
            threading.Thread(
                target=self._serve,
                args=(link, self._jobs, self._ending),
                name="sandbox",
                daemon=True,
            )
            for link in links
        ]
        for thread in self._threads:
            thread.start()

    def _link(self, name: Name) -> WorkerLink:
        """Return a new worker."""
        link = WorkerLink(self.config, name)
        self._links.add(link)
        return link

    def _first_link(self) -> WorkerLink:
        """Return a worker of the best available backend."""
        reasons: dict[str, str] = {}
        for name in candidates(self.config):
            try:
                return self._link(name)
            except RefusedError as reason:
                reasons[name] = str(reason)
        raise refused(reasons)

    def run(
        self,
        program: str,
        inputs: Sequence[Any] | Mapping[str, Any] = (),
        limits: Limits | None = None,
        *,
        call: str = "",
        stdin: str = "",
        seed: int = 0,
    ) -> Result:
        """Run one program and return its result.

        Args:
            program: Python source.
            inputs: plain values: the arguments of `call` by position or name, or a script's
                variables.
            limits: the limits of the program.
            call: the function to call; "" runs a script, whose value is its variable `result`.
            stdin: the program's standard input.
            seed: seeds `random` and, if preloaded, numpy.

        Raises:
            TypeError: if an argument is of another type than is said here.
            ValueError: if an input is not plain, or too large.
            SandboxError: if the sandbox itself fails, three times with this program; or for more
                than one process where the kernel does not grant namespaces.
        """
        return self.submit(_job(program, inputs, limits, call, stdin, seed)).result()

    async def run_async(
        self,
        program: str,
        inputs: Sequence[Any] | Mapping[str, Any] = (),
        limits: Limits | None = None,
        *,
        call: str = "",
        stdin: str = "",
        seed: int = 0,
    ) -> Result:
        """Run one program like `run`, as a coroutine."""
        job = _job(program, inputs, limits, call, stdin, seed)
        return await asyncio.wrap_future(self.submit(job))

    def run_batch(self, jobs: Iterable[Job]) -> list[Result]:
        """Run programs concurrently; return their results in order."""
        futures = [self.submit(job) for job in jobs]
        wait(futures, return_when=FIRST_EXCEPTION)  # one wake-up for all of them
        return [future.result() for future in futures]

    async def run_batch_async(self, jobs: Iterable[Job]) -> list[Result]:
        """Run programs like `run_batch`, as a coroutine."""
        return list(await asyncio.gather(*[asyncio.wrap_future(self.submit(j)) for j in jobs]))

    def submit(self, job: Job) -> Future[Result]:
        """Queue a program; cancelling the future removes it from the queue unless it has begun."""
        _check(job)
        given = job.inputs
        try:
            inputs = dump(dict(given) if isinstance(given, Mapping) else list(given), LARGEST_INPUT)
        except (NotPlainError, TooLargeError) as cause:
            raise ValueError(
                f"inputs of a program: {cause}: give None, numbers, text, bytes, lists, tuples, "
                "dicts, sets or numpy's arrays of numbers"
            ) from None
        future: Future[Result] = Future()
        with self._lock:  # jobs queued before `close` are run; later ones start new workers
            self._start()
            if job.limits.processes > 1 and self.isolation == "landlock":
                raise SandboxError(
                    f"processes = {job.limits.processes}: Landlock does not keep processes apart: "
                    "take sandbox.backend = 'isolated', or processes = 1"
                )
            self._jobs.put((job, inputs, future))
        return future

    def close(self) -> None:
        """End all workers after the queued programs."""
        with self._lock:
            threads, self._threads = self._threads, []
            jobs, self._jobs = self._jobs, queue.SimpleQueue()
        for _ in threads:
            jobs.put(None)
        for thread in threads:
            thread.join()

    def end(self) -> None:
        """Kill all workers at once; queued programs fail."""
        self._ending.set()
        for link in list(self._links):
            link.end()
        self.close()

    def __enter__(self) -> Sandbox:
        return self

    def __exit__(self, kind: type[BaseException] | None, *_: object) -> None:
        if kind is None or issubclass(kind, Exception):
            self.close()
        else:  # an interrupt: nothing waits for the queued programs
            self.end()

    def _serve(self, link: WorkerLink | None, jobs: _Queue, ending: threading.Event) -> None:
        """Serve queued programs with one worker after another, replacing lost ones, to the end.

        Nothing that happens to one program ends this thread: others wait for it.
        """
        while (queued := jobs.get()) is not None:
            job, inputs, future = queued
            if not future.set_running_or_notify_cancel():
                continue
            try:
                link = self._carry_out(link, job, inputs, future, ending)
            except BaseException as error:  # the boundary: a bug of ours, or out of memory
                link = self._lose(link)
                if not future.done():
                    future.set_exception(SandboxError(f"{type(error).__name__}: {error}"))
        if link is not None:
            self._links.discard(link)
            with suppress(Exception):
                link.close()

    def _carry_out(
        self,
        link: WorkerLink | None,
        job: Job,
        inputs: bytes,
        future: Future[Result],
        ending: threading.Event,
    ) -> WorkerLink | None:
        """Run a program and set the result of its future; return the remaining worker."""
        reason = ""
        for _ in range(TRIES):
            if ending.is_set():
                future.set_exception(SandboxError("the sandbox was ended before the program was"))
                return link
            try:
                link = link or self._link(self._backend)
                future.set_result(link.run(job, inputs))
                return link
            except (LostError, RefusedError) as lost:
                reason = str(lost)
                link = self._lose(link)
            except (SandboxError, MissingDependencyError) as error:
                future.set_exception(error)
                return link
        future.set_exception(
            SandboxError(f"a program was tried {TRIES} times, and each time {reason}")
        )
        return link

    def _lose(self, link: WorkerLink | None) -> None:
        """Count a lost worker, and clean up after it."""
        self.replaced += 1
        if link is not None:
            self._links.discard(link)
            with suppress(Exception):  # a failed clean-up must not end the serving thread
                link.kill()


def _job(
    program: str,
    inputs: Sequence[Any] | Mapping[str, Any],
    limits: Limits | None,
    call: str,
    stdin: str,
    seed: int,
) -> Job:
    bounds = limits or Limits()
    return Job(program=program, inputs=inputs, limits=bounds, call=call, stdin=stdin, seed=seed)


def _check(job: Job) -> None:
    """Refuse an invalid program before it is queued.

    Raises:
        TypeError: with what was given and what was expected.
    """
    inputs = job.inputs
    wanted = {
        "program": (job.program, str, "Python source as text"),
        "call": (job.call, str, "a function's name"),
        "stdin": (job.stdin, str, "text"),
        "seed": (job.seed, int, "an int"),
        "limits": (job.limits, Limits, "Limits(...)"),
        "inputs": (inputs, Sequence | Mapping, "a list by position, or a dict by name"),
    }
    for name, (given, kind, expected) in wanted.items():
        if not isinstance(given, kind) or (name == "inputs" and isinstance(given, str | bytes)):
            raise TypeError(f"{name} = {str(given)[:60]!r}: expected {expected}")
    if isinstance(inputs, Mapping) and not all(isinstance(name, str) for name in inputs):
        raise TypeError("inputs by name: every key must be text")


_OPEN: weakref.WeakSet[Sandbox] = weakref.WeakSet()
_WARNED: set[str] = set()


def _warn_once(backend: Name) -> None:
    warning = BACKENDS[backend].warning
    if warning and backend not in _WARNED:
        _WARNED.add(backend)
        warnings.warn(warning, stacklevel=4)


@atexit.register
def _close_all() -> None:
    for sandbox in list(_OPEN):
        sandbox.end()


def _forget_after_fork() -> None:
    """Reset the sandbox in a forked process, which has no threads and starts its own workers."""
    for sandbox in list(_OPEN):
        sandbox._threads, sandbox._lock, sandbox._jobs = [], threading.Lock(), queue.SimpleQueue()
        sandbox._links = set()


with suppress(AttributeError):
    os.register_at_fork(after_in_child=_forget_after_fork)
