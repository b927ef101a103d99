"""How many programs the sandbox runs in a second, how long each waits, and what a long run leaves.

python benchmarks/sandbox.py speed              # programs a second, all at once
python benchmarks/sandbox.py wait --rate 250    # percentiles where so many come in a second
python benchmarks/sandbox.py soak --programs 100000 --kill
"""

from __future__ import annotations

import argparse
import json
import os
import random
import threading
import time
from pathlib import Path
from statistics import median
from typing import Any

from turnwise.sandbox import Job, Limits, Sandbox

SHORT = Job(program="def double(x): return 2 * x", inputs=(4,), call="double")
QUICK = Limits(cpu=0.05, wall=1.0, memory=64, output=1 << 12, files=1)
MIXED = [
    SHORT,
    Job(program="import math\nresult = math.factorial(100)"),
    Job(program="print('x' * 1000)"),
    Job(program="open('left behind', 'w').write('x')"),
    Job(program="1 / 0"),
    Job(program="x = ("),
    Job(program="import os\nos._exit(3)"),
    Job(program="import os\nos.kill(1, 9)"),
    Job(program="import ctypes\nctypes.string_at(0)"),
    Job(program="print('x' * 10**5)", limits=QUICK),
    Job(program="x = bytes(10**10)", limits=QUICK),
    Job(program="import threading\nthreading.Thread(target=input).start()"),
]
RARE = [
    Job(program="while True: pass", limits=QUICK),
    Job(program="import time\ntime.sleep(9)", limits=QUICK),
]


def speed(sandbox: Sandbox, asked: argparse.Namespace) -> dict[str, Any]:
    """Run short programs, all queued at once, several times."""
    rates, spent = [], cpu_seconds()
    for _ in range(asked.rounds):
        began = time.perf_counter()
        results = sandbox.run_batch([SHORT] * asked.programs)
        rates.append(asked.programs / (time.perf_counter() - began))
        assert all(result.value == 8 for result in results)
    each = (cpu_seconds() - spent) / (asked.rounds * asked.programs)
    return {
        "a_second": median(rates),
        "least": min(rates),
        "most": max(rates),
        "cpu_ms_each": 1e3 * each,
    }


def wait(sandbox: Sandbox, asked: argparse.Namespace) -> dict[str, Any]:
    """Queue short programs one by one, at random times of a given rate; percentiles in ms."""
    draw, waits, lock = random.Random(0), [], threading.Lock()

    def done(since: float) -> Any:
        def note(_: Any) -> None:
            with lock:
                waits.append(time.perf_counter() - since)

        return note

    due = time.perf_counter()
    for _ in range(asked.programs):
        due += draw.expovariate(asked.rate)
        time.sleep(max(due - time.perf_counter(), 0))
        sandbox.submit(SHORT).add_done_callback(done(due))
    while len(waits) < asked.programs:
        time.sleep(0.01)
    waits.sort()
    at = {f"p{p}": 1e3 * waits[int(len(waits) * p / 100)] for p in (50, 90, 99)}
    return {"rate": asked.rate, **at, "most": 1e3 * waits[-1]}


def soak(sandbox: Sandbox, asked: argparse.Namespace) -> dict[str, Any]:
    """Run programs of all kinds, and look at what is left after every 2,000."""
    sandbox.run_batch(MIXED * 10)
    looks, ends, began, killed = [used()], {}, time.perf_counter(), 0
    block, draw = 2000, random.Random(0)
    for _ in range(asked.programs // block):
        jobs = [draw.choice(MIXED) for _ in range(block - len(RARE))] + RARE
        for result in sandbox.run_batch(jobs):
            ends[result.failure or "value"] = ends.get(result.failure or "value", 0) + 1
        looks.append(used())
        print(json.dumps(looks[-1]), flush=True)
        if asked.kill:
            os.kill(draw.choice([pid for pid in below(os.getpid()) if not below(pid)]), 9)
            killed += 1
    assert sandbox.run_batch([SHORT] * 10)[0].value == 8
    seconds = time.perf_counter() - began
    return {
        "programs": sum(ends.values()),
        "a_second": sum(ends.values()) / seconds,
        "ends": ends,
        "killed": killed,
        "replaced": sandbox.replaced,
        "first": looks[1],
        "last": looks[-1],
    }


def used() -> dict[str, int]:
    """Return memory of this process and of those below it in MB, descriptors, processes."""
    pids = below(os.getpid())
    states = [stat_of(pid)[0] for pid in pids]
    return {
        "library_mb": resident(os.getpid()),
        "workers_mb": sum(map(resident, pids)),
        "descriptors": len(os.listdir("/proc/self/fd")),
        "workers_descriptors": sum(len(os.listdir(f"/proc/{pid}/fd")) for pid in pids),
        "processes": len(pids),
        "zombies": states.count("Z"),
    }


def cpu_seconds() -> float:
    """Return CPU time of this process, of those below it, and of those that these have ended."""
    ticks = sum(int(n) for pid in below(os.getpid()) for n in stat_of(pid)[11:15])
    return time.process_time() + ticks / os.sysconf("SC_CLK_TCK")


def below(pid: int) -> list[int]:
    """Return all processes that descend from one."""
    parents: dict[int, list[int]] = {}
    for entry in Path("/proc").iterdir():
        if entry.name.isdigit():
            try:
                parents.setdefault(int(stat_of(int(entry.name))[1]), []).append(int(entry.name))
            except OSError:
                continue
    found, todo = [], [pid]
    while todo:
        children = parents.get(todo.pop(), [])
        found += children
        todo += children
    return found


def stat_of(pid: int) -> list[str]:
    """Return a process's state, its parent and so on."""
    return Path(f"/proc/{pid}/stat").read_text().rpartition(")")[2].split()


def resident(pid: int) -> int:
    """Return a process's memory, shared pages counted in each, in MB."""
    pages = Path(f"/proc/{pid}/statm").read_text().split()[1]
    return int(pages) * os.sysconf("SC_PAGE_SIZE") >> 20


def main() -> None:
    parser = argparse.ArgumentParser(description=(__doc__ or "").splitlines()[0])
    parser.add_argument("what", choices=["speed", "wait", "soak"])
    parser.add_argument("--programs", type=int, default=5000)
    parser.add_argument("--rounds", type=int, default=5)
    parser.add_argument("--rate", type=float, default=250.0)
    parser.add_argument("--workers", type=int, default=len(os.sched_getaffinity(0)))
    parser.add_argument("--kill", action="store_true", help="soak: a worker every 2,000 programs")
    parser.add_argument("--backend", default="isolated")
    parser.add_argument("--preload", action="append", default=[])
    asked = parser.parse_args()
    options = {"backend": asked.backend, "workers": asked.workers, "preload": asked.preload}
    with Sandbox(**options) as sandbox:
        sandbox.start()
        sandbox.run_batch([SHORT] * 50)
        found = {"speed": speed, "wait": wait, "soak": soak}[asked.what](sandbox, asked)
        print(json.dumps({"walls": sandbox.walls, "workers": asked.workers, **found}, indent=2))


if __name__ == "__main__":
    main()
