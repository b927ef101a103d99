"""benchmarks/search_table.py: its columns, its cells, and that finished searches are kept."""

from __future__ import annotations

import sys
from types import SimpleNamespace

import pytest

from turnwise.errors import ConfigError

from ..conftest import load_benchmark


@pytest.fixture(scope="module")
def script():
    return load_benchmark("search_table")


def test_a_searcher_has_a_column_for_itself_and_for_each_control(script):
    assert script.columns_of(["random"], ["own=runs/s", "old=runs/t"], ["blank", "relabel"]) == {
        "random": {"method": "random"},
        "own": {"run": "runs/s"},
        "own-blank": {"run": "runs/s", "control": "blank"},
        "own-relabel": {"run": "runs/s", "relabel": 1},
        "old": {"run": "runs/t"},
        "old-blank": {"run": "runs/t", "control": "blank"},
        "old-relabel": {"run": "runs/t", "relabel": 1},
    }
    for wrong in ("runs/s", "=runs/s", "own="):
        with pytest.raises(ConfigError, match="expected NAME=RUN"):
            script.columns_of([], [wrong], [])
    for given in (["random=runs/s"], ["own=runs/s", "own-blank=runs/t"]):
        with pytest.raises(ConfigError, match="is another column's name"):
            script.columns_of(["random"], given, ["blank"])


def test_a_cell_has_the_spread_of_scores_and_the_error_of_areas(script):
    def result(fresh, exact, area):
        return SimpleNamespace(
            fresh=fresh,
            exact=exact,
            mean_best=area,
            mean_best_exact=None if exact is None else area,
        )

    assert script.cell([result(9, 0.2, 1.0), result(9, 0.4, 3.0)]) == "0.3 ± 0.14 (2 ± 1)"
    assert script.cell([result(9, None, 1.0)]) == "9 ± 0 (1 ± 0)"


def test_what_cannot_be_searched_is_said_in_its_column(script, monkeypatch, tmp_path, capsys):
    words = ["x", str(tmp_path), "--methods", "--searchers", f"own={tmp_path / 'no-run'}"]
    monkeypatch.setattr(sys, "argv", words)
    script.main()
    told = capsys.readouterr().out.splitlines()
    assert "no-run" in told[0] and told[-1] == "| frozen-lake | - |"
    monkeypatch.setattr(sys, "argv", [*words, "--seeds", "0"])
    with pytest.raises(SystemExit):
        script.main()


def test_searches_are_made_once(script, monkeypatch, tmp_path, capsys):
    words = ["x", str(tmp_path), "--tasks", "cart-pole", "--methods", "random", "q-learning"]
    words += ["--seeds", "2", "--first-seed", "3", "--iterations", "4"]
    monkeypatch.setattr(sys, "argv", words)
    script.main()
    row = capsys.readouterr().out.splitlines()[-1]
    assert row.startswith("| cart-pole | ") and row.endswith(" | - |")
    assert sorted(path.name for path in tmp_path.iterdir()) == [
        "cart-pole-random-3", "cart-pole-random-4",
    ]  # fmt: skip
    histories = [path / "history.jsonl" for path in tmp_path.iterdir()]
    before = [(path.stat().st_mtime_ns, path.read_bytes()) for path in histories]
    script.main()
    assert capsys.readouterr().out.splitlines()[-1] == row
    assert [(path.stat().st_mtime_ns, path.read_bytes()) for path in histories] == before
