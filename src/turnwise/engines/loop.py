"""The event loop of a run, in which an engine works exactly when every coroutine waits.

Provides `SteppedEngine`, `run` and `RunLoop`. The content of a batch depends on the requests of the
coroutines only, not on time or the order of wake-ups, so every bit of a run is repeatable
(docs/math.md 1). A deterministic engine also waits for calls outside, on threads or at remote
servers. One loop serves all calls of `run` with one engine, so connections that were opened in one
iteration are usable in the next.
"""

from __future__ import annotations

import asyncio
import contextvars
import selectors
import threading
from collections.abc import Callable, Coroutine, Mapping
from concurrent.futures import ThreadPoolExecutor
from typing import Any, Protocol, TypeVar

from numpy.typing import NDArray

from turnwise.engines.base import Engine
from turnwise.errors import EngineError

T = TypeVar("T")
OWN_FILES = 1
"""The number of file descriptors that a fresh event loop watches: the pipe that wakes it."""
GLANCE = 0.1
"""Seconds between looks at whether a thread that may wake the loop still lives."""
MOST_ASIDE = 64
"""Calls that are made on threads at once; the others wait for them."""


class SteppedEngine(Engine, Protocol):
    """An engine that works in steps on this machine, when the loop tells it to.

    Attributes:
        loop: the event loop of everything that is run with the engine.
    """

    loop: RunLoop

    @property
    def deterministic(self) -> bool:
        """Whether a step waits for all calls outside, so that equal runs have equal batches."""
        ...

    def advance(self) -> bool:
        """Do one unit of work for the waiting requests; False if nothing waits.

        It is called only when every runnable coroutine waits, which is what makes batches, and so
        every bit of a run, repeatable.
        """
        ...

    def end_iteration(self) -> None:
        """Drop all prefix caches, frozen policies' too."""
        ...

    def metrics(self) -> dict[str, float]:
        """Return what was done since the last call."""
        ...

    def state(self) -> dict[str, NDArray[Any]]:
        """Return what the steps of later iterations depend on, beside weights and requests."""
        ...

    def restore(self, state: Mapping[str, NDArray[Any]]) -> None:
        """Go on from what `state` returned."""
        ...

    def reason(self, policy: str) -> str:
        """Return how a policy is sampled, and why so."""
        ...


def run(main: Coroutine[Any, Any, T], engine: SteppedEngine) -> T:
    """Run `main` and all that it starts on the engine's loop; return its result.

    Whenever no coroutine can go on, `engine.advance()` is called. Timers, sockets, subprocesses and
    threads wake coroutines as in any asyncio loop. Tasks that are left when `main` returns are
    cancelled; open connections stay open until `close_engine`. Ctrl-C cancels `main` and raises
    `KeyboardInterrupt`. Inside a running loop, as in notebooks, it works on a thread of its own.

    Raises:
        EngineError: if every coroutine waits, the engine has nothing to do and nothing else can
            ever wake them.

    Example:
        >>> from turnwise.engines.scripted import ScriptedEngine
        >>> async def main() -> int:
        ...     return 7
        >>> run(main(), ScriptedEngine(lambda request: (1,)))
        7
    """
    return engine.loop.run(main, engine)


def close_engine(engine: SteppedEngine) -> None:
    """Close an engine on its loop, and then the loop; call it when the run has ended."""
    engine.loop.run(engine.close(), engine)
    engine.loop.close()


class RunLoop:
    """One event loop for as long as a run lasts. It is opened by the first call of `run`."""

    def __init__(self) -> None:
        self._opened: tuple[asyncio.Runner, EngineLoop] | None = None

    def run(self, main: Coroutine[Any, Any, T], engine: SteppedEngine) -> T:
        """Run `main` with `engine` (see `turnwise.engines.run`)."""
        if not _loop_runs_here():
            return self._run(main, engine)
        running: list[tuple[asyncio.AbstractEventLoop, asyncio.Task[Any]]] = []

        async def known() -> T:
            task = asyncio.current_task()
            assert task is not None
            running.append((asyncio.get_running_loop(), task))
            return await main

        with ThreadPoolExecutor(1, thread_name_prefix="turnwise-run") as pool:
            future = pool.submit(self._run, known(), engine)
            try:
                return future.result()
            finally:
                for loop, task in running if not future.done() else ():  # Ctrl-C came here
                    loop.call_soon_threadsafe(task.cancel)

    def close(self) -> None:
        """Close the loop, its executor and its files; a later `run` opens a new one."""
        if self._opened is None:
            return
        (runner, loop), self._opened = self._opened, None
        loop.begin(None)
        _call_outside_loops(runner.close)

    def __del__(self) -> None:
        """Close the files of a loop that nobody closed; nothing runs on it."""
        if self._opened is not None and not self._opened[1].is_running():
            self._opened[1].close()

    def _run(self, main: Coroutine[Any, Any, T], engine: SteppedEngine) -> T:
        if self._opened is None:
            runner = asyncio.Runner(loop_factory=EngineLoop)
            loop = runner.get_loop()
            assert isinstance(loop, EngineLoop)
            self._opened = runner, loop
        runner, loop = self._opened
        loop.begin(engine)
        try:
            return runner.run(main, context=contextvars.copy_context())
        finally:
            try:
                _cancel_tasks(loop)
            finally:
                loop.end()


def _loop_runs_here() -> bool:
    try:
        asyncio.get_running_loop()
    except RuntimeError:
        return False
    return True


def _call_outside_loops(call: Callable[[], None]) -> None:
    """Make a call that runs a loop, on a thread of its own where this one has a loop that runs."""
    if not _loop_runs_here():
        return call()
    with ThreadPoolExecutor(1, thread_name_prefix="turnwise-run") as pool:
        pool.submit(call).result()


def _cancel_tasks(loop: asyncio.AbstractEventLoop) -> None:
    """Cancel the tasks that are left and wait for them, as `asyncio.run` does at its end."""
    tasks = asyncio.all_tasks(loop)
    for task in tasks:
        task.cancel()
    if tasks:
        loop.run_until_complete(asyncio.gather(*tasks, return_exceptions=True))
    for task in tasks:
        if not task.cancelled() and (error := task.exception()) is not None:
            said = {"message": "a task that was left raised", "exception": error, "task": task}
            loop.call_exception_handler(said)


class EngineLoop(asyncio.SelectorEventLoop):
    """A selector loop whose idle moments belong to an engine, while one is at work.

    Attributes:
        engine: the engine of the `run` under way.
        outside: how many calls are being made outside: on threads, at remote servers.
        thread_slots: lets `MOST_ASIDE` threads work at once.
    """

    def __init__(self) -> None:
        self.engine: SteppedEngine | None = None
        self.outside = 0
        super().__init__(_EngineSelector(self))
        self.thread_slots = asyncio.Semaphore(MOST_ASIDE)
        self._foreign_threads = set(threading.enumerate())
        self._own_threads: set[threading.Thread] = set()
        self._in_executor = 0

    def begin(self, engine: SteppedEngine | None) -> None:
        """Let `engine` work from now on; threads that others have started wake nobody."""
        self.engine = engine
        self._foreign_threads = set(threading.enumerate()) - self._own_threads

    def end(self) -> None:
        """Let go of the engine, and remember the threads that were started meanwhile."""
        self.engine = None
        self._own_threads = set(threading.enumerate()) - self._foreign_threads

    def run_in_executor(self, executor: Any, func: Any, *args: Any) -> asyncio.Future[Any]:
        """Run `func` in a thread, as the base class does, and count it until it is done."""
        future = super().run_in_executor(executor, func, *args)
        self._in_executor += 1
        future.add_done_callback(self._executor_done)
        return future

    def _executor_done(self, future: asyncio.Future[Any]) -> None:
        self._in_executor -= 1

    def may_be_woken(self) -> bool:
        """Whether a thread lives that may call back: an executor's busy one, or one started since.

        Idle threads of asyncio's own executor live on and wake nobody; nor do calls that were left
        aside.
        """
        since = set(threading.enumerate()) - self._foreign_threads
        return self.outside + self._in_executor > 0 or any(
            not t.name.startswith("asyncio_") for t in since
        )


class _EngineSelector(selectors.DefaultSelector):
    """Waits for files as usual, but lets the engine work first where the loop would sleep."""

    def __init__(self, loop: EngineLoop) -> None:
        super().__init__()
        self._loop = loop

    def select(self, timeout: float | None = None) -> list[tuple[selectors.SelectorKey, int]]:
        """Return the ready files; called with a timeout other than 0 if every coroutine waits."""
        ready = super().select(0)
        if ready or (timeout is not None and timeout <= 0):
            return ready
        engine = self._loop.engine
        if engine is not None:
            if self._loop.outside and engine.deterministic:
                return super().select(timeout)  # what they ask for belongs to the step
            if engine.advance():
                return []
        if timeout is not None or len(self.get_map()) > OWN_FILES:
            return super().select(timeout)
        if not self._loop.may_be_woken():
            raise EngineError(
                "every coroutine waits and no request is pending: deadlock. Await only what other "
                "coroutines, timers, files or the engine complete, on the engine given to `run`"
            )
        return super().select(GLANCE)
