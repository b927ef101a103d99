"""Blocking calls on threads, side by side, while other coroutines continue.

Provides `aside`. The caller handles exceptions of the calls.
"""

from __future__ import annotations

import asyncio
import threading
from collections.abc import Callable
from contextlib import suppress
from typing import Any, TypeVar

from turnwise.engines.loop import EngineLoop
from turnwise.envs.timeout import THREAD_NAME

T = TypeVar("T")


async def run_in_thread(call: Callable[..., T], *args: Any, timeout: float | None = None) -> T:
    """Return `call(*args)`, made on a thread while other coroutines act; await it inside `run`.

    A call that takes longer than `timeout` seconds is left to itself: its thread lives on until it
    returns, or until the process ends.

    Raises:
        TimeoutError: if it takes longer.

    Example:
        >>> from turnwise.engines import ScriptedEngine, run
        >>> run(run_in_thread(max, 3, 4), ScriptedEngine(lambda request: (1,)))
        4
    """
    loop = asyncio.get_running_loop()
    assert isinstance(loop, EngineLoop), "await it inside turnwise.engines.run"
    done = loop.create_future()

    def finish(result: Any, error: BaseException | None) -> None:
        if done.done():  # nobody waits any more
            return
        if error is None:
            done.set_result(result)
        else:
            done.set_exception(error)

    def work() -> None:
        try:
            outcome = call(*args), None
        except BaseException as error:
            outcome = None, error
        with suppress(RuntimeError):  # the loop may have ended meanwhile
            loop.call_soon_threadsafe(finish, *outcome)

    async with loop.thread_slots:
        loop.outside += 1
        try:
            threading.Thread(target=work, name=THREAD_NAME, daemon=True).start()
            return await asyncio.wait_for(done, timeout)
        finally:
            loop.outside -= 1
