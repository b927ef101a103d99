"""Trains in child processes that die, or get a signal, at chosen places.

Imports everything once; then forks a child for every job read from standard input, one JSON object
a line, and answers with the child's exit status. What a child says goes to the job's `log`.
"""

import json
import os
import resource
import signal
import sys
import traceback
from collections.abc import Callable
from pathlib import Path
from typing import Any

import matplotlib.backends.backend_agg
import matplotlib.figure
import matplotlib.ticker
import tensorboard.compat.proto.event_pb2
import tensorboard.summary.writer.record_writer
import torch

import turnwise.trainers.grpo
import turnwise.trainers.validation
from turnwise.app import run_scores, stages
from turnwise.cli.main import app
from turnwise.engines import LocalEngine
from turnwise.policies import Policy, PolicyOptimizer
from turnwise.runs import Checkpoints, EpisodeLog, MetricsLog, checkpoints, files

ONCE = (matplotlib, tensorboard)
"""Packages that every run imports late: imported here, they cost no child half a second."""
PLACES: dict[str, tuple[Any, str]] = {
    "token": (LocalEngine, "advance"),
    "step": (PolicyOptimizer, "step"),
    "saving weights": (Policy, "save"),
    "saving optimizer": (torch, "save"),
    "sealing": (checkpoints, "_seal"),
    "renewing best": (Checkpoints, "_mark_best"),
    "pruning": (Checkpoints, "_delete"),
    "metrics": (MetricsLog, "append"),
    "line": (files.LineLog, "append"),
    "episodes": (EpisodeLog, "write"),
    "validation": (turnwise.trainers.validation, "evaluate"),
    "test": (run_scores, "evaluate_run"),
    "training": (turnwise.trainers.grpo, "train_grpo"),
    "merging": (Policy, "merge_adapter"),
    "pretraining done": (stages, "resume"),
    "renaming": (Path, "rename"),
}


def main() -> None:
    for line in sys.stdin:
        job = json.loads(line)
        heard, said = os.pipe()  # not the log itself: a child's file size limit would cut its words
        child = os.fork()
        if child == 0:
            os.close(heard)
            os._exit(work(job, said))
        os.close(said)
        with open(heard, "rb") as words:
            Path(job["log"]).write_bytes(words.read())
        _, status = os.waitpid(child, 0)
        sys.stdout.write(json.dumps({"code": os.waitstatus_to_exitcode(status)}) + "\n")
        sys.stdout.flush()


def work(job: dict[str, Any], said: int) -> int:
    """Run `turnwise` with the job's arguments; return its exit code."""
    torch.set_num_threads(1)
    os.dup2(said, 1)
    os.dup2(said, 2)
    os.close(said)
    for event in job["events"]:
        plant(**event)
    try:
        app(job["arguments"], prog_name="turnwise")
    except SystemExit as end:
        sys.stdout.flush()
        return end.code if isinstance(end.code, int) else 1
    except BaseException:
        traceback.print_exc()
        sys.stderr.flush()
        return 1
    return 0


def plant(
    place: str,
    call: int = 1,
    signals: tuple[str, ...] = ("SIGKILL",),
    after: bool = False,
    tear: bool = False,
    largest: int | None = None,
    full: str | None = None,
) -> None:
    """Send this process `signals` before (or after) the given call at a place, counted from 1.

    `tear` writes half of the line that is about to be appended. Instead of signals: `largest` lets
    no file grow beyond that many bytes from there on, `full` fills the disk that a folder is on.
    """
    owner, name = PLACES[place]
    real: Callable[..., Any] = getattr(owner, name)
    calls = 0

    def wrapped(*args: Any, **kwargs: Any) -> Any:
        nonlocal calls
        calls += 1
        if calls != call:
            return real(*args, **kwargs)
        if tear:
            half(args[0].path, args[1])
        if largest is not None:
            resource.setrlimit(resource.RLIMIT_FSIZE, (largest, largest))
            return real(*args, **kwargs)
        if full is not None:
            fill(Path(full))
            return real(*args, **kwargs)
        result = real(*args, **kwargs) if after else None
        for word in signals:
            signal.raise_signal(signal.Signals[word])
        return result if after else real(*args, **kwargs)

    setattr(owner, name, wrapped)


def half(path: Path, record: dict[str, Any]) -> None:
    with path.open("ab") as file:
        file.write(json.dumps(record).encode()[:40])


def fill(folder: Path) -> None:
    """Write until there is no space left."""
    with (folder / "ballast").open("ab", buffering=0) as file:
        for size in (65536, 1):
            try:
                while True:
                    file.write(bytes(size))
            except OSError:
                continue


if __name__ == "__main__":
    main()
