"""Train teams by AT-GRPO with one defect of PettingLLMs' public code at a time, and compare scores.

    python benchmarks/teams_defects.py FILE --envs plan-path --seeds 0 1 2
    python benchmarks/teams_defects.py FILE             # the table of what FILE holds

Each row of `ROWS` is a training run of one policy that plays all roles, from a warm-up that the
rows of a seed share, and is compared with the row `beside` of the same seed. A defect is a setting
of the recipe where a setting can express it. The others replace a function of turnwise
(`defects.py`) in the process that trains (`defect_run.py`); a run in which that function was never
called, or never gave another result, has failed. Jobs that FILE holds are not trained again, and a
run that was interrupted goes on. A line of FILE holds the commands, the commit, `eval.json`, the
totals, the curve of validation scores, and for each replaced function its calls and the calls whose
result differed, those of tests among them.

The public code has these defects, by the numbers of the project's list:

 1. Groups hold the turns of K problems, K being the number of siblings: `merged-problems`.
 2. All siblings of the second role have the reward of one: `one-reward`.
 3. From the second round on, prompts show the state after the first one, and the siblings are
    stepped in K other states: `stale-state`. What its env pays for the shown state is the same
    for all siblings and is left out.
 4. The second role does not see what the first one did in the round: `no-hand-off`, in the
    warm-up and in tests, too. It sees no call; there it sees that of the round before.
 5. The script for AT-GRPO played independent episodes when it was released: `independent`.
 6. Its baseline of independent episodes compares all roles with each other (`mixed-roles`), and
    trains the turns in the last round of a problem's longest episode alone (`last-round`). There
    the reward of the turn is compared, here the return of the episode.
 7. In games a role's reward is its own action's and the env's, which for the planner is one number
    twice: `other-rewards`, in the recipe's components. In code and mathematics correct answers
    count twice; there is no such recipe here.
 8. A discount in the shaping of rewards pays for moving back and forth: `dithering`, and with
    returns of episodes `dithering-returns`. Siblings begin in one state, so that what it pays for
    the state before the move is the same for all of them.
 9. Training samples from other distributions than the one scored: top-p and top-k
    (`filtered-sampling`, in sampled tests, too) and the temperature (`other-temperature`; `hot` has
    the temperature, and scores with it). The repetition penalty is not reproduced: the sampler
    does not see earlier tokens.
10. A failed model call becomes an end token that is rewarded and trained: `failed-trained`. In
    `failed-left-out` the same calls fail, and leave their groups. The share of calls is a guess.
11. Policies are updated one after another, not side by side. That changes no number.

`together` has 1 to 4. Not reproduced either: adapters for each role are not trained at all, which
gives the score of the warm-up; rows repeated to fill processes, as one process has none; the filter
that leaves out half of the groups, which is an option there; and the defects of tasks, scripts and
resumed runs. Games are evaluated on other tasks than they are trained on, there as here.
"""

from __future__ import annotations

import shlex
from collections.abc import Sequence
from math import sqrt
from pathlib import Path
from statistics import mean, stdev
from typing import Any, NamedTuple

from defect_counts import read_counts, unused
from teams_runs import (
    COSTS,
    GRPO,
    RECIPES,
    TURNWISE,
    Job,
    UnfinishedError,
    as_table,
    begun_from,
    command_line,
    measured,
    run_and_show,
    trained,
    words_of,
)

KIND = "shared"
"""The preset of the recipe's policies."""
ONE_PROCESS = "processes=1"
"""A second process of a run would not have the replaced functions."""
OWN_LOGPROBS = ("trainer.old_logprobs=recompute", "trainer.mismatch=ignore")
HOT = ("agents.tool.temperature=1.5", "agents.planner.temperature=1.5")
OTHER_REWARDS = (
    *("credit.rewards.solved=2.0", "credit.rewards.progress=2.0", "credit.rewards.illegal=-0.2"),
    *("credit.rewards.call_useful=1.0", "credit.rewards.call_failed=-2.0"),
    *("credit.rewards.invalid=-2.0", "credit.rewards.move_useful=0.0"),
    *("credit.rewards.idle=0.0", "credit.rewards.call_idle=0.0"),
)
CLEAN = "at-grpo"


class Row(NamedTuple):
    """Settings, the replaced functions, and the row that it is compared with.

    `number` is that of the defect in the list above, 0 for a row without one. `warms` names the
    functions that are replaced in the warm-up, too.
    """

    number: int
    settings: tuple[str, ...]
    replaced: tuple[str, ...] = ()
    beside: str = CLEAN
    warms: tuple[str, ...] = ()


ROWS: dict[str, Row] = {
    CLEAN: Row(0, ()),
    "merged-problems": Row(1, (), ("merged-problems",)),
    "one-reward": Row(2, (), ("one-reward",)),
    "stale-state": Row(3, (), ("stale-state",)),
    "no-hand-off": Row(4, (), ("no-hand-off",), warms=("no-hand-off",)),
    "independent": Row(5, GRPO),
    "mixed-roles": Row(6, (*GRPO, "credit.statistics=all"), beside="independent"),
    "last-round": Row(6, GRPO, ("last-round",), beside="independent"),
    "other-rewards": Row(7, OTHER_REWARDS),
    "dithering": Row(8, (), ("dithering",)),
    "dithering-returns": Row(8, GRPO, ("dithering",), beside="independent"),
    "filtered-sampling": Row(9, (), ("filtered-sampling",)),
    "hot": Row(0, HOT),
    "other-temperature": Row(9, (*HOT, *OWN_LOGPROBS), ("other-temperature",), beside="hot"),
    "failed-left-out": Row(0, (), ("failed-left-out",)),
    "failed-trained": Row(10, OWN_LOGPROBS, ("failed-trained",), beside="failed-left-out"),
    "together": Row(
        0,
        (),
        ("merged-problems", "one-reward", "stale-state", "no-hand-off"),
        warms=("no-hand-off",),
    ),
}


def program_of(names: Sequence[str], run: Path) -> tuple[str, ...]:
    """Return what follows the interpreter in the command of a run with replaced functions."""
    if not names:
        return TURNWISE
    return (str(Path(__file__).with_name("defect_run.py")), ",".join(names), str(counts_of(run)))


def counts_of(run: Path) -> Path:
    """Return the file of the counts of a run, beside its folder."""
    return run.with_name(f"{run.name}.counts.json")


def trained_with(names: Sequence[str], words: Sequence[str], run: Path) -> str:
    """Train with replaced functions, or go on; return the command.

    Raises:
        UnfinishedError: if a replaced function was not called, or never gave another result.
    """
    program = program_of(names, run)
    trained(words, run, program)
    if problems := unused(read_counts(counts_of(run)), names):
        raise UnfinishedError("; ".join(problems))
    called = ("python", "benchmarks/defect_run.py", *program[1:]) if names else ("turnwise",)
    return shlex.join([*called, *words])


def train(job: Job, runs: Path, version: str) -> dict[str, Any]:
    """Train a job, or go on; return what is kept."""
    row = ROWS[job.row]
    given = [f"preset={KIND}", f"seed={job.seed}", ONE_PROCESS]
    warm = runs / job.warm_up.folder("-".join(["warm", *row.warms]))
    words = words_of(job.env, [*given, *job.warm_up.settings, "trainer.iterations=0"])
    commands = [trained_with(row.warms, words, warm)]
    run = runs / job.name
    settings = [*given, *row.settings, *job.settings, *begun_from(warm, KIND)]
    words = words_of(job.env, settings)
    commands.append(trained_with(row.replaced, words, run))
    kept = job.kept(version) | {"command": " && ".join(commands)}
    return kept | {"replaced": read_counts(counts_of(run))} | measured(run)


def told(values: Sequence[float], sign: str = "") -> str:
    """Return a mean, with its standard error over seeds where there are several."""
    error = f" ± {stdev(values) / sqrt(len(values)):.3f}" if len(values) > 1 else ""
    return f"{mean(values):{sign}.3f}{error}" if values else ""


def table(rows: Sequence[dict[str, Any]]) -> str:
    """Return the score of each env and row, and its difference to the row that it is beside.

    The difference is over the seeds that both have.
    """
    heads = ("env", "defect", "number", "seeds", "score", "beside", "difference", *COSTS, "seconds")
    lines: list[list[str]] = []
    found: dict[tuple[str, tuple[str, ...], str], dict[int, dict[str, Any]]] = {}
    for row in rows:
        place = (row["env"], tuple(row["settings"]), row["row"])
        found.setdefault(place, {})[row["seed"]] = row
    for (env, settings, name), own in found.items():
        row = ROWS[name]
        other = found.get((env, settings, row.beside), {}) if name != CLEAN else {}
        scores = {seed: each["scores"]["score"] for seed, each in own.items()}
        pairs = [scores[seed] - other[seed]["scores"]["score"] for seed in scores if seed in other]
        cells = [env, " ".join([name, *settings]), str(row.number or ""), str(len(own))]
        cells += [told(list(scores.values())), row.beside if other else "", told(pairs, "+")]
        for cost in (*COSTS, "seconds"):
            cells.append(f"{mean(each['totals'][cost] for each in own.values()):,.0f}")
        lines.append(cells)
    return as_table(heads, lines)


def main() -> None:
    """Train what is left of the rows that are asked for, and print the table."""
    parser = command_line(__doc__, tuple(RECIPES), tuple(ROWS), "runs/teams-defects")
    parser.set_defaults(envs=[], rows=list(ROWS))
    run_and_show(parser.parse_args(), train, lambda rows: print(table(rows)))


if __name__ == "__main__":
    main()
