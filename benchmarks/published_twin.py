"""Which causes of the published FrozenLake failure matter? The twin, and its repairs one by one.

    python benchmarks/published_twin.py run VARIANT... --seeds 0 1 2 3 4 [--root runs/twin]
    python benchmarks/published_twin.py table [--root runs/twin]

Trains the recipe `frozen-lake-published` with the settings of each variant (`list` names them) and
computes what its last policy is worth, without sampling. What is there is not done again, so a
killed run goes on. Variants that differ in nothing a base was shown share that base of a seed.
"""

from __future__ import annotations

import argparse
import json
import shutil
from collections.abc import Sequence
from pathlib import Path

import numpy as np

from turnwise.app import lifecycle
from turnwise.app.loading import load_run
from turnwise.envs import make_env
from turnwise.evaluation import policy_probabilities
from turnwise.evaluation.continuations import continuations
from turnwise.recipe.schema import Recipe, load_recipe
from turnwise.runs import Run
from turnwise.tasks import GeneratedTasks

RECIPE = "frozen-lake-published"
MEASURES = "measures.json"
UNCOVERED = 0.02
"""The chance, at most, that counts as no answer because the reply was not followed up."""
MOST_PATHS = 1024
"""Replies that are followed up at most: a policy that knows the format needs a few hundred."""
STEPS = 100
LEAN = (
    "env.options.steps=1",
    "evaluation.exact=0",
    "evaluation.test_tasks=1",
    "evaluation.validation_tasks=1",
    "episodes.keep=0",
    "metrics.sinks=[]",
)
"""The settings that make a run cheap and change none of its weights."""
REPAIRS = {
    "prompt": ("env.options.prompt=plain",),
    "examples": ("env.options.examples=right",),
    "truncation": ("env.options.keep=0",),
    "half format": ("credit.rewards.format=none", "credit.rewards.advantage=none",
                    "credit.rewards.bonus=none", "credit.rewards.gated=1.0"),
    "visits": ("env.training.visits=even",),
    "KL": ("loss.kl=none", "loss.kl_weight=none"),
    "batch": ("trainer.tasks_per_iteration=22", "trainer.group_size=8", "trainer.iterations=400",
              "optimizer.warmup_steps=40"),
    "temperature": ("agents.player.temperature=1.0",),
    "thought": ("env.options.thought=cell", "pretrain.steps=600", "pretrain.perception_tasks=64"),
    "rate": ("optimizer.lr=4.8e-4",),
}  # fmt: skip
"""One setting, or a few that are one cause, each."""
LONGER = ("trainer.iterations=1250", "optimizer.warmup_steps=125")
"""As many updates as published, where the repair of the batch is content with a third of them."""
HABITS = {habit: (f"env.warmup.habit={habit}",) for habit in ("forward", "copied")}
"""What a base answers that does not answer at random: as an instructed model would, one way or the
other."""
DESIGNS = {
    f"reward: {name}": (
        "credit.rewards.advantage=none", "credit.rewards.bonus=none", f"credit.rewards.{name}=0.5"
    )
    for name in ("match", "rank", "value")
}  # fmt: skip


def variants() -> dict[str, tuple[str, ...]]:
    """Return name -> overrides of all variants."""
    everything = tuple(setting for repair in REPAIRS.values() for setting in repair)
    found = {"published": (), "repaired": everything, "repaired, longer": everything + LONGER}
    found |= {f"published + {name}": repair for name, repair in REPAIRS.items()}
    rate = REPAIRS["rate"]
    found |= {
        f"published + rate + {name}": rate + repair
        for name, repair in (REPAIRS | DESIGNS).items()
        if name != "rate"
    }
    for name in REPAIRS:
        rest = (repair for other, repair in REPAIRS.items() if other != name)
        found[f"repaired - {name}"] = tuple(setting for repair in rest for setting in repair)
    with_habits = {
        f"{name}, {habit}": sets + added
        for name, sets in found.items()
        for habit, added in HABITS.items()
    }
    return found | with_habits


def main() -> None:
    """Do what the command line says."""
    parser = argparse.ArgumentParser(description=(__doc__ or "").splitlines()[0])
    parser.add_argument("act", choices=("run", "table", "list"))
    parser.add_argument("variants", nargs="*")
    parser.add_argument("--seeds", type=int, nargs="+", default=[0, 1, 2, 3, 4])
    parser.add_argument("--root", type=Path, default=Path("runs/twin"))
    arguments = parser.parse_args()
    known = variants()
    for name in arguments.variants:
        if name not in known:
            parser.error(f"no variant {name!r}: `list` names them")
    if arguments.act == "list":
        print("\n".join(f"{name}: {' '.join(sets)}" for name, sets in known.items()))
    elif arguments.act == "table":
        print_table(arguments.root)
    else:
        for name in arguments.variants:
            for seed in arguments.seeds:
                run_variant(name, known[name], seed, arguments.root)


def run_variant(name: str, sets: Sequence[str], seed: int, root: Path) -> None:
    """Train one variant on one seed and write what its last policy is worth into its folder."""
    folder = root / f"{name.replace(' ', '_').replace(':', '').replace(',', '')}-{seed}"
    if (folder / MEASURES).is_file():
        return
    recipe = load_recipe(RECIPE, [*LEAN, *sets, f"seed={seed}"])
    base = base_of(recipe, root)
    rest = ["pretrain=none", f"policies.main.model={base}", "policies.main.nano=none"]
    recipe = load_recipe(RECIPE, [*LEAN, *sets, f"seed={seed}", *rest])
    finish(recipe, folder)
    sampled, greedy = worth(folder, greedy=False), worth(folder, greedy=True)
    measures = {"variant": name, "seed": seed, **sampled}
    measures |= {f"greedy {key}": value for key, value in greedy.items()}
    (folder / MEASURES).write_text(json.dumps(measures, indent=2) + "\n", encoding="utf-8")
    print(name, seed, {key: round(float(value), 3) for key, value in sampled.items()}, flush=True)


def base_of(recipe: Recipe, root: Path) -> Path:
    """Return the base that a recipe pretrains, made once for all variants that show it the same."""
    assert recipe.pretrain is not None
    shown = recipe.env.options | recipe.env.warmup
    key = "-".join(str(shown[k]) for k in sorted(shown) if k != "steps")
    folder = root / f"base-{key}-{recipe.seed}"
    policies = {
        name: policy.model_copy(update={"lora": None}) for name, policy in recipe.policies.items()
    }
    trainer = recipe.trainer.model_copy(update={"iterations": 0})
    optimizer = recipe.optimizer.model_copy(update={"warmup_steps": 0})
    update = {"pretrain": None, "warmup": recipe.pretrain, "policies": policies}
    update |= {"trainer": trainer, "optimizer": optimizer}
    finish(recipe.model_copy(update=update), folder)
    return Run(folder).start("main").resolve()


def finish(recipe: Recipe, folder: Path) -> None:
    """Train what `recipe` says in `folder`, from where an earlier try was killed."""
    run = Run(folder)
    if run.evaluation.is_file():
        return
    if folder.is_dir() and not run.recipe.is_file():
        shutil.rmtree(folder)
    outcome = lifecycle.resume(folder) if folder.is_dir() else lifecycle.train(recipe, run=folder)
    if not outcome.finished:
        raise SystemExit(f"stopped: {folder} goes on when this is called again")


def worth(folder: Path, *, greedy: bool) -> dict[str, float]:
    """Return the exact measures of a run's last policy, at its training temperature or greedy."""
    loaded = load_run(folder)
    loaded.use_checkpoint()
    env = make_env(RECIPE, **(loaded.recipe.env.options | {"steps": STEPS}))
    exact = env.exact(GeneratedTasks(env, "test", 0).task(0))
    assert exact is not None
    (agent,) = loaded.recipe.agents.values()
    said = continuations(loaded.policies["main"], agent.temperature)
    renderer = loaded.policies["main"].renderer
    found = policy_probabilities(
        env,
        exact.decisions,
        agent,
        renderer,
        said,
        greedy=greedy,
        uncovered=UNCOVERED,
        most_paths=MOST_PATHS,
    )
    return dict(exact.measure(found.probabilities)) | {"uncovered": found.uncovered}


def print_table(root: Path) -> None:
    """Print every variant's measures, mean and standard error over seeds, under the constants."""
    env = make_env(RECIPE)
    exact = env.exact(GeneratedTasks(env, "test", 0).task(0))
    assert exact is not None
    columns = ["published", "advantage", "success", "format", "left", "down", "right", "up"]
    print(f"| policy | seeds | {' | '.join(columns)} |")
    print(f"|---|---:|{'---:|' * len(columns)}")
    for name, probabilities in exact.players.items():
        values = exact.measure(probabilities)
        print(f"| *{name}* | | {' | '.join(f'{values[c]:.3f}' for c in columns)} |")
    rows: dict[str, list[dict[str, float]]] = {name: [] for name in variants()}
    for path in sorted(root.glob(f"*/{MEASURES}")):
        measured = json.loads(path.read_text(encoding="utf-8"))
        rows[measured["variant"]].append(measured)
    for name, found in rows.items():
        if found:
            cells = [spread([row[column] for row in found]) for column in columns]
            print(f"| {name} | {len(found)} | {' | '.join(cells)} |")


def spread(values: Sequence[float]) -> str:
    """Return a mean and its standard error over seeds."""
    mean = f"{np.mean(values):.3f}"
    if len(values) < 2:
        return mean
    return f"{mean} ± {np.std(values, ddof=1) / len(values) ** 0.5:.3f}"


if __name__ == "__main__":
    main()
