"""The table of tasks in docs/search.md is the one of the code."""

from __future__ import annotations

from pathlib import Path

from turnwise.report.search import with_error
from turnwise.search.published import PUBLISHED
from turnwise.search.tasks import TASKS

PAGE = Path(__file__).parents[2] / "docs" / "search.md"


def rows():
    for name, task in TASKS.items():
        found = PUBLISHED[name]
        baseline, score, spread = found.best_baseline
        cells = (
            f"`{name}`", task.env, f"`turnwise[{task.extra}]`" if task.extra else "",
            with_error(*found.props), with_error(*found.props_plus),
            f"{baseline} {with_error(score, spread)}",
        )  # fmt: skip
        yield f"| {' | '.join(cells)} |".replace("|  |", "| |")


def test_the_document_lists_the_tasks():
    text = PAGE.read_text(encoding="utf-8")
    listed = [line for line in text.splitlines() if line.startswith("| `") and "-v" in line]
    assert listed == list(rows())
