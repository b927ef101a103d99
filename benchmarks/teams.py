"""Train teams on planning puzzles by several methods, and compare what they score and cost.

    python benchmarks/teams.py FILE --envs sokoban --rows team-grpo at-grpo --seeds 0 1 2
    python benchmarks/teams.py FILE                     # the tables; --plot PNG draws the curves

A job is a row of `ROWS`, an env and a seed: `turnwise train` with some settings, from a warm-up
that the rows of one kind of policies, one seed and equal `--set` share. Jobs whose command FILE
holds are not trained again, and a run that was interrupted goes on. Each line of FILE holds the
commands, the commit, `eval.json`, the totals of the run, and as `curve` the sampled tokens, the env
steps and the validation score, and the scores of other tests: of the hard half of Sokoban's levels,
which are those that the reflex fails, and of tasks of which few are hard where the recipe has hard
ones only. A row with `plays` is trained by others: it exchanges policies for the test.
"""

from __future__ import annotations

import json
import sys
from collections.abc import Sequence
from pathlib import Path
from statistics import mean
from typing import Any, NamedTuple

from result_rows import half_interval
from teams_runs import (
    COSTS,
    GRPO,
    RECIPES,
    STARTS,
    TURNS,
    Job,
    UnfinishedError,
    as_table,
    as_typed,
    begun_from,
    by_row,
    command_line,
    measured,
    run_and_show,
    trained,
    turnwise,
    words_of,
)

VINE = (
    *("topology.kind=vine", "topology.siblings=6", "trainer.group_size=1"),
    *("credit.scheme=counterfactual", "trainer.tasks_per_iteration=6"),
)
OUTCOME = ("preset=outcome",)
TESTS = {"hard_tasks": "env.options.hard_share=1.0", "all_tasks": "env.options.hard=false"}
"""Other tests of an env."""
STYLES = ("-", "--", ":")
"""Of lines: the next one is taken where the ten colours are used up."""


class Row(NamedTuple):
    """A kind of policies, settings, and policies of other rows that play in the test.

    `plays` maps a role to the row and the policy that plays it; the first row is then the run.
    """

    kind: str
    settings: tuple[str, ...] = ()
    plays: tuple[tuple[str, str, str], ...] = ()


ROWS: dict[str, Row] = {
    # equal feedback and budget for one role
    "single-grpo": Row("single", GRPO),
    "single-turns": Row("single", TURNS),
    "single-spine": Row("single"),
    # a team; `turns` has a return for each turn
    "team-grpo": Row("shared", GRPO),
    "team-turns": Row("shared", TURNS),
    "at-grpo": Row("shared"),
    "at-grpo-lora": Row("lora"),
    "at-grpo-models": Row("models"),
    "team-grpo-models": Row("models", GRPO),
    "team-turns-models": Row("models", TURNS),
    # other credit; team-grpo has statistics for each role
    "pooled-statistics": Row("shared", (*GRPO, "credit.statistics=all")),
    "rae": Row("shared", (*GRPO, "credit.scheme=rae")),
    "counterfactual": Row("shared", VINE),
    # the solved puzzle is the only reward; siblings need a return, so the spine is a vine
    "single-outcome": Row("single", OUTCOME),
    "team-outcome": Row("shared", OUTCOME),
    "single-vine-outcome": Row("single", (*OUTCOME, *VINE)),
    "vine-outcome": Row("shared", (*OUTCOME, *VINE)),
    # roles trained alone, the other one as warmed up, and combined; roles swapped
    "tool-alone": Row("models", ("policies.planner.trainable=false",)),
    "planner-alone": Row("models", ("policies.tool.trainable=false",)),
    "combined": Row(
        "models",
        plays=(("tool", "tool-alone", "tool"), ("planner", "planner-alone", "planner")),
    ),
    "swapped": Row(
        "models",
        plays=(("tool", "at-grpo-models", "planner"), ("planner", "at-grpo-models", "tool")),
    ),
}


def warm_up(job: Job, runs: Path) -> tuple[list[str], list[str]]:
    """Return the settings of a job's warm-up, and those that begin a run with its weights."""
    kind, shared = ROWS[job.row].kind, job.warm_up
    warmed = STARTS[kind].kind
    run = runs / shared.folder(f"warm-{warmed}")
    asked = [f"preset={warmed}", f"seed={job.seed}", *shared.settings, "trainer.iterations=0"]
    trained(words_of(job.env, asked), run)
    return asked, begun_from(run, kind)


def train(job: Job, runs: Path, version: str) -> dict[str, Any]:
    """Train a job, or go on; return what is kept."""
    row = ROWS[job.row]
    if row.plays:
        return played(job, row.plays, runs, version)
    warm, begun = warm_up(job, runs)
    settings = [f"preset={row.kind}", f"seed={job.seed}", *row.settings, *job.settings, *begun]
    trained(words_of(job.env, settings), runs / job.name)
    command = as_typed(*(words_of(job.env, each) for each in (warm, settings)))
    others = other_tests(eval_words(runs / job.name), job, runs)
    kept = job.kept(version) | {"command": command}
    return kept | measured(runs / job.name) | others


def played(
    job: Job, plays: Sequence[tuple[str, str, str]], runs: Path, version: str
) -> dict[str, Any]:
    """Test policies of other rows of the job's seed, on the tasks that these were tested on.

    Raises:
        UnfinishedError: if one of these rows has not been trained.
    """
    folders = {other: runs / job.folder(other) for _, other, _ in plays}
    if lacking := [row for row, run in folders.items() if not (run / "eval.json").is_file()]:
        raise UnfinishedError(f"it plays policies of {' and '.join(lacking)}: train them before")
    first = folders[plays[0][1]]
    policies = [f"{role}={folders[other]}:{policy}" for role, other, policy in plays]
    words = eval_words(first, *(word for one in policies for word in ("--policy", one)))
    own = [*words, "--seed", str(job.seed)]
    scores = scored(own, job, runs)
    # all of them began with one warm-up, which that of the first row's test is
    scores["baselines"]["warmup"] = own_test(first)["baselines"]["warmup"]
    kept = job.kept(version) | {"command": as_typed(own), "scores": scores}
    return kept | other_tests(words, job, runs)


def own_test(run: Path) -> dict[str, Any]:
    """Return the scores that a finished run has in its folder."""
    return json.loads((run / "eval.json").read_text())


def eval_words(run: Path, *more: str) -> list[str]:
    """Return the command that tests a run on as many tasks as its own test had."""
    return ["eval", str(run), "--json", "--tasks", str(own_test(run)["tasks"]), *more]


def scored(words: list[str], job: Job, runs: Path) -> dict[str, Any]:
    """Return what a command prints as JSON."""
    return json.loads(turnwise(words, runs / f"{job.name}.log", told=True))


def other_tests(words: list[str], job: Job, runs: Path) -> dict[str, Any]:
    """Return the scores of the other test of an env, on tasks of seed 0, by its name in a row."""
    name = "hard_tasks" if job.env == "sokoban" else "all_tasks"
    return {name: scored([*words, "--set", TESTS[name]], job, runs)}


def told(values: Sequence[float]) -> str:
    """Return a mean, with the 95 % interval over seeds where there are several; "" for none."""
    if len(values) < 2:
        return "".join(f"{value:.3f}" for value in values)
    return f"{mean(values):.3f} ± {half_interval(values):.3f}"


def gaps(tests: Sequence[dict[str, Any]]) -> list[float]:
    """Return the share of the gap between the warm-up and the solver that each test closes.

    Tests without a warm-up are left out, and those of which it is as good as the solver.
    """
    found: list[float] = []
    for scores in tests:
        low, high = (scores["baselines"].get(name) for name in ("warmup", "optimal"))
        if low is not None and high is not None and low < high:
            found.append((scores[f"score_{scores['decoding']}"] - low) / (high - low))
    return found


def table(rows: list[dict[str, Any]]) -> str:
    """Return the scores and costs of each env and row, means over seeds with 95 % intervals."""
    heads = ("env", "row", "seeds", "greedy", "sampled", "gap closed", "other test", *COSTS, "s")
    found: list[list[str]] = []
    for cells, group in by_row(rows):
        scores = [row["scores"] for row in group]
        columns = [[each[f"score_{how}"] for each in scores] for how in ("greedy", "sampled")]
        columns.append(gaps(scores))
        columns.append([row[n]["score_greedy"] for row in group for n in TESTS if n in row])
        costs: list[str] = []
        for cost in (*COSTS, "seconds"):
            spent = [row["totals"][cost] for row in group if cost in row.get("totals", {})]
            costs.append(f"{mean(spent):,.0f}" if spent else "")
        found.append([*cells, *map(told, columns), *costs])
    return as_table(heads, found)


def plot(rows: list[dict[str, Any]], path: Path) -> None:
    """Draw the validation score of each run by sampled tokens."""
    from matplotlib.figure import Figure

    drawn = [(*cells[:2], group) for cells, group in by_row([r for r in rows if r.get("curve")])]
    envs = list(dict.fromkeys(env for env, _, _ in drawn))
    names = list(dict.fromkeys(name for _, name, _ in drawn))
    if not drawn:
        sys.exit("no row has a curve to be drawn: train rows that play their own policies")
    figure = Figure(figsize=(4.2 * len(envs) + 3.0, 3.8), dpi=130, layout="constrained")
    for place, env in enumerate(envs):
        axes = figure.add_subplot(1, len(envs), place + 1, title=env)
        axes.set_xlabel("sampled tokens")
        axes.set_xscale("log")
        axes.tick_params(which="minor", labelbottom=False)
        for number, name in enumerate(names):
            color, style = f"C{number % 10}", STYLES[number // 10 % len(STYLES)]
            axes.plot([], [], color=color, linestyle=style, label=name)
            own = [group for place, row, group in drawn if (place, row) == (env, name)]
            for row in own[0] if own else ():
                across, _, up = zip(*row["curve"], strict=True)
                axes.plot(across, up, color=color, linestyle=style, linewidth=1)
    figure.axes[0].set_ylabel("validation score")
    figure.legend(*figure.axes[-1].get_legend_handles_labels(), loc="outside right", fontsize=7)
    figure.savefig(path)


def main() -> None:
    """Train what is left, and print the tables."""
    parser = command_line(__doc__, tuple(RECIPES), tuple(ROWS), "runs/teams")
    parser.add_argument("--plot", type=Path, metavar="PNG")
    args = parser.parse_args()

    def show(rows: list[dict[str, Any]]) -> None:
        print(table(rows))
        if args.plot:
            plot(rows, args.plot)

    run_and_show(args, train, show)


if __name__ == "__main__":
    main()
