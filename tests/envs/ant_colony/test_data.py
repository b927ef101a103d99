"""Demonstrations of the ant colony as a file: their rows, and that a warm-up can read them."""

from __future__ import annotations

from itertools import islice

import numpy as np
from typer.testing import CliRunner

from turnwise.cli.main import app
from turnwise.envs.datasets import AntColonyDemonstrations
from turnwise.formats import REPLY_FORMATS
from turnwise.tasks.files import sft_rows


def rows(count, **options):
    return list(islice(AntColonyDemonstrations(**options).rows(np.random.default_rng(0)), count))


def test_rows_show_what_is_seen_and_what_the_heuristic_does():
    found = rows(400)
    assert found == rows(400) != rows(400, noise=0.5)
    assert {row["tier"] for row in found} == {"0", "1"}
    lines = REPLY_FORMATS["lines"]
    for row in found:
        action = lines.parse(row["completion"], ())
        assert action.split("\n")[0].split()[0] in ("MOVE", "PICK_UP", "DEPOSIT")
        assert lines.thought(row["completion"]).startswith("food ")
        assert row["prompt"].startswith(f"tier {row['tier']} turn ")
    last = [row["prompt"].split("\n")[3] for row in found]
    assert any("bumped" in each for each in last)  # random moves, whose recovery is shown


def test_a_warm_up_reads_the_file(tmp_path):
    for name in ("rows.jsonl", "rows.csv"):
        out = tmp_path / name
        command = ["data", "ant-colony-demonstrations", "--out", str(out), "--rows", "50"]
        done = CliRunner().invoke(app, command)
        assert done.exit_code == 0, done.output
        assert len(sft_rows(out)) == 50
    assert sft_rows(tmp_path / "rows.csv") == sft_rows(tmp_path / "rows.jsonl")
