"""Train one default on envs that it was not tuned for, and compare with what needs no training.

    pip install minigrid reasoning-gym
    python benchmarks/untuned.py FOLDER                         # all envs, seeds 0 to 2
    python benchmarks/untuned.py FOLDER nim taxi --seeds 0 1 --minutes 5 --workers 2
    python benchmarks/untuned.py FOLDER --table                 # what has been measured
    python benchmarks/untuned.py FOLDER --keep benchmarks/untuned.jsonl
    python benchmarks/untuned_base.py BASE                      # a small pretrained model, and
    python benchmarks/untuned.py OTHER --model BASE --lora      # adapters of it

Each job is `turnwise.train("nano", env=ENV, settings={"seed": SEED, "trainer.minutes": MINUTES,
"processes": 1, "evaluation.test_tasks": 500})` on one thread: no setting belongs to an env. Of
`syllogism` there are rows and a reward in place of an env. Finished jobs are not trained again, and
an interrupted one goes on. With `--keep` the results are lines of a file: jobs that it holds are
not trained again, and the table is of its lines with the same `--model`, `--lora` and `--minutes`.
Each line names its commit.

The gap of an env is the distance from the better of random play and the best constant policy to the
optimum: exact, over 300 seeds for `minigrid-door-key`, and an upper bound for `maze`
and `connect-four`. The best constant policy is chosen on tasks of the train split, and scored on
those of the test split.
"""

from __future__ import annotations

import argparse
import json
import os
import subprocess
import sys
from collections import Counter
from collections.abc import Mapping, Sequence
from concurrent.futures import ThreadPoolExecutor
from dataclasses import dataclass, field
from math import hypot
from pathlib import Path
from statistics import mean, median
from threading import Lock
from typing import Any

from result_rows import add_row, commit, kept_rows

HERE = Path(__file__).parent
ENVS = HERE / "untuned_envs.py"
LOCK = Lock()
VIEW = f"{HERE / 'untuned_minigrid.py'}:view"
NOISE = 2
"""Standard errors of the difference by which a score must differ from another to count."""
TASKS, MOST_WORDS = 500, 16
"""Unseen tasks of a score, and the most constant policies that are played."""
ROWS, UNSEEN_ROWS = 2000, 500
RESULT, TRIVIAL = "untuned.json", "constant.json"
KEPT = ("score", "stderr", "decoding", "score_greedy", "score_sampled", "tasks", "checkpoint")


@dataclass(frozen=True)
class World:
    """An env of the battery: its name for `turnwise`, its options, and the best known score."""

    env: str
    best: float
    options: dict[str, Any] = field(default_factory=dict)


def own(name: str, best: float) -> World:
    return World(f"{ENVS}:{name}", best)


def gym(known: float, **options: Any) -> World:
    return World("gymnasium", known, options)


BATTERY: dict[str, World] = {
    "guess": own("Guess", 0.9375),  # 15 of 16 numbers by halving
    "nim": own("Nim", 62 / 63),
    "tic-tac-toe": own("TicTacToe", 0.9799),
    "connect-four": own("ConnectFour", 1.0),  # an upper bound
    "bandit": own("Bandit", 0.9),
    "memory": own("Memory", 1.0),
    "sort": own("Sort", 1.0),
    "key-and-door": own("KeyAndDoor", 1.0),
    "maze": own("Maze", 1.0),  # an upper bound: what lies behind the cells beside is unknown
    "frozen-lake": gym(1.0, id="FrozenLake-v1", kwargs={"is_slippery": False}),
    "frozen-lake-slippery": gym(0.7442, id="FrozenLake-v1"),
    "cliff-walking": gym(1.0, id="CliffWalking"),
    "taxi": gym(0.9671, id="Taxi"),
    "blackjack": gym(0.4784, id="Blackjack-v1"),
    "cart-pole": gym(1.0, id="CartPole-v1"),
    "minigrid-empty": gym(
        0.955, id="minigrid:MiniGrid-Empty-5x5-v0", renderer=VIEW, steps=100, worst=0.0, best=1.0
    ),
    "minigrid-door-key": gym(
        0.9653, id="minigrid:MiniGrid-DoorKey-5x5-v0", renderer=VIEW, steps=100, worst=0.0, best=1.0
    ),
    "syllogism": World("rows", 1.0),
}


def rows_of(name: str) -> tuple[list[dict[str, str]], list[dict[str, str]]]:
    """Return the rows of a family of reasoning-gym to train on, and unseen ones."""
    import reasoning_gym

    made = reasoning_gym.create_dataset(name, size=ROWS + UNSEEN_ROWS, seed=0)
    rows = [{"prompt": row["question"], "answer": row["answer"]} for row in made]
    return rows[:ROWS], rows[ROWS:]


def right(completions: Sequence[str], answer: Sequence[str], **_: Any) -> list[float]:
    """Return 1 for each completion that is the answer."""
    pairs = zip(completions, answer, strict=True)
    return [float(said.strip() == wanted) for said, wanted in pairs]


def train(name: str, model: str, lora: bool, seed: int, minutes: float, run: Path) -> None:
    """Train one job, or go on with it, and write its scores."""
    import turnwise as tw
    from turnwise.policies import LoraSettings, PolicyConfig

    policy = PolicyConfig(model=model, lora=LoraSettings()) if lora else model
    world = BATTERY[name]
    settings = {"seed": seed, "trainer.minutes": minutes, "processes": 1}
    settings["evaluation.test_tasks"] = TASKS
    if (run / "recipe.toml").is_file():
        outcome = tw.resume(run)
    elif world.env == "rows":
        rows, unseen = rows_of(name)
        outcome = tw.train(policy, rows, reward=right, eval_rows=unseen, settings=settings, run=run)
    else:
        env = tw.make_env(world.env, **world.options) if world.options else world.env
        outcome = tw.train(policy, env=env, settings=settings, run=run)
    assert outcome.scores is not None, "the run was stopped"
    (run / RESULT).write_text(outcome.scores.model_dump_json())


def constant(name: str) -> dict[str, Any]:
    """Return the best policy that always gives one answer, where answers are few words.

    It is the one with the best score on tasks of the train split, and has a score and its standard
    error on those of the test split: the largest of several noisy scores would be too large.
    """
    import turnwise as tw
    from turnwise.envs import standard_error
    from turnwise.envs.rows.env import problem_of
    from turnwise.envs.split import share_of
    from turnwise.tasks import GeneratedTasks

    world = BATTERY[name]
    if world.env == "rows":
        rows, unseen = rows_of(name)
        (word, _), *_ = Counter(row["answer"] for row in rows).most_common()
        test = [row for row in unseen if share_of(problem_of(row)) >= 0.5]  # as `Rows` halves them
        scores = [float(row["answer"] == word) for row in test]
        problems = [problem_of(row) for row in test]
    else:
        env = tw.make_env(world.env, **world.options)
        tasks = GeneratedTasks(env, "train", 0).take(TASKS)
        words: dict[str, None] = {}
        for task in tasks[:20]:
            state = env.reset(task)
            words |= dict.fromkeys(env.observe(state, env.acting(state)[0]).legal_actions)
        if not words:
            return {}
        tried = {each: mean(played(env, tasks, each, "train")) for each in [*words][:MOST_WORDS]}
        word = max(tried, key=lambda each: tried[each])
        tasks = GeneratedTasks(env, "test", 0).take(TASKS)
        scores = played(env, tasks, word, "test")
        problems = [env.canonical(task.data) for task in tasks]
    error = standard_error(scores, problems, 1.0)
    return {"word": word, "score": mean(scores), "stderr": error}


def played(env: Any, tasks: Sequence[Any], word: str, split: str) -> list[float]:
    """Return the scores of always giving one answer, or the first legal one where it is not."""
    from turnwise.errors import IllegalActionError
    from turnwise.seeding import generator

    scores = []
    for number, task in enumerate(tasks):
        state, noise = env.reset(task), generator(0, "constant", split, number)
        for _ in range(1000):
            role = env.acting(state)[0]
            legal = env.observe(state, role).legal_actions
            try:
                step = env.step(state, role, word if word in legal else legal[0], noise)
            except IllegalActionError:
                break
            state = step.state
            if step.terminated or step.truncated:
                break
        scores.append(env.score(state))
    return scores


Key = tuple[str, int, str, bool, float]
"""What a job is: env, seed, model, whether an adapter of it is trained, and minutes."""


def kept(file: Path | None) -> dict[Key, dict[str, Any]]:
    """Return the results in a file, by job."""
    rows = [] if file is None else kept_rows(file)
    return {(r["env"], r["seed"], r["model"], r["lora"], r["minutes"]): r for r in rows}


def keep(file: Path, key: Key, run: Path) -> None:
    """Add the result of a finished job to a file."""
    scores = json.loads((run / RESULT).read_text())
    found = {name: scores[name] for name in KEPT}
    for name in ("random", "warmup"):
        if name in scores["baselines"]:
            found[name] = scores["baselines"][name]
            found[f"{name}_stderr"] = scores["baselines_stderr"][name]
    named = dict(zip(("env", "seed", "model", "lora", "minutes"), key, strict=True))
    with LOCK:
        add_row(file, named | {"commit": commit()} | found)


def run_jobs(jobs: Sequence[tuple[str, int]], args: argparse.Namespace) -> None:
    """Run jobs in processes of their own, `args.workers` side by side."""
    environment = os.environ | {"OMP_NUM_THREADS": "1"}
    known = kept(args.keep)

    def work(job: tuple[str, int]) -> None:
        name, seed = job
        run = args.folder / f"{name}-{seed}"
        key = (name, seed, args.model, args.lora, args.minutes)
        if key in known:
            return
        if (run / RESULT).is_file():
            if args.keep is not None:
                keep(args.keep, key, run)
            return
        command = [sys.executable, __file__, str(args.folder), name, "--one", str(seed)]
        command += ["--minutes", str(args.minutes), "--model", args.model]
        command += ["--lora"] * args.lora
        with (args.folder / f"{name}-{seed}.log").open("a") as log:
            done = subprocess.run(command, env=environment, stdout=log, stderr=log, check=False)
        print(f"{name} seed {seed}: {'done' if not done.returncode else 'FAILED, see its log'}")
        if args.keep is not None and not done.returncode:
            keep(args.keep, key, run)

    with ThreadPoolExecutor(args.workers) as pool:
        list(pool.map(work, jobs))


@dataclass(frozen=True, kw_only=True)
class Row:
    """What was measured of one env over the seeds; `closed` is each seed's share of the gap."""

    name: str
    random: float
    trivial: float
    best: float
    warmup: float
    greedy: float
    sampled: float
    score: float
    closed: list[float]
    above: bool
    below: bool


def measured(folder: Path, name: str, found: Sequence[Mapping[str, Any]]) -> Row:
    """Return the results of an env from those of its seeds."""
    cached = folder / f"{name}-{TRIVIAL}"
    if not cached.is_file():
        cached.write_text(json.dumps(constant(name)))
    fixed = json.loads(cached.read_text())
    best = BATTERY[name].best
    randoms = [each.get("random", 0.0) for each in found]
    errors = [each.get("random_stderr", 0.0) for each in found]
    trivial, doubt = mean(randoms), hypot(*errors) / len(errors)
    if fixed and fixed["score"] > trivial:
        trivial, doubt = fixed["score"], fixed["stderr"]

    def beats(each: Mapping[str, Any], level: float, error: float, sign: int) -> bool:
        return sign * (each["score"] - level) > NOISE * hypot(each["stderr"], error)

    pairs = list(zip(found, randoms, errors, strict=True))
    return Row(
        name=name,
        random=mean(randoms),
        trivial=trivial,
        best=best,
        warmup=mean(each.get("warmup", float("nan")) for each in found),
        greedy=mean(each["score_greedy"] for each in found),
        sampled=mean(each["score_sampled"] for each in found),
        score=mean(each["score"] for each in found),
        closed=[(each["score"] - trivial) / (best - trivial) for each in found],
        above=all(beats(each, trivial, doubt, 1) for each in found),
        below=any(beats(each, level, error, -1) for each, level, error in pairs),
    )


def results(args: argparse.Namespace) -> dict[str, list[Mapping[str, Any]]]:
    """Return the results of each env that was measured, of the file or else of the folder."""
    found: dict[str, list[Mapping[str, Any]]] = {}
    if args.keep is not None:
        asked = (args.model, args.lora, args.minutes)
        for (name, *_), row in sorted(kept(args.keep).items()):
            if (row["model"], row["lora"], row["minutes"]) == asked:
                found.setdefault(name, []).append(row)
        return found
    for name in BATTERY:
        for path in sorted(args.folder.glob(f"{name}-[0-9]*/{RESULT}")):
            scores = json.loads(path.read_text())
            errors = {f"{n}_stderr": value for n, value in scores["baselines_stderr"].items()}
            found.setdefault(name, []).append(scores | scores["baselines"] | errors)
    return found


def table(args: argparse.Namespace) -> str:
    """Return the table of all envs that were measured, and a summary."""
    found = results(args)
    rows = [measured(args.folder, name, found[name]) for name in BATTERY if name in found]
    lines = [
        "| env | random | best trivial | best | warm-up | greedy | sampled | score | gap closed |",
        "|---|---:|---:|---:|---:|---:|---:|---:|---|",
    ]
    for row in rows:
        shares = ", ".join(f"{share:.2f}" for share in row.closed)
        numbers = (row.random, row.trivial, row.best, row.warmup, row.greedy, row.sampled)
        cells = " | ".join(f"{number:.3f}" for number in (*numbers, row.score))
        lines.append(f"| {row.name} | {cells} | {shares} |")
    closed = [share for row in rows for share in row.closed]
    if not closed:
        return "nothing is measured"
    below, above = sum(row.below for row in rows), sum(row.above for row in rows)
    counts = (
        f"Of {len(rows)} envs {below} end below random play in some seed, and {above} above the "
        f"best trivial policy in all seeds. Median share of the gap closed: {median(closed):.2f}."
    )
    return "\n".join([*lines, "", counts])


def main() -> None:
    """Run the jobs that are left, and print the table."""
    parser = argparse.ArgumentParser(description=__doc__.splitlines()[0] if __doc__ else "")
    parser.add_argument("folder", type=Path)
    parser.add_argument("envs", nargs="*", metavar="ENV", help=f"of {', '.join(BATTERY)}")
    parser.add_argument("--seeds", type=int, nargs="+", default=[0, 1, 2])
    parser.add_argument("--minutes", type=float, default=10.0)
    parser.add_argument("--model", default="nano", help="a nano preset or a model directory")
    parser.add_argument("--lora", action="store_true", help="train an adapter of the model")
    parser.add_argument("--workers", type=int, default=1)
    parser.add_argument("--table", action="store_true", help="train nothing")
    parser.add_argument("--keep", type=Path, metavar="FILE", help="the file of the results")
    parser.add_argument("--one", type=int, metavar="SEED", help=argparse.SUPPRESS)
    args = parser.parse_args()
    if unknown := [name for name in args.envs if name not in BATTERY]:
        parser.error(f"unknown env {unknown[0]!r}: expected some of {', '.join(BATTERY)}")
    args.folder.mkdir(parents=True, exist_ok=True)
    if args.one is not None:
        (name,) = args.envs
        run = args.folder / f"{name}-{args.one}"
        train(name, args.model, args.lora, args.one, args.minutes, run)
        return
    if not args.table:
        names = args.envs or list(BATTERY)
        run_jobs([(name, seed) for seed in args.seeds for name in names], args)
    print(table(args))


if __name__ == "__main__":
    main()
