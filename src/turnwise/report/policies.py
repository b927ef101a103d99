"""The section of a report on the policies of a run, where several are trained.

Provides `policy_lines` and `policy_names`. They read the metrics that carry a policy's name in
front.
"""

from __future__ import annotations

from collections.abc import Sequence

from turnwise.report.series import series
from turnwise.runs import metric_names
from turnwise.runs.metrics import Record

RATE = "optim/lr"
COLUMNS = {"entropy": metric_names.ENTROPY, "gradient norm": "optim/grad_norm"}
"""Column of the table -> the metric whose value at the start and at the end it shows."""


def policy_names(records: Sequence[Record]) -> list[str]:
    """Return the names of the trained policies; empty where there is one policy.

    Metrics have a policy's name in front only where several are trained.
    """
    names = {name for record in records for name in record if name.endswith(f"/{RATE}")}
    return sorted(name.removesuffix(f"/{RATE}") for name in names)


def policy_lines(records: Sequence[Record]) -> list[str]:
    """Return the table of the trained policies; empty where there is one policy.

    Values at the start are means of the first three iterations with an update, and those at the
    end of the last tenth.
    """
    names = policy_names(records)
    if not names:
        return []
    return [
        "## Policies",
        "",
        f"| policy | iterations with an update | {' | '.join(COLUMNS)} |",
        f"|---|---:|{'---:|' * len(COLUMNS)}",
        *(_line(name, records) for name in names),
    ]


def _line(policy: str, records: Sequence[Record]) -> str:
    """Return a policy's row."""
    updates = len(series(records, metric_names.TRAIN, f"{policy}/{RATE}"))
    cells = [str(updates)]
    for metric in COLUMNS.values():
        found = series(records, metric_names.TRAIN, f"{policy}/{metric}")
        cells.append(f"{found.start():.3f} to {found.end():.3f}" if len(found) else "")
    return f"| {policy} | {' | '.join(cells)} |"
