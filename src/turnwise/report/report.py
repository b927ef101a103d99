"""The report of a run: its settings, its scores beside the baselines, and its cost.

Provides `write_report`, which writes `report.md` and its picture, and the sections that a model
card has too. The report is made from the run folder only, so it can be written again at any time.
Every score has its error and the baselines.
"""

from __future__ import annotations

from collections.abc import Sequence
from pathlib import Path

from turnwise.report.adapters import adapter_lines
from turnwise.report.curve import draw_curve
from turnwise.report.findings import Facts, find_findings
from turnwise.report.policies import policy_lines
from turnwise.report.series import series
from turnwise.runs import metric_names
from turnwise.runs.against import rows_against, told_against
from turnwise.runs.checkpoints import Checkpoints
from turnwise.runs.files import write_atomically
from turnwise.runs.folder import Run
from turnwise.runs.metrics import Record, read_metrics
from turnwise.runs.results import Difference, RunScores, read_scores
from turnwise.types import Decoding
from turnwise.utils.text import in_cell, printable

Row = tuple[str, float, float | None, Difference | None]
"""A row of the result table: name, score, standard error, lead of the trained policy over it."""

_PLAYED: dict[Decoding, str] = {
    "greedy": "trained, greedy",
    "sampled": "trained, at training temperature",
}


def write_report(run: Run, *, command: str = "", film: str = "") -> str:
    """Write `report.md` and `curve.png` of a run, whole or partial, and return the text.

    Args:
        run: the run folder.
        command: the command line that made the run, as the user would repeat it.
        film: what the film in the run folder shows; empty if it has none.

    Raises:
        RunError: if a file of the run is damaged.
    """
    records, scores = read_metrics(run.metrics), read_scores(run.evaluation)
    draw_curve(run.curve, run.name, records, scores)
    parts = (
        [f"# {run.name}"],
        _how(command),
        result_lines(records, scores),
        [f"![score, return, entropy and groups]({run.curve.name})"],
        _pictures(run),
        _film(run, film),
        _program(run),
        _opponents(scores),
        measure_lines(scores),
        _exact(scores),
        _thoughts(scores),
        policy_lines(records),
        cost_lines(records),
        finding_lines(run, scores),
        adapter_lines(run.adapters),
        _next(run),
    )
    text = printable("\n\n".join("\n".join(part) for part in parts if part) + "\n")
    write_atomically(run.report, text)
    return text


def _how(command: str) -> list[str]:
    recipe = "The resolved recipe is in [recipe.toml](recipe.toml)."
    return [f"```\n{command}\n```", "", recipe] if command else [recipe]


def result_lines(records: Sequence[Record], scores: RunScores | None) -> list[str]:
    """Return the table of the policy's scores, of those before training, and of baselines."""
    lines = ["## Result", ""]
    if scores is None:
        return [*lines, *_partial(records)]
    rows: list[Row] = [
        (f"**{_PLAYED[name]}**" if name == scores.decoding else _PLAYED[name], *found, None)
        for name, found in scores.by_decoding.items()
    ]
    if scores.score_best is not None:
        best = f"best of {scores.samples} sampled"
        rows.append((best, scores.score_best, scores.score_best_stderr or 0.0, None))
    rows += _before(records, scores)
    ranked = sorted(scores.baselines, key=lambda name: -scores.baselines[name])
    rows += [_baseline(f"baseline: {n}", n, scores) for n in ranked if n != metric_names.WARMUP]
    which = f", checkpoint {scores.checkpoint}" if scores.checkpoint else ""
    return [
        *lines,
        f"{scores.env}: {scores.described}, seed {scores.seed}{which}. {scores.meaning_of_errors} "
        f"A run is one training seed. The lead is the {scores.decoding} score minus the row's, on "
        f"the same tasks.{_why_this_decoding(records, scores)}",
        *(["", scores.divided] if scores.divided else []),
        "",
        "| policy | score | lead |",
        "|---|---:|---:|",
        *(_line(row, scores) for row in rows),
    ]


def _why_this_decoding(records: Sequence[Record], scores: RunScores) -> str:
    """Say that validation chose the decoding, if it tried both."""
    tried = [series(records, metric_names.TRAIN, name) for name in metric_names.BY_DECODING]
    if not all(len(found) for found in tried):
        return ""
    lead = "led by more than its error" if scores.decoding == "sampled" else "did not lead clearly"
    return f" Validation chose the {scores.decoding} decoding: sampling {lead}."


def _pictures(run: Run) -> list[str]:
    """Return the pictures that commands wrote into the run folder, apart from the report's own."""
    found = (each for each in run.path.iterdir() if each.suffix in (".gif", ".png"))
    own = (run.curve.name, run.film.name)
    names = sorted(each.name for each in found if each.name not in own)
    return [f"![{Path(name).stem}]({name})" for name in names]


def _film(run: Run, shows: str) -> list[str]:
    """Return the film of an episode."""
    return ["## An episode", "", shows, "", f"![an episode]({run.film.name})"] if shows else []


def _program(run: Run) -> list[str]:
    """Return the best program of a run of `turnwise solve`."""
    if not run.program.is_file():
        return []
    lines = run.program.read_text(encoding="utf-8").splitlines()
    code = [f"    {line}" for line in lines]  # a block of code that no mark in it ends
    return ["## Program", "", "The first exact program or else the best one:", "", *code]


def _opponents(scores: RunScores | None) -> list[str]:
    """Return the table of scores against each opponent."""
    if scores is None or not scores.opponents:
        return []
    title, *rows = rows_against(scores.opponents)
    return [
        "## Opponents",
        "",
        f"{told_against(scores.opponents)} The policy plays each opponent as for its score:",
        "",
        f"| {' | '.join(title)} |",
        f"|---|{'---:|' * (len(title) - 1)}",
        *(f"| {' | '.join(row)} |" for row in rows),
    ]


def measure_lines(scores: RunScores | None) -> list[str]:
    """Return the table of what the env measures beside the score."""
    found = {} if scores is None else scores.measured()
    if not found:
        return []
    columns = list(dict.fromkeys(name for row in found.values() for name in row))
    lines = [
        "## Measures",
        "",
        "Means over the episodes that came to a final state, with their standard errors. No reward "
        "and no score depends on them.",
        "",
        f"| policy | {' | '.join(columns)} |",
        f"|---|{'---:|' * len(columns)}",
    ]
    for player, row in found.items():
        cells = " | ".join(row.get(name, "") for name in columns)
        lines.append(f"| {in_cell(player)} | {cells} |")
    return lines


def _exact(scores: RunScores | None) -> list[str]:
    """Return the table of exactly computed values."""
    if scores is None or not scores.exact:
        return []
    columns = list(next(iter(scores.exact.values())))
    lines = [
        "## Computed, not sampled",
        "",
        "Computed from each policy's probabilities of every action in every state. Probability "
        "that was not followed (at most `uncovered`) counts as no answer.",
        "",
        f"| policy | {' | '.join(columns)} |",
        f"|---|{'---:|' * len(columns)}",
    ]
    for name, row in scores.exact.items():
        cells = (f"{row[column]:.4f}" if column in row else "" for column in columns)
        lines.append(f"| {name} | {' | '.join(cells)} |")
    return lines


def _thoughts(scores: RunScores | None) -> list[str]:
    """Say whether answers follow the thoughts before them."""
    if scores is None or not scores.thoughts:
        return []
    lines = ["## Does the thought matter?"]
    for role, found in scores.thoughts.items():
        of_role = f" of {role}" if len(scores.thoughts) > 1 else ""
        lines += [
            "",
            f"In {found['pairs']:.0f} pairs of states{of_role} with different answers the thought "
            "was replaced by the other state's. The answer followed the thought in "
            f"{found['followed']:.1%} and did not change in {found['kept']:.1%}. With the state's "
            f"own thought, inserted in the same way, it was the same in {found['again']:.1%}.",
        ]
    return lines


def _before(records: Sequence[Record], scores: RunScores) -> list[Row]:
    """Return the row of the initial weights; without a test of them, the first iteration's."""
    if metric_names.WARMUP in scores.baselines:
        return [_baseline(f"before training, {scores.decoding}", metric_names.WARMUP, scores)]
    first = series(records, metric_names.TRAIN, metric_names.SCORE)
    if not len(first):
        return []
    label = "before training (its first iteration, on training tasks)"
    return [(label, float(first.values[0]), None, None)]


def _baseline(label: str, name: str, scores: RunScores) -> Row:
    error = scores.baselines_stderr.get(name)
    return (in_cell(label), scores.baselines[name], error, scores.lead_over(name))


def _line(row: Row, scores: RunScores) -> str:
    label, score, error, lead = row
    beside = "" if error is None else f" {scores.score_error_text(score, error)}"
    ahead = ""
    if lead is not None:
        ahead = f"{lead.difference:+.3f} {scores.error_text(lead.stderr)}"
    return f"| {label} | {score:.3f}{beside} | {ahead} |"


def _partial(records: Sequence[Record]) -> list[str]:
    """Say how far a run without a test came."""
    played = series(records, metric_names.TRAIN, metric_names.SCORE)
    checked = series(records, metric_names.TRAIN, metric_names.VALIDATION)
    done = [record["step"] for record in records if record["phase"] == metric_names.TRAIN]
    if not any(done):  # 0 are the weights that training begins with
        return ["Not tested, and no training iteration is finished."]
    said = f"Not tested after {max(done)} iterations"
    if len(played):  # none where episodes are left before their end
        said += f"; training episodes score {played.end():.3f} (mean of the last tenth)"
    if len(checked):
        best = int(checked.values.argmax())
        said += f"; the best validation is {checked.values[best]:.3f} at {checked.steps[best]}"
    return [said + "."]


def cost_lines(records: Sequence[Record]) -> list[str]:
    """Return the table of costs (docs/math.md 5), as totals since the start of the run."""
    if not records:
        return []
    warmups = [record for record in records if record["phase"] != metric_names.TRAIN]
    lines = ["## Cost", "", "| | warm-up | training | in all |", "|---|---:|---:|---:|"]
    for label, metrics in metric_names.COSTS.items():
        if not any(name in records[-1] for name in metrics):
            continue
        total = _total(records[-1], metrics)
        before = _total(warmups[-1], metrics) if warmups else 0.0
        cells = " | ".join(f"{value:,.0f}" for value in (before, total - before, total))
        lines.append(f"| {label} | {cells} |")
    said = ["", "Validation during training is included; the test at the end is not."]
    memory = memory_line(records[-1])
    return [*lines, *said, *([f"{memory}."] if memory else [])]


def memory_line(record: Record) -> str:
    """Return how much memory each process of a run has held; empty for a run in one process."""
    held = [value for name, value in record.items() if name.startswith(metric_names.MEMORY)]
    if len(held) < 2:
        return ""
    return f"Peak memory of the {len(held)} processes: {', '.join(f'{mb:,.0f} MB' for mb in held)}"


def _total(record: Record, metrics: Sequence[str]) -> float:
    return sum(record[name] for name in metrics if record.get(name) is not None)


def finding_lines(run: Run, scores: RunScores | None) -> list[str]:
    """Return what may have kept the run from learning."""
    found = find_findings(Facts.of_run(run, scores))
    return ["## Findings", "", *(f"- {finding}" for finding in found)] if found else []


def _next(run: Run) -> list[str]:
    best = Checkpoints(run.checkpoints).best()
    lines = ["## Where to look next", ""]
    if best is not None:
        where = f"`checkpoints/{best.path.name}`"
        lines.append(f"- {where} validated best, {best.score:.3f}: `turnwise eval {run.path}`")
    return [
        *lines,
        "- `episodes/`: the replies of the last iterations, with rewards and advantages",
        "- `metrics.jsonl`: every number of every step; as curves with "
        f"`tensorboard --logdir {run.tensorboard}`",
    ]
