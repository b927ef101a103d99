"""An event loop that lets an engine work exactly when every coroutine waits.

Owns `run`. What is in a batch then depends on what the coroutines asked for and on nothing else, no
clock and no order of wake-ups, which makes every bit of a run repeatable (docs/math.md 1). A
deterministic engine waits for calls that are made on threads meanwhile (`aside`), too. Knows
nothing of models or episodes.
"""

from __future__ import annotations

import asyncio
import selectors
import threading
from collections.abc import Coroutine
from concurrent.futures import ThreadPoolExecutor
from typing import Any, TypeVar

from turnwise.engines.base import Engine
from turnwise.errors import EngineError

T = TypeVar("T")
OWN_FILES = 1
"""What a fresh event loop watches: the pipe through which threads and signals wake it."""
GLANCE = 0.1
"""Seconds between looks at whether a thread that may wake the loop still lives."""
MOST_ASIDE = 64
"""Calls that are aside at once; the others wait for them."""


def run(main: Coroutine[Any, Any, T], engine: Engine) -> T:
    """Run `main` and all that it starts; return its result.

    Whenever no coroutine can go on, `engine.advance()` is called. Timers, sockets, subprocesses and
    threads wake coroutines as in any asyncio loop. Ctrl-C cancels `main` and raises
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
    if not _loop_runs_here():
        with asyncio.Runner(loop_factory=lambda: EngineLoop(engine)) as runner:
            return runner.run(main)
    running: list[tuple[asyncio.AbstractEventLoop, asyncio.Task[Any]]] = []

    async def known() -> T:
        task = asyncio.current_task()
        assert task is not None
        running.append((asyncio.get_running_loop(), task))
        return await main

    with ThreadPoolExecutor(1, thread_name_prefix="turnwise-run") as pool:
        future = pool.submit(run, known(), engine)
        try:
            return future.result()
        finally:
            for loop, task in running if not future.done() else ():  # Ctrl-C came here
                loop.call_soon_threadsafe(task.cancel)


def _loop_runs_here() -> bool:
    try:
        asyncio.get_running_loop()
    except RuntimeError:
        return False
    return True


class EngineLoop(asyncio.SelectorEventLoop):
    """A selector loop whose idle moments belong to the engine.

    Attributes:
        aside: how many calls are being made on threads.
        room_aside: lets `MOST_ASIDE` of them be made at once.
    """

    def __init__(self, engine: Engine) -> None:
        self.aside = 0
        super().__init__(_EngineSelector(engine, self))
        self.room_aside = asyncio.Semaphore(MOST_ASIDE)
        self._threads_before = set(threading.enumerate())
        self._in_executor = 0

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
        since = set(threading.enumerate()) - self._threads_before
        return self.aside + self._in_executor > 0 or any(
            not t.name.startswith("asyncio_") for t in since
        )


class _EngineSelector(selectors.DefaultSelector):
    """Waits for files as usual, but lets the engine work first where the loop would sleep."""

    def __init__(self, engine: Engine, loop: EngineLoop) -> None:
        super().__init__()
        self._engine, self._loop = engine, loop

    def select(self, timeout: float | None = None) -> list[tuple[selectors.SelectorKey, int]]:
        """Return the ready files; called with a timeout other than 0 if every coroutine waits."""
        ready = super().select(0)
        if ready or (timeout is not None and timeout <= 0):
            return ready
        if self._loop.aside and self._engine.deterministic:  # what they ask for belongs to the step
            return super().select(timeout)
        if self._engine.advance():
            return []
        if timeout is not None or len(self.get_map()) > OWN_FILES:
            return super().select(timeout)
        if not self._loop.may_be_woken():
            raise EngineError(
                "every coroutine waits and no request is pending: deadlock. Await only what other "
                "coroutines, timers, files or the engine complete, on the engine given to `run`"
            )
        return super().select(GLANCE)
