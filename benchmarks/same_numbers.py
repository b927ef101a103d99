"""Show that a change of the code leaves every number of the shipped recipes as it was.

    python benchmarks/same_numbers.py record FOLDER     # before the change
    python benchmarks/same_numbers.py compare FOLDER    # after it: exit status 1 where one differs

Trains the `smoke` preset of every shipped recipe, and of frozen-lake under other settings, on one
thread. Keys below `time/` and `mem/` are left out; `--renamed OLD=NEW` compares NEW with OLD.
Recipes for real models train a nano model instead. The machine must be the same one.
"""

from __future__ import annotations

import argparse
import json
import os
import subprocess
import sys
import tempfile
from pathlib import Path
from typing import Any

import turnwise as tw

CLOCK = ("time/", "mem/")
REAL = ("frozen-lake-qwen3-0.6b", "frozen-lake-gemma-2b")
SETTINGS: dict[str, tuple[str, ...]] = {
    "rloo": ("credit.scheme=rloo",),
    "gigpo": ("credit.scheme=gigpo",),
    "maxrl": ("credit.scheme=maxrl",),
    "batch-std": ("credit.std=batch_advantages",),
    "gspo": ("loss.kind=gspo",),
    "cispo": ("loss.kind=cispo",),
    "kl": ("loss.kl=loss_k3", "loss.kl_weight=0.1"),
    "penalty": ("loss.kl=reward_k1", "loss.kl_weight=0.1"),
    "epochs": ("trainer.epochs=2", "trainer.minibatches=2"),
    "dynamic": ("trainer.dynamic_sampling=true",),
    "flat": ("forest.layout=flat",),
}
"""Name -> what `frozen-lake` is trained with besides its smoke preset."""


def jobs(model: Path) -> dict[str, tuple[str, tuple[str, ...]]]:
    """Return name -> (recipe, settings)."""
    shipped = {name: (name, _model(name, model)) for name in tw.recipe_names()}
    return shipped | {f"frozen-lake, {n}": ("frozen-lake", more) for n, more in SETTINGS.items()}


def _model(name: str, model: Path) -> tuple[str, ...]:
    return (f"policies.main.model={model}",) if name in REAL else ()


def turnwise(*words: str) -> None:
    """Run the command line on one thread."""
    subprocess.run(
        [sys.executable, "-m", "turnwise", *words],
        env=os.environ | {"OMP_NUM_THREADS": "1", "CUDA_VISIBLE_DEVICES": ""},
        stdin=subprocess.DEVNULL,
        stdout=subprocess.DEVNULL,
        check=True,
    )


def metrics(recipe: str, settings: tuple[str, ...], run: Path) -> list[dict[str, Any]]:
    """Train, and return the metrics without clock and memory."""
    words = [word for s in ("preset=smoke", *settings) for word in ("--set", s)]
    turnwise("train", recipe, *words, "--run", str(run))
    lines = (run / "metrics.jsonl").read_text().splitlines()
    return [
        {key: value for key, value in json.loads(line).items() if not key.startswith(CLOCK)}
        for line in lines
    ]


def differences(
    old: list[dict[str, Any]], new: list[dict[str, Any]], renamed: dict[str, str]
) -> list[str]:
    """Return the keys that are gone or whose values are not equal to the last bit."""
    if len(old) != len(new):
        return [f"{len(old)} records, now {len(new)}"]
    found: dict[str, str] = {}
    for before, after in zip(old, new, strict=True):
        before = {renamed.get(key, key): value for key, value in before.items()}
        for key in sorted(before):  # a metric that is new is no change of a number
            one, other = before[key], after.get(key, "absent")
            if one != other:
                found.setdefault(key, f"{key}: {one}, now {other}")
    return list(found.values())


def main() -> int:
    """Record or compare; return how many jobs differ, at most 1."""
    parser = argparse.ArgumentParser(description=__doc__.split("\n")[0])
    parser.add_argument("what", choices=("record", "compare"))
    parser.add_argument("folder", type=Path)
    parser.add_argument("--only", default="", help="names that contain this")
    parser.add_argument("--renamed", action="append", default=[], metavar="OLD=NEW")
    told = parser.parse_args()
    renamed = dict(pair.split("=", 1) for pair in told.renamed)
    told.folder.mkdir(parents=True, exist_ok=True)
    differ = 0
    with tempfile.TemporaryDirectory() as scratch:
        model = told.folder / "model"  # one model for both sides
        if not model.is_dir():
            turnwise("init", str(model), "--size", "pico")
            template = model / "chat_template.jinja"  # one that reads what Qwen3's does
            template.write_text(template.read_text() + "{% if enable_thinking %}{% endif %}")
        for name, (recipe, settings) in jobs(model.resolve()).items():
            kept = told.folder / f"{name}.json"
            if told.only not in name or (told.what == "record") == kept.is_file():
                continue  # recorded already, or a recipe that is newer than the record
            new = metrics(recipe, settings, Path(scratch) / name.replace(", ", "-"))
            if told.what == "record":
                kept.write_text(json.dumps(new))
                print(f"{name}: {len(new)} records", flush=True)
                continue
            found = differences(json.loads(kept.read_text()), new, renamed)
            differ += bool(found)
            print(f"{name}: {'; '.join(found[:5]) or 'equal'}", flush=True)
    return min(differ, 1)


if __name__ == "__main__":
    sys.exit(main())
