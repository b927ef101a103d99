import asyncio
import gc
import os
import queue
import signal
import socket
import sys
import threading
import time

import pytest

from turnwise.engines import Completion, ScriptedEngine, close_engine, run
from turnwise.errors import EngineError


def script(reply=(1, 2)):
    return ScriptedEngine(lambda request: reply)


def test_the_engine_advances_only_when_every_coroutine_waits(tools):
    engine, seen = script(), []

    async def slow(sample):
        for _ in range(sample):
            await asyncio.sleep(0)
        await engine.generate(tools.request((1,), id=tools.turn(sample=sample)))
        seen.append(len(engine.requests))

    async def main():
        await asyncio.gather(*(slow(sample) for sample in (5, 0, 3)))

    run(main(), engine)
    assert seen == [3, 3, 3]
    assert [one.id.episode.member for one in engine.requests] == [0, 3, 5]


def test_a_deadlock_is_an_error_and_not_a_hang():
    async def main():
        await asyncio.Event().wait()

    with pytest.raises(EngineError, match="deadlock"):
        run(main(), script())


def test_a_deadlock_after_work_is_an_error_too(tools):
    engine, cleaned = script(), []

    async def main():
        await engine.generate(tools.request((1,)))
        await asyncio.to_thread(time.sleep, 0.01)  # leaves an idle thread behind
        try:
            await asyncio.Queue().get()
        finally:
            cleaned.append(True)

    with pytest.raises(EngineError, match="deadlock"):
        run(main(), engine)
    assert cleaned == [True]


def test_timers_threads_and_subprocesses_wake_coroutines():
    async def main():
        began = time.perf_counter()
        await asyncio.sleep(0.05)
        waited = time.perf_counter() - began
        process = await asyncio.create_subprocess_exec(sys.executable, "-c", "print(7)", stdout=-1)
        output, _ = await process.communicate()
        silent = await asyncio.create_subprocess_exec(sys.executable, "-c", "")
        return waited, output, await silent.wait(), await asyncio.to_thread(lambda: 5)

    waited, output, code, five = run(main(), script())
    assert waited >= 0.05
    assert (output.strip(), code, five) == (b"7", 0, 5)


def test_a_thread_started_by_a_coroutine_may_wake_it():
    async def main():
        loop, done = asyncio.get_running_loop(), asyncio.Event()
        threading.Timer(0.15, loop.call_soon_threadsafe, [done.set]).start()
        await done.wait()
        return True

    assert run(main(), script())


def test_the_engine_works_while_timers_run(tools):
    engine = script()

    async def main():
        timer = asyncio.ensure_future(asyncio.sleep(30))
        completion = await engine.generate(tools.request((1,)))
        timer.cancel()
        return completion

    began = time.perf_counter()
    assert isinstance(run(main(), engine), Completion)
    assert time.perf_counter() - began < 5


def test_errors_of_coroutines_and_of_the_engine_come_out(tools):
    def reply(request):
        raise EngineError("no such luck")

    engine = ScriptedEngine(reply)
    with pytest.raises(EngineError, match="no such luck"):
        run(engine.generate(tools.request((1,))), engine)

    async def main():
        raise KeyError("x")

    with pytest.raises(KeyError):
        run(main(), script())


@pytest.fixture
def heeds_ctrl_c():
    """Python's own handler: a shell that starts tests in the background has them ignore SIGINT."""
    before = signal.signal(signal.SIGINT, signal.default_int_handler)
    yield
    signal.signal(signal.SIGINT, before)


def test_ctrl_c_ends_the_run_and_cleans_up(tools, heeds_ctrl_c):
    cleaned = []

    class Interrupted(ScriptedEngine):
        def advance(self):
            signal.raise_signal(signal.SIGINT)
            return True

    engine = Interrupted(lambda request: (1,))

    async def main():
        try:
            await engine.generate(tools.request((1,)))
        finally:
            cleaned.append(True)

    with pytest.raises(KeyboardInterrupt):
        run(main(), engine)
    assert cleaned == [True]


def test_ctrl_c_ends_a_run_in_a_notebook(heeds_ctrl_c):
    cleaned = []

    async def main():
        try:
            await asyncio.sleep(60)
        finally:
            cleaned.append(True)

    async def cell():
        threading.Timer(0.2, os.kill, (os.getpid(), signal.SIGINT)).start()
        with pytest.raises(KeyboardInterrupt):
            run(main(), script())

    loop = asyncio.new_event_loop()  # as notebooks have: no Runner, which would cancel the cell
    began = time.monotonic()
    loop.run_until_complete(cell())
    loop.close()
    assert cleaned == [True]
    assert time.monotonic() - began < 30


def test_it_runs_inside_a_running_loop_as_in_a_notebook(tools):
    engine = script()

    async def cell():
        return run(engine.generate(tools.request((1,))), engine)

    assert asyncio.run(cell()).token_ids == (1, 2)


@pytest.fixture
def echo_server():
    """The address of a server on a thread of its own that sends back every line."""
    server = socket.create_server(("127.0.0.1", 0))

    def serve():
        while True:
            try:
                connection, _ = server.accept()
            except OSError:  # closed: the test is over
                return
            with connection, connection.makefile("rwb", buffering=0) as stream:
                for line in stream:
                    stream.write(line)

    thread = threading.Thread(target=serve, daemon=True)
    thread.start()
    yield server.getsockname()
    server.close()


@pytest.mark.parametrize("notebook", [False, True])
def test_a_connection_of_one_run_serves_the_next(echo_server, notebook):
    engine = script()

    async def asked(connection):
        reader, writer = connection
        writer.write(b"hello\n")
        return await reader.readline(), asyncio.get_running_loop()

    async def fails():
        raise KeyError("x")

    def twice():
        connection = run(asyncio.open_connection(*echo_server), engine)
        first, loop = run(asked(connection), engine)
        with pytest.raises(KeyError):
            run(fails(), engine)
        assert (first, loop) == run(asked(connection), engine) == (b"hello\n", loop)
        connection[1].close()
        close_engine(engine)
        assert loop.is_closed()
        close_engine(engine)  # nothing is open: nothing happens

    async def cell():
        twice()

    asyncio.run(cell()) if notebook else twice()


def test_a_deadlock_of_a_later_run_is_an_error_too():
    engine, over = script(), threading.Event()

    async def main():
        await asyncio.Event().wait()

    assert run(asyncio.sleep(0, 5), engine) == 5
    foreign = threading.Thread(target=over.wait, args=[60])  # as a progress bar's
    foreign.start()
    try:
        with pytest.raises(EngineError, match="deadlock"):
            run(main(), engine)
    finally:
        over.set()


def test_a_thread_of_an_earlier_run_may_wake_a_coroutine():
    engine, words = script(), queue.Queue()

    def listen():
        while (call := words.get()) is not None:
            time.sleep(0.05)
            call()

    async def opens():
        threading.Thread(target=listen).start()

    async def asks():
        done = asyncio.Event()
        loop = asyncio.get_running_loop()
        words.put(lambda: loop.call_soon_threadsafe(done.set))
        await done.wait()
        return True

    run(opens(), engine)
    try:
        assert run(asks(), engine)
    finally:
        words.put(None)


def test_tasks_that_are_left_are_cancelled(tools):
    engine, cleaned = script(), []

    async def forgotten():
        try:
            await asyncio.sleep(60)
        finally:
            cleaned.append(True)

    async def main():
        tasks.append(asyncio.create_task(forgotten()))
        await asyncio.sleep(0)

    tasks = []
    run(main(), engine)
    assert cleaned == [True]
    assert tools.ask(engine, [tools.request((1,))])[0].token_ids == (1, 2)


def test_an_engine_that_is_dropped_closes_its_loop():
    engine = script()

    async def main():
        return asyncio.get_running_loop()

    loop = run(main(), engine)
    del engine
    gc.collect()
    assert loop.is_closed()
