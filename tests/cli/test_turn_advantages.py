"""benchmarks/turn_advantages.py: every recorded turn is counted once, with its own advantage."""

from __future__ import annotations

import pytest

from turnwise.runs import Run, episode_file, read_episodes, recorded_iterations

from ..conftest import load_benchmark


@pytest.fixture(scope="module")
def script():
    return load_benchmark("turn_advantages")


def test_every_recorded_turn_is_in_the_table_once(script, smoke_run):
    folder = Run.open(smoke_run).episodes
    iterations = recorded_iterations(folder)
    recorded = [read_episodes(episode_file(folder, number)) for number in iterations]
    turns = [t for r in recorded for e in r.episodes for one in e.trajectories for t in one.turns]
    found = script.advantages(folder, iterations, ["<answer>"])
    assert sum(len(values) for values in found.values()) == len(turns) > 0
    answering = sum(len(values) for (kind, _), values in found.items() if kind == "<answer>")
    assert answering == sum("<answer>" in turn.text for turn in turns)
    marks = [max(s.values(), key=abs) for r in recorded for s in r.advantages.values() if s]
    assert sum(sum(values) for values in found.values()) == pytest.approx(sum(marks))


def test_the_table_is_printed_and_a_run_without_episodes_is_told(
    script, smoke_run, tmp_path, monkeypatch, capsys
):
    monkeypatch.setattr("sys.argv", ["turn_advantages.py", str(smoke_run)])
    script.main()
    head, titles, *rows = capsys.readouterr().out.splitlines()
    assert "recorded" in head and titles.split()[:2] == ["kind", "action"] and rows
    monkeypatch.setattr("sys.argv", ["turn_advantages.py", str(tmp_path)])
    with pytest.raises(SystemExit):
        script.main()
    assert "no training episodes" in capsys.readouterr().err
