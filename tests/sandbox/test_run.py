import asyncio
import random
import time

import numpy as np
import pytest

from turnwise.sandbox import Job, Limits, Sandbox


def test_a_function_is_called_by_position_and_by_name(isolated):
    program = "def area(width, height=2): return width * height"
    assert isolated.run(program, (3,), call="area").value == 6
    assert isolated.run(program, {"width": 3, "height": 5}, call="area").value == 15


def test_a_script_finds_its_inputs_and_leaves_its_result(isolated):
    result = isolated.run("result = [x * factor for x in inputs]", {"inputs": [1, 2], "factor": 3})
    assert result.value == [3, 6]
    assert isolated.run("result = inputs[::-1]", (1, 2)).value == [2, 1]
    assert isolated.run("x = 1").value is None


def test_a_script_is_main_and_reads_standard_input(isolated):
    program = """
import sys
if __name__ == "__main__":
    numbers = [int(line) for line in sys.stdin]
    print(sum(numbers), input.__name__)
    print("oops", file=sys.stderr)
    sys.exit(0)
"""
    result = isolated.run(program, stdin="1\n2\n39\n")
    assert (result.ok, result.stdout, result.stderr) == (True, "42 input\n", "oops\n")


def test_a_long_standard_input_is_read_to_its_end(isolated):
    text = "äx" * 700_000
    assert isolated.run("result = len(open(0).read())", stdin=text).value == len(text)


@pytest.mark.parametrize(
    ("program", "failure", "line", "words"),
    [
        ("x = 1\ny = (", "syntax", 2, "never closed"),
        ("def f():\n    return 1 / 0\nf()", "exception", 2, "ZeroDivisionError: division by zero"),
        ("import json\njson.loads('{')", "exception", 2, "JSONDecodeError"),
        ("raise ValueError", "exception", 1, "ValueError"),
        ("result = object()", "exception", 0, "its value cannot come back: a object does not pass"),
        ("result = 'x' * 9999999", "output", 0, "its value is too large"),
        ("open('/new', 'w')", "forbidden", 1, "Read-only file system"),
    ],
)
def test_failures_are_named_and_placed(isolated, program, failure, line, words):
    result = isolated.run(program)
    assert (result.failure, result.line, result.value) == (failure, line, None)
    assert words in result.message


def test_a_missing_function_is_the_programs_failure(isolated):
    result = isolated.run("def solv(): pass", call="solve")
    assert result.failure == "exception" and "defines no 'solve'" in result.message


def test_wrong_arguments_are_the_programs_failure(isolated):
    assert isolated.run("def f(x): pass", (1, 2), call="f").failure == "exception"


def test_inputs_that_do_not_pass_are_the_callers_mistake(isolated):
    with pytest.raises(ValueError, match="a object does not pass.*numpy's arrays"):
        isolated.run("", (object(),))


def test_programs_share_nothing(isolated):
    isolated.run("import builtins, json\nbuiltins.seen = json.seen = 1\nopen('f', 'w').write('x')")
    program = """
import builtins, json, os
result = [hasattr(builtins, "seen"), hasattr(json, "seen"), os.listdir()]
"""
    assert isolated.run(program).value == [False, False, []]


def test_preloaded_modules_are_there(isolated):
    program = "import sys\nresult = 'numpy' in sys.modules"
    assert isolated.run(program).value is True
    array = np.arange(6.0).reshape(2, 3)
    back = isolated.run("def f(a): return a.T @ a", (array,), call="f").value
    assert np.array_equal(back, array.T @ array)


def test_chance_and_hashes_are_the_same_every_time(isolated):
    program = """
import random, numpy
result = [random.random(), float(numpy.random.rand()), hash("text"), list({"a", "b", "c", "d"})]
"""
    first = isolated.run(program, seed=3).value
    assert isolated.run(program, seed=3).value == first
    assert isolated.run(program, seed=4).value[:2] != first[:2]
    with Sandbox(workers=1, preload=("numpy",)) as other:
        assert other.run(program, seed=3).value == first
    assert first[0] == random.Random(3).random()


def test_steps_are_counted_to_the_line(isolated):
    program = (
        "def f(n):\n    total = 0\n    for i in range(n):\n        total += i\n    return total"
    )
    lines = 1 + 1 + (10 + 1) + 10 + 1  # def; total; for, once more than its body; body; return
    enough = isolated.run(program, (10,), Limits(steps=lines), call="f")
    assert enough.value == 45
    short = isolated.run(program, (10,), Limits(steps=lines - 1), call="f")
    assert (short.failure, short.message) == ("cpu", f"more than {lines - 1} steps")


def test_cpu_time_decides_not_the_clock(isolated):
    program = "import time\ntime.sleep(0.5)\nresult = 1"
    result = isolated.run(program, (), Limits(cpu=0.2, wall=9.0))
    assert result.value == 1 and result.cpu_seconds < 0.2 < 0.5 <= result.wall_seconds
    spent = isolated.run("while True: pass", (), Limits(cpu=0.1, wall=60.0))
    assert spent.failure == "cpu" and 0.1 <= spent.cpu_seconds < 0.5


def test_memory_beside_the_interpreters_own(isolated):
    program = "x = bytearray(megabytes << 20)\nresult = len(x) >> 20"
    assert isolated.run(program, {"megabytes": 50}, Limits(memory=80)).value == 50
    assert isolated.run(program, {"megabytes": 120}, Limits(memory=80)).failure == "memory"


def test_tools_may_be_started_where_that_is_allowed(isolated):
    if isolated.isolation not in ("bubblewrap", "namespaces"):
        pytest.skip("needs namespaces")
    program = """
import subprocess
done = subprocess.run(["sort"], input="b\\na\\n", capture_output=True, text=True, check=True)
result = done.stdout
"""
    assert isolated.run(program, (), Limits(processes=4)).value == "a\nb\n"
    assert isolated.run(program, (), Limits(processes=1)).failure == "forbidden"


def test_asyncio_and_threads_work(isolated):
    program = """
import asyncio, concurrent.futures
async def main(): return await asyncio.gather(*[asyncio.sleep(0, i) for i in range(3)])
with concurrent.futures.ThreadPoolExecutor(2) as pool:
    result = asyncio.run(main()) + list(pool.map(abs, [-1]))
"""
    assert isolated.run(program).value == [0, 1, 2, 1]


def test_sqlite_works(isolated):
    program = """
import sqlite3
db = sqlite3.connect(":memory:")
db.executescript("create table t (x); insert into t values (1), (41)")
result = db.execute(query).fetchall()
"""
    assert isolated.run(program, {"query": "select sum(x) from t"}).value == [(42,)]


def test_a_batch_keeps_its_order(isolated):
    jobs = [Job(program="def f(x): return x", inputs=(i,), call="f") for i in range(20)]
    jobs[7] = Job(program="1 / 0")
    results = isolated.run_batch(jobs)
    assert [r.value for r in results] == [None if i == 7 else i for i in range(20)]
    assert results[7].failure == "exception"


def test_coroutines_wait_side_by_side():
    async def ask(sandbox):
        program = "import time\ntime.sleep(1.0)\nresult = 1"
        began = time.monotonic()
        two = await asyncio.gather(sandbox.run_async(program), sandbox.run_async(program))
        more = await sandbox.run_batch_async([Job(program="result = 2")] * 3)
        return [r.value for r in [*two, *more]], time.monotonic() - began

    with Sandbox(workers=2) as sandbox:
        sandbox.run_batch([Job(program="import time\ntime.sleep(0.2)")] * 4)  # both are there
        values, seconds = asyncio.run(ask(sandbox))
    assert values == [1, 1, 2, 2, 2] and seconds < 1.9


SCRIPTS = {
    "a thread that nobody joins": (
        "import threading, time\n"
        "threading.Thread(target=lambda: (time.sleep(0.05), print(7))).start()"
    ),
    "a timer": "import threading\nthreading.Timer(0.02, print, [7]).start()",
    "a thread after an exit": "import sys, threading\n"
    "threading.Timer(0.02, print, [7]).start()\nsys.exit()",
    "what is called at the end": "import atexit\natexit.register(print, 7)",
    "what is called when an object ends": "import weakref\nclass A: pass\na = A()\n"
    "weakref.finalize(a, print, 7)",
    "a pool that is not shut down": "from concurrent.futures import ThreadPoolExecutor\n"
    "pool = ThreadPoolExecutor(2)\nprint(pool.submit(int, '7').result())",
    "threads that wait for ever": "import threading\n"
    "threading.Thread(target=threading.Event().wait, daemon=True).start()\nprint(7)",
    "a reader that asks for modes": "import sys\nimport os\n"
    "fast = [file for file in (sys.stdin, sys.stdout) if 'r' not in file.mode]\n"
    "assert sys.stdin.name == '<stdin>'\nos.write(fast[0].fileno(), b'7')",
    "files named or standard input": "import fileinput\nprint(*fileinput.input())",
    "no arguments": "import argparse, sys\nparser = argparse.ArgumentParser()\n"
    "parser.add_argument('--n', default=7)\nprint(parser.parse_args().n)\n"
    "assert not any('/' in word for word in sys.argv + sys.orig_argv[1:])",
}


@pytest.mark.parametrize("name", SCRIPTS)
def test_a_script_begins_and_ends_as_in_python(isolated, name):
    result = isolated.run(SCRIPTS[name], stdin="7")
    assert (result.failure, result.stdout.strip()) == (None, "7"), result.message


def test_a_script_waits_for_its_threads_and_a_call_does_not(isolated):
    program = """
import threading, time
def f(): threading.Thread(target=time.sleep, args=(60,)).start(); return 7
"""
    limits = Limits(wall=2.0)
    assert isolated.run(program, (), limits, call="f").value == 7
    assert isolated.run(program + "result = f()", (), limits).failure == "timeout"
