"""Running a sweep: each cell once, whatever interrupts it, and what is told of failures."""

from __future__ import annotations

import json
import os
import signal
import subprocess
import sys
import threading
import time

import pytest

from turnwise.errors import ConfigError, Interrupted, RunError
from turnwise.parallel.cores import usable_cores
from turnwise.runs.files import locked
from turnwise.sweeps import run_sweep, running
from turnwise.trainers import Silent


class Watcher(Silent):
    def __init__(self):
        self.notes, self.steps = [], []

    def begin(self, phase, *, done, total):
        self.steps.append((phase, done, total))

    def advance(self, done, metrics):
        self.steps.append((done, dict(metrics)))

    def note(self, text):
        self.notes.append(text)


def test_every_cell_is_trained_once_with_its_settings(tmp_path, starts, sweep_of):
    seen = Watcher()
    sweep = sweep_of(settings={"preset": "fast"})
    found = run_sweep(sweep, tmp_path / "s", workers=2, progress=seen)
    begun = starts()
    sets = [each[2] for each in begun]
    assert len(begun) == 4
    assert {(s["optimizer.lr"], s["seed"]) for s in sets} == {
        ("0.0001", "0"), ("0.0001", "1"), ("0.001", "0"), ("0.001", "1")
    }  # fmt: skip
    assert all(s["preset"] == '"fast"' and s["processes"] == "1" for s in sets)
    threads = max(1, int(usable_cores()) // 2)
    assert {each[3] for each in begun} == {str(threads)}
    assert [group.mean for group in found.compared.groups] == pytest.approx([0.5001, 0.501])
    assert not found.failed
    assert seen.steps[0] == ("sweep", 0, 4)
    assert seen.steps[-1][0] == 4
    assert {path.name for path in (tmp_path / "s").iterdir()} >= {
        "sweep.json", "results.jsonl", "table.md", "plot.png", "cells"
    }  # fmt: skip
    assert (tmp_path / "s" / "plot.png").read_bytes().startswith(b"\x89PNG")


def test_one_worker_leaves_threads_and_processes_to_the_recipe(tmp_path, starts, sweep_of):
    run_sweep(sweep_of(lr=[1e-3]), tmp_path / "s", workers=1)
    assert all("processes" not in sets and threads is None for _, _, sets, threads in starts())
    own = sweep_of(lr=[1e-3], settings={"processes": 2})
    run_sweep(own, tmp_path / "t", workers=2)
    assert [sets["processes"] for _, _, sets, _ in starts()[2:]] == ["2", "2"]


def test_finished_cells_are_not_trained_again_and_a_grid_may_grow(tmp_path, starts, sweep_of):
    run_sweep(sweep_of(), tmp_path / "s", workers=4)
    results = tmp_path / "s" / "results.jsonl"
    lines = results.read_text()
    seen = Watcher()
    more = run_sweep(sweep_of(lr=[1e-4, 1e-3, 1e-2]), tmp_path / "s", workers=4, progress=seen)
    assert seen.steps[0] == ("sweep", 4, 6)
    assert len(starts()) == 6
    assert results.read_text().startswith(lines)
    assert [len(group.values) for group in more.compared.groups] == [2, 2, 2]
    results.write_text(results.read_text()[:-20])  # killed while the last line was written
    run_sweep(sweep_of(lr=[1e-4, 1e-3, 1e-2]), tmp_path / "s", workers=4)
    assert [each[0] for each in starts()] == 6 * ["train"] + ["resume"]


def test_a_failed_cell_is_told_and_tried_again(tmp_path, starts, sweep_of):
    seen = Watcher()
    sweep = sweep_of(lr=[1e-3], seed=[13, 14, 1])
    found = run_sweep(sweep, tmp_path / "s", workers=1, progress=seen)
    assert set(found.failed) == {"optimizer.lr=0.001 seed=13", "optimizer.lr=0.001 seed=14"}
    assert found.failed["optimizer.lr=0.001 seed=13"].startswith("unlucky [number] (all of it: ")
    assert "signal 9" in found.failed["optimizer.lr=0.001 seed=14"]
    assert [group.values for group in found.compared.groups] == [(1.001,)]
    assert found.compared.missing == ("optimizer.lr=0.001 seed=13", "optimizer.lr=0.001 seed=14")
    assert "Without a result: optimizer.lr=0.001 seed=13" in (tmp_path / "s/table.md").read_text()
    (tmp_path / "starts.mended").touch()
    again = run_sweep(sweep, tmp_path / "s", workers=1)
    assert set(again.failed) == {"optimizer.lr=0.001 seed=14"}
    assert [each[0] for each in starts()[3:]] == ["resume", "resume"]


@pytest.mark.parametrize("seed", [15, 16])
def test_a_cell_that_ends_without_an_error_is_no_result(tmp_path, starts, sweep_of, seed):
    """A reward that calls sys.exit(0), in its first call or later."""
    sweep = sweep_of(lr=[1e-3], seed=[seed, 0])
    for _ in range(2):
        found = run_sweep(sweep, tmp_path / "s", workers=1)
        (why,) = found.failed.values()
        assert "before its run was finished" in why
        assert [group.values for group in found.compared.groups] == [(0.001,)]
    again = "resume" if seed == 15 else "train"
    assert [each[0] for each in starts()] == ["train", "train", again]


def test_a_cell_with_damaged_scores_fails_alone(tmp_path, starts, sweep_of):
    found = run_sweep(sweep_of(lr=[1e-3], seed=[19, 0]), tmp_path / "s", workers=1)
    assert "eval.json' is damaged: delete the run" in found.failed["optimizer.lr=0.001 seed=19"]
    assert [group.values for group in found.compared.groups] == [(0.001,)]


def test_a_cell_that_cannot_be_started_fails_alone(tmp_path, starts, sweep_of, monkeypatch):
    sweep = sweep_of(lr=[1e-3], seed=[1, 2, 3, 4])
    names = [cell.name for cell in sweep.all_cells]
    run_sweep(sweep_of(lr=[1e-3], seed=[4]), tmp_path / "s", workers=1)
    cells = tmp_path / "s" / "cells"
    (cells / names[0]).touch()
    (cells / names[1]).mkdir()
    (cells / names[1] / "notes").touch()
    (cells / f"{names[2]}.log").mkdir()
    seen = Watcher()
    found = run_sweep(sweep, tmp_path / "s", workers=1, progress=seen)
    first, second, third = found.failed.values()
    assert first.endswith(f"{names[0]}' is in the way, and is no run that can go on: delete it")
    assert "is in the way" in second
    assert "a folder where a file is expected" in third
    assert [group.values for group in found.compared.groups] == [(4.001,)]
    assert len([note for note in seen.notes if " failed: " in note]) == 3
    many = sweep_of(lr=[1e-3], seed=[0], settings={"agents.player.system": "x" * 200_000})
    (why,) = run_sweep(many, tmp_path / "t", workers=1).failed.values()
    assert "its process cannot be started (Argument list too long)" in why


def test_a_failure_has_the_reason_of_its_last_attempt(tmp_path, starts, sweep_of):
    whys = []
    for _ in range(2):
        found = run_sweep(sweep_of(lr=[1e-3], seed=[17, 18]), tmp_path / "s", workers=1)
        whys.append([why.partition(" (all of it")[0] for why in found.failed.values()])
    assert whys == [
        ["a first reason", "its process ended with exit code 4"],
        ["oops", "its process ended with exit code 4"],
    ]


def test_a_plot_that_cannot_be_drawn_costs_nothing_else(tmp_path, starts, sweep_of):
    sweep = sweep_of(lr=[1e-3], seed=[0])
    run_sweep(sweep, tmp_path / "s", workers=1)
    (tmp_path / "s" / "plot.png").unlink()
    (tmp_path / "s" / "plot.png").mkdir()
    (tmp_path / "s" / "table.md").unlink()
    seen = Watcher()
    found = run_sweep(sweep, tmp_path / "s", workers=1, progress=seen)
    assert found.compared.groups and (tmp_path / "s" / "table.md").is_file()
    (note,) = seen.notes
    assert note.startswith("warning: the plot cannot be drawn (") and "see table.md" in note


def test_numbers_that_no_axis_holds_cost_the_plot_alone(tmp_path, starts, sweep_of):
    sweep = sweep_of(lr=[1e-3], seed=[0, 1])
    run_sweep(sweep, tmp_path / "s", workers=2)
    rows = [
        {"settings": {"optimizer.lr": 1e-3, "seed": seed}, "numbers": {"score": value}}
        for seed, value in enumerate((1e308, -1e308))
    ]
    (tmp_path / "s" / "results.jsonl").write_text("".join(json.dumps(r) + "\n" for r in rows))
    seen = Watcher()
    run_sweep(sweep, tmp_path / "s", progress=seen)
    assert "-1e+308 to 1e+308" in (tmp_path / "s" / "table.md").read_text()
    assert not (tmp_path / "s" / "plot.png").exists()
    assert "the plot cannot be drawn" in seen.notes[0]


def test_signals_have_names(tmp_path):
    said = [running._why(tmp_path / "log", 0, -number) for number in (6, 40)]
    assert said[0].startswith("ended by signal 6 (Aborted")
    assert said[1].startswith("ended by signal 40 (")


def test_a_signal_stops_the_cells_and_the_same_call_goes_on(tmp_path, starts, sweep_of):
    sweep = sweep_of(lr=[1e-3], seed=[99, 0, 1])

    def stop():
        while not (tmp_path / "starts.waits").exists():
            time.sleep(0.02)
        os.kill(os.getpid(), signal.SIGTERM)

    thread = threading.Thread(target=stop)
    thread.start()
    with pytest.raises(Interrupted, match="SIGTERM: the same command goes on"):
        run_sweep(sweep, tmp_path / "s", workers=1)
    thread.join()
    assert [each[0] for each in starts()] == ["train"], "no other cell was begun"
    found = run_sweep(sweep, tmp_path / "s", workers=1)
    assert [each[0] for each in starts()] == ["train", "resume", "train", "train"]
    assert len(found.compared.groups[0].values) == 3


DRIVER = """
import sys
from pathlib import Path
from turnwise.sweeps import SweepConfig, run_sweep, running

running.MODULE = "fast_cell"
grid = {"optimizer.lr": [1e-3], "seed": [99, 0]}
run_sweep(SweepConfig(name="s", recipe="frozen-lake", grid=grid), Path(sys.argv[1]), workers=1)
"""


@pytest.mark.skipif(sys.platform != "linux", reason="elsewhere cells outlive a killed sweep")
def test_a_killed_sweep_leaves_no_cell_behind(tmp_path, starts, sweep_of):
    """Its run would be locked."""
    cell = (tmp_path / "modules" / "fast_cell.py").read_text()
    ending = "import signal, sys\nfrom turnwise.utils.parents import end_with\n"
    ending += "end_with(int(sys.argv[1]), signal.SIGTERM)\n"
    gone = cell.replace("sys.exit(130)", 'open(os.environ["STARTS"] + ".gone", "w"); sys.exit(130)')
    (tmp_path / "modules" / "fast_cell.py").write_text(ending + gone)
    process = subprocess.Popen([sys.executable, "-c", DRIVER, str(tmp_path / "s")])
    deadline = time.monotonic() + 60
    while not (tmp_path / "starts.waits").exists():
        assert process.poll() is None and time.monotonic() < deadline
        time.sleep(0.02)
    process.kill()
    process.wait()
    while not (tmp_path / "starts.gone").exists():
        assert time.monotonic() < deadline
        time.sleep(0.02)
    found = run_sweep(sweep_of(lr=[1e-3], seed=[99, 0]), tmp_path / "s", workers=1)
    assert [each[0] for each in starts()] == ["train", "resume", "train"]
    assert not found.compared.missing


def test_all_recipes_are_checked_before_anything_is_trained(tmp_path, starts, sweep_of):
    with pytest.raises(ConfigError, match=r"^optimizer.lr=-1 seed=0: "):
        run_sweep(sweep_of(lr=[1e-3, -1]), tmp_path / "s")
    assert not (tmp_path / "s").exists()
    assert starts() == []


def test_a_folder_of_something_else_is_refused(tmp_path, starts, sweep_of):
    (tmp_path / "full").mkdir()
    (tmp_path / "full" / "notes").touch()
    with pytest.raises(RunError, match="not empty"):
        run_sweep(sweep_of(), tmp_path / "full")
    run_sweep(sweep_of(lr=[1.0], seed=[0], settings={"preset": "fast"}), tmp_path / "s")
    with pytest.raises(RunError, match=r"another sweep: its settings are .*'fast'.* not \{\}"):
        run_sweep(sweep_of(lr=[1.0], seed=[0]), tmp_path / "s")
    (tmp_path / "s" / "sweep.json").write_text("{")
    with pytest.raises(RunError, match="damaged"):
        run_sweep(sweep_of(lr=[1.0], seed=[0]), tmp_path / "s")


def test_two_sweeps_do_not_share_a_folder(tmp_path, starts, sweep_of):
    run_sweep(sweep_of(lr=[1.0], seed=[0]), tmp_path / "s")
    with (
        locked(tmp_path / "s" / "sweep.lock", "it", "wait"),
        pytest.raises(RunError, match=rf"in use by process {os.getpid()}: wait"),
    ):
        run_sweep(sweep_of(lr=[1.0], seed=[0]), tmp_path / "s")


def test_one_cell_at_a_time_where_a_model_is_on_a_card(monkeypatch, sweep_of):
    import torch

    sweep = sweep_of()
    recipes = [sweep.load(cell) for cell in sweep.all_cells]
    assert running._fitting(recipes) == max(1, int(usable_cores()))
    monkeypatch.setattr(torch.cuda, "is_available", lambda: True)
    assert running._fitting(recipes) == 1
    on_cpu = sweep_of(settings={"device": "cpu"})
    assert running._fitting([on_cpu.load(cell) for cell in on_cpu.all_cells]) == max(
        1, int(usable_cores())
    )


def test_results_hold_the_numbers_of_a_run(tmp_path, starts, sweep_of):
    run_sweep(sweep_of(lr=[0.5], seed=[2]), tmp_path / "s")
    (row,) = [json.loads(x) for x in (tmp_path / "s" / "results.jsonl").read_text().splitlines()]
    assert row["settings"] == {"optimizer.lr": 0.5, "seed": 2}
    assert (tmp_path / "s" / row["run"] / "eval.json").is_file()
    assert row["numbers"] == {
        "step": 2, "total/episodes": 20, "score": 2.5, "stderr": 0.25, "baselines.random": 0.5
    }  # fmt: skip
