"""benchmarks/teams.py and teams_runs.py: where runs begin, which jobs are left, and the table."""

from __future__ import annotations

import pytest

from ..conftest import load_benchmark


@pytest.fixture(scope="module")
def script():
    return load_benchmark("teams")


def test_adapters_begin_on_the_base_that_the_warm_up_trained(script, tmp_path):
    for folder in ("models", "base", "start"):
        (tmp_path / folder / "tool").mkdir(parents=True)
    weights = dict(s.split("=", 1) for s in script.begun_from(tmp_path, "lora"))
    base = str(tmp_path / "base" / "tool")
    assert weights == {
        "policies.tool.model": base, "policies.planner.model": base, "pretrain": "none",
    }  # fmt: skip
