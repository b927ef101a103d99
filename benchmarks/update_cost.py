"""Time the parts of an iteration's updates on the nano model of frozen-lake, from rows to step.

    python benchmarks/update_cost.py RUN [--against TREE] [--rounds 15] [--threads 1]

RUN is a run of `frozen-lake` after a few iterations; it is made if the folder does not exist. The
next iteration is played once. Its mini-batches are then trained again and again from the same
weights and optimizer state. `--against` names another working copy of the repository: a second
worker runs its code, the workers take turns, and ratios are per round. Times are CPU milliseconds
of an iteration, medians over rounds. `outside` is the time that no other line has.
"""

from __future__ import annotations

import argparse
import os
import shutil
import subprocess
import sys
import tempfile
import time
from collections import defaultdict
from collections.abc import Callable
from contextlib import ExitStack, suppress
from pathlib import Path
from typing import Any

import numpy as np
import torch

from turnwise.app.build import assemble, plan_of
from turnwise.bench.worker import ParentExited, StepServer, Worker
from turnwise.forest import score
from turnwise.policies import PolicyOptimizer
from turnwise.recipe.schema import load_recipe
from turnwise.runs import Run, StopSignal
from turnwise.trainers import Silent, grpo, loop, resume, update
from turnwise.trainers.batches import batches_of, begin
from turnwise.trainers.gc import frozen

SETTINGS = (
    "warmup.steps=200",
    "trainer.iterations=10",
    "optimizer.schedule=constant",
    "evaluation.validation_tasks=20",
    "evaluation.test_tasks=20",
)
"""Settings of the run that is made: long enough that replies are readable and groups differ."""
WARM = 3
PARTS: dict[str, tuple[Any, str]] = {
    "pack forest": (score.TreeScorer, "batches"),
    "decoder": (score.TreeScorer, "score"),
    "head": (score, "score_heads"),
    "loss": (update, "total_loss"),
    "backward": (torch.Tensor, "backward"),
    "clip, step": (PolicyOptimizer, "step"),
    "zero": (PolicyOptimizer, "zero"),
}
"""Part -> the function that it is. A part's time does not include the parts that it calls."""


class Clock:
    """CPU seconds of parts that may call each other."""

    def __init__(self) -> None:
        self.taken: dict[str, float] = defaultdict(float)
        self._inner: list[float] = [0.0]

    def timed(self, name: str, act: Callable[..., Any]) -> Callable[..., Any]:
        """Return `act`, its time counted as `name`."""

        def run(*args: Any, **kwargs: Any) -> Any:
            self._inner.append(0.0)
            began = time.process_time()
            try:
                return act(*args, **kwargs)
            finally:
                took = time.process_time() - began
                self.taken[name] += took - self._inner.pop()
                self._inner[-1] += took

        return run


def serve(folder: Path) -> None:
    """Play an iteration, then train it on request and answer with the time of each part."""
    server = StepServer()
    torch.set_num_threads(int(os.environ["OMP_NUM_THREADS"]))
    recipe = load_recipe(str(folder / "recipe.toml"))
    session = assemble(recipe, Run.open(folder), StopSignal(), Silent())
    plan, back = plan_of(recipe), resume(session)
    assert back is not None and back.phase == loop.PHASE
    trained = session.trained["main"]
    begin(session, plan, trained)
    back.restore(trained)
    saved = {n: w.clone() for n, w in trained.policy.model.state_dict().items()}
    episodes = loop.play_groups(session, plan, session.curriculum.visits(back.step))
    clock = Clock()
    for name, (owner, function) in PARTS.items():
        setattr(owner, function, clock.timed(name, getattr(owner, function)))

    def rows() -> update.Batch:
        credit = grpo.credit_of(session, plan, episodes)
        return batches_of(session, plan, episodes, credit, {}, back.step)["main"]

    def iteration() -> dict[str, float]:
        return grpo.update(session, plan, trained, back.step, clock.timed("rows, weights", rows)())

    with frozen():
        while True:
            server.wait()
            trained.policy.model.load_state_dict(saved)
            back.restore(trained)
            clock.taken.clear()
            wall = time.perf_counter()
            metrics = clock.timed("outside", iteration)()
            wall = time.perf_counter() - wall
            counts = {k: v for k, v in metrics.items() if k.startswith(("forest/", "optim/"))}
            server.answer(
                parts=dict(clock.taken),
                total=sum(clock.taken.values()),
                wall=wall,
                counts=counts,
                digest=trained.policy.digest(),
            )


def compare(run: Path, against: Path | None, rounds: int, threads: int) -> None:
    """Print the parts of an iteration, of this code and of another working copy's."""
    trees = {"here": Path(__file__).parents[1]} | ({"there": against} if against else {})
    with tempfile.TemporaryDirectory() as scratch, ExitStack() as stack:
        workers = {}
        for name, tree in trees.items():
            place = Path(scratch) / name
            shutil.copytree(run, place)
            command = [sys.executable, __file__, str(place), "--serve"]
            code = {"PYTHONPATH": str(tree.resolve() / "src")}
            workers[name] = stack.enter_context(Worker(name, command, place, threads, code))
        answers: dict[str, list[dict[str, Any]]] = {name: [] for name in workers}
        for number in range(WARM + rounds):
            for name in list(workers) if number % 2 else list(workers)[::-1]:
                answer = workers[name].ask("iteration")
                if number >= WARM:
                    answers[name].append(answer)
    print({name: round(value, 2) for name, value in answers["here"][0]["counts"].items()})
    if against and answers["here"][0]["digest"] != answers["there"][0]["digest"]:
        print("the weights after the iteration are not equal to the last bit")
    print(f"{'milliseconds':16}" + "".join(f"{name:>9}" for name in answers) + "    here / there")
    for part in ("rows, weights", *PARTS, "outside"):
        line(part, {n: [1e3 * a["parts"][part] for a in each] for n, each in answers.items()})
    line("sum", {n: [1e3 * a["total"] for a in each] for n, each in answers.items()})
    line("wall clock", {n: [1e3 * a["wall"] for a in each] for n, each in answers.items()})


def line(name: str, values: dict[str, list[float]]) -> None:
    """Print the medians of one part, and the median and quartiles of the ratio."""
    shown = f"{name:16}" + "".join(f"{np.median(each):9.2f}" for each in values.values())
    if len(values) > 1:
        ratios = np.array(values["here"]) / np.array(values["there"])
        low, middle, high = np.quantile(ratios, (0.25, 0.5, 0.75))
        shown += f"    {middle:.3f} ({low:.3f} to {high:.3f})"
    print(shown)


def main() -> None:
    parser = argparse.ArgumentParser(description=(__doc__ or "").split("\n")[0])
    parser.add_argument("run", type=Path)
    parser.add_argument("--against", type=Path, metavar="TREE")
    parser.add_argument("--rounds", type=int, default=15)
    parser.add_argument("--threads", type=int, default=1)
    parser.add_argument("--serve", action="store_true", help=argparse.SUPPRESS)
    asked = parser.parse_args()
    if asked.serve:
        with suppress(ParentExited):
            serve(asked.run)
        return
    if not asked.run.is_dir():
        words = [word for setting in SETTINGS for word in ("--set", setting)]
        command = [sys.executable, "-m", "turnwise", "train", "frozen-lake", *words]
        subprocess.run([*command, "--run", str(asked.run)], check=True)
    compare(asked.run, asked.against, asked.rounds, asked.threads)


if __name__ == "__main__":
    main()
