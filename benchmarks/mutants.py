"""Mutation testing: one small fault at a time in the source, and whether a test notices it.

    make mutants                        # 200 mutants, drawn by seed 0
    make mutants MUTANTS=50 SEED=1      # another sample; MUTANTS=0 is all of them
    python benchmarks/mutants.py --only src/turnwise/credit/compare.py --show

A mutant changes one expression or statement of `credit`, `losses`, `trainers` or `rollout`
(`mutant_operators.py` lists the changes). It runs the tests that execute the changed lines, the
fastest first, until one fails. The parent process has imported turnwise and the tests; every mutant
is a fork of it in which the changed function gets its new code. A fork imports turnwise anew only
where the change concerns what runs at import.

A mutant that survives costs the time of all tests that execute its line. `--budget 40` leaves out
the slowest ones beyond 40 CPU seconds; a mutant that survives the others is `undecided`, which
counts as not killed, and is judged again without the option.

Which test executes which line is recorded first, once for each state of the source and the tests
(`.mutants/coverage.json`). Results are kept in `.mutants/results.jsonl` and found again, so that an
interrupted run goes on: those of killed mutants as long as the source file is the same, those of
survivors as long as the tests are, too. `mutants_equivalent.toml` lists the mutants that no test
can kill, each with a reason; they are not counted.

A mutant that does not end counts as killed. The limit is in CPU seconds, so that other work on the
machine cannot turn a survivor into a kill. A mutant that waits without using CPU is stopped by the
clock, much later, and listed as `stalled`.
"""

from __future__ import annotations

import argparse
import hashlib
import importlib
import json
import math
import os
import random
import resource
import shutil
import signal
import sys
import tempfile
import time
import tomllib
from collections import Counter
from contextlib import redirect_stderr, redirect_stdout
from pathlib import Path
from typing import Any

import pytest

sys.path.insert(0, str(Path(__file__).parent))
from mutant_code import ROOT, Coverage, Overlay, give_new_code, instrumented
from mutant_operators import Mutant, mutants_of

PACKAGES = ("credit", "losses", "trainers", "rollout")
TESTS = tuple(f"tests/{name}" for name in PACKAGES)
STATE = ROOT / ".mutants"
EQUIVALENT = Path(__file__).with_name("mutants_equivalent.toml")
PATIENCE, LEAST = 5.0, 20.0
"""A mutant may use this many times the CPU time of its tests, and at least so many CPU seconds."""
CLOCK = 8.0
"""Seconds of the clock for each CPU second that a mutant may use: the share of a busy machine."""
CAUGHT = ("killed", "timeout", "stalled")
PLAIN = ("-q", "--no-header", "-m", "not slow", "-p", "no:cacheprovider", "-p", "no:xdist")


def preload() -> None:
    """Import turnwise, the tests and what they import."""
    for name in (
        "turnwise.app.lifecycle",
        "turnwise.app.train",
        "turnwise.trainers",
        "hypothesis",
        "peft",
    ):
        importlib.import_module(name)
    code = wait(fork(lambda: collect() or 0, STATE / "collect.log"), 600)
    if code != 0:
        sys.exit(f"the tests cannot be collected; see {STATE / 'collect.log'}")
    with Path(os.devnull).open("w") as sink, redirect_stdout(sink), redirect_stderr(sink):
        collect()


def collect() -> int:
    """Import all tests, without running one."""
    return int(pytest.main([*PLAIN, "--collect-only", *TESTS]))


def forget() -> None:
    """Drop turnwise and the tests: what imports them next runs their code."""
    for name, module in list(sys.modules.items()):
        file = getattr(module, "__file__", None) or ""
        if name.split(".")[0] == "turnwise" or file.startswith(str(ROOT / "tests")):
            del sys.modules[name]


def fork(run: Any, log: Path, cpu: float | None = None) -> int:
    """Run a function in a child with a process group of its own; its return value is the code.

    SIGXCPU ends the child after `cpu` seconds of CPU time. The hard limit stays, because tests set
    limits of their own.
    """
    pid = os.fork()
    if pid:
        return pid
    code = 70
    try:
        os.setsid()
        sink = os.open(log, os.O_WRONLY | os.O_CREAT | os.O_TRUNC)
        os.dup2(sink, 1)
        os.dup2(sink, 2)
        if cpu is not None:
            hard = resource.getrlimit(resource.RLIMIT_CPU)[1]
            resource.setrlimit(resource.RLIMIT_CPU, (math.ceil(cpu), hard))
        code = int(run())
    finally:
        os._exit(code)


def wait(pid: int, limit: float) -> int | None:
    """Return a child's exit code, None if it was killed after `limit` seconds of the clock."""
    end = time.monotonic() + limit
    while time.monotonic() < end:
        done, status = os.waitpid(pid, os.WNOHANG)
        if done:
            return os.waitstatus_to_exitcode(status)
        time.sleep(0.02)
    os.killpg(pid, signal.SIGKILL)
    os.waitpid(pid, 0)
    return None


def digest(*folders: str) -> str:
    """Return a hash of all Python and TOML files below some folders."""
    found = hashlib.sha256()
    for folder in folders:
        for path in sorted((ROOT / folder).rglob("*")):
            if path.suffix in (".py", ".toml"):
                found.update(str(path.relative_to(ROOT)).encode() + path.read_bytes())
    return found.hexdigest()[:16]


def coverage() -> dict[str, Any]:
    """Return which test executes which lines, recorded anew where source or tests changed."""
    state, place = digest("src", "tests"), STATE / "coverage.json"
    if place.exists():
        known = json.loads(place.read_text())
        if known["state"] == state:
            return known["tests"]
    print("running the tests once to see which lines they execute ...", flush=True)

    def record() -> int:
        forget()
        plugin = Coverage()
        for path in (path for name in PACKAGES for path in sources(name)):
            sys.meta_path.insert(0, Overlay(path, instrumented(path), __hit__=plugin.hit))
        code = pytest.main([*PLAIN, *TESTS], plugins=[plugin])
        place.write_text(json.dumps({"state": state, "tests": plugin.table()}))
        return int(code)

    code = wait(fork(record, STATE / "coverage.log"), 3600)
    if code != 0:
        sys.exit(f"the tests do not pass without a mutant; see {STATE / 'coverage.log'}")
    return json.loads(place.read_text())["tests"]


def sources(package: str) -> list[Path]:
    """Return the files of one package."""
    return sorted((ROOT / "src" / "turnwise" / package).glob("*.py"))


def covering(mutant: Mutant, tests: dict[str, Any]) -> list[str]:
    """Return the tests that execute a mutant's lines, the fastest first.

    What runs at import concerns every test that executes anything of the file.
    """
    found = []
    for name, about in tests.items():
        lines = about["lines"].get(mutant.file, [])
        if any(mutant.first <= line <= mutant.last for line in lines) or (
            mutant.at_import and lines
        ):
            found.append(name)
    return sorted(found, key=lambda name: tests[name]["seconds"])


def within(chosen: list[str], tests: dict[str, Any], budget: float) -> list[str]:
    """Return the first of some tests, as many as a budget of CPU seconds allows, at least one."""
    used, out = 0.0, []
    for name in chosen:
        used += tests[name]["seconds"]
        if out and used > budget:
            break
        out.append(name)
    return out


def judge(mutant: Mutant, tests: dict[str, Any], budget: float) -> str:
    """Return `killed`, `timeout`, `stalled`, `survived`, `undecided` or `uncovered`."""
    every = covering(mutant, tests)
    if not every:
        return "uncovered"
    chosen = within(every, tests, budget)
    path = ROOT / mutant.file
    scratch = Path(tempfile.mkdtemp(prefix="mutant-"))

    def run() -> int:
        changed = mutant.apply(path.read_text())
        if mutant.at_import or not give_new_code(path, changed):
            forget()
            sys.meta_path.insert(0, Overlay(path, changed))
        options = ("-x", f"--basetemp={scratch / 'tmp'}", "--hypothesis-seed=0")
        return int(pytest.main([*PLAIN, *options, *chosen]))

    limit = LEAST + PATIENCE * sum(tests[test]["seconds"] for test in chosen)
    code = wait(fork(run, STATE / "last.log", cpu=limit), CLOCK * limit)
    shutil.rmtree(scratch, ignore_errors=True)
    survived = "survived" if chosen == every else "undecided"
    return {0: survived, None: "stalled", -signal.SIGXCPU: "timeout"}.get(code, "killed")


def main() -> None:
    """Draw mutants, judge those that are not known yet, and print the rate."""
    parser = argparse.ArgumentParser(description=__doc__.splitlines()[0])
    parser.add_argument("--mutants", type=int, default=200, help="how many; 0 is all")
    parser.add_argument("--seed", type=int, default=0)
    parser.add_argument(
        "--budget", type=float, default=math.inf, help="CPU seconds of tests for one mutant"
    )
    parser.add_argument("--only", default="", help="files whose path contains this")
    parser.add_argument("--show", action="store_true", help="list the mutants and stop")
    options = parser.parse_args()
    os.environ |= {"OMP_NUM_THREADS": "1", "TOKENIZERS_PARALLELISM": "false"}
    os.chdir(ROOT)
    STATE.mkdir(exist_ok=True)
    paths = [path for package in PACKAGES for path in sources(package)]
    wanted = [path for path in paths if options.only in str(path.relative_to(ROOT))]
    every = [mutant for path in wanted for mutant in mutants_of(path, ROOT)]
    drawn = sample(every, options.mutants, options.seed)
    if options.show:
        print(*drawn, sep="\n")
        return
    preload()
    counts = run_all(drawn, coverage(), options.budget)
    report(counts, len(every))


def sample(every: list[Mutant], count: int, seed: int) -> list[Mutant]:
    """Draw `count` mutants, 0 for all; a larger sample of a seed begins with the smaller one."""
    if not 0 < count < len(every):
        return every
    chance, chosen = random.Random(seed), dict[int, None]()
    while len(chosen) < count:
        chosen.setdefault(chance.randrange(len(every)))
    return [every[place] for place in chosen]


def run_all(drawn: list[Mutant], tests: dict[str, Any], budget: float) -> Counter[str]:
    """Judge each mutant, or take its known result; print those that are not killed."""
    reviewed = tomllib.loads(EQUIVALENT.read_text())["mutant"]
    listed = {(e["file"], e["line"], e["change"]) for e in reviewed}
    place, state = STATE / "results.jsonl", digest("tests")
    known: dict[str, Any] = {}
    if place.exists():
        known = {r["id"]: r for r in map(json.loads, place.read_text().splitlines())}
    counts: Counter[str] = Counter()
    for number, mutant in enumerate(drawn, start=1):
        source = hashlib.sha256((ROOT / mutant.file).read_bytes()).hexdigest()[:16]
        key = f"{source} {mutant}"
        old = known.get(key)
        if (mutant.file, mutant.text, mutant.change) in listed:
            result = "equivalent"
        elif old and is_known(old, state):
            result = old["result"]
        else:
            result = judge(mutant, tests, budget)
            with place.open("a") as file:
                file.write(json.dumps({"id": key, "result": result, "tests": state}) + "\n")
        counts[result] += 1
        if result not in ("killed", "timeout", "equivalent"):  # a stalled one is worth a look
            print(f"{number:4d} {result}: {mutant}", flush=True)
    return counts


def is_known(old: dict[str, str], state: str) -> bool:
    """Whether a result of an earlier run still holds with the tests of now."""
    return old["result"] in CAUGHT or (old["result"] != "undecided" and old["tests"] == state)


def report(counts: Counter[str], every: int) -> None:
    """Print how many of the mutants the tests killed."""
    judged = sum(counts.values()) - counts["equivalent"]
    killed = sum(counts[result] for result in CAUGHT)
    print(
        f"killed {killed} of {judged} ({killed / max(judged, 1):.1%}); by timeout "
        f"{counts['timeout']}, stalled {counts['stalled']}, survived {counts['survived']}, "
        f"undecided {counts['undecided']}, on lines that no test executes "
        f"{counts['uncovered']}; not counted: "
        f"{counts['equivalent']} listed as equivalent; {every} mutants in all"
    )


if __name__ == "__main__":
    main()
