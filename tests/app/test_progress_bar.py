"""The progress of a run without a terminal: lines with a curve and values."""

from __future__ import annotations

import io
import os
import re
import time

import pytest
from rich.console import Console

from turnwise.app.progress_bar import LiveProgress, watching
from turnwise.trainers import Silent
from turnwise.utils.console import LastingConsole


def said(phase, *steps):
    """Return the last line that is written after `steps` of a phase."""
    file = io.StringIO()
    live = LiveProgress(Console(file=file, width=200))
    with live:
        live.begin(phase, done=0, total=len(steps))
        for number, metrics in enumerate(steps, 1):
            live.advance(number, metrics)
    return file.getvalue().splitlines()[-1]


def step(score, gain):
    return {"rollout/score": score, "credit/return_mean": gain}


def test_the_score_is_drawn_once_it_moves():
    line = said("training", step(0.0, 0.5), step(0.5, 0.5), step(1.0, 0.5))
    assert line == "training 3/3  ▁▅█  score 1.00  return 0.50"


def test_returns_are_drawn_where_the_score_stays():
    assert "  ▁▅█  score 0.00" in said("training", step(0.0, 0.0), step(0.0, 0.5), step(0.0, 1.0))


def test_how_close_hindsight_came_is_drawn_where_the_score_stays():
    steps = [{"rollout/score": 0.0, "hindsight/closest": value} for value in (0.0, 0.5, 1.0)]
    assert said("training", *steps) == "training 3/3  ▁▅█  score 0.00  closest 1.00"


def test_a_curve_that_never_moved_is_flat():
    assert "  ▁▁  score 0.00" in said("training", step(0.0, 0.2), step(0.0, 0.2))


def test_a_phase_without_a_curve_says_its_facts():
    assert said("evaluation", {"test/score": 0.5}) == "evaluation 1/1  test score 0.50"


def test_a_run_that_the_time_ends_shows_the_share_of_it():
    file = io.StringIO()
    with LiveProgress(Console(file=file, width=200)) as live:
        live.begin("training", done=0, total=2000)
        for number in range(1, 50):
            live.advance(number, step(0.5, 0.5) | {"time/share": 0.25 + number / 100})
        live.advance(50, step(0.5, 0.5) | {"time/share": 1.0})
        live.begin("evaluation", done=0, total=1)
        live.advance(1, {"test/score": 0.5})
    first, *_, last, tested = file.getvalue().splitlines()
    assert first.startswith("training 1, 26% of the time  ")
    assert last.startswith("training 50, 100% of the time  ")
    assert tested.startswith("evaluation 1/1")


def test_iterations_that_end_before_the_time_are_counted():
    line = said("training", *[step(0.5, 0.5) | {"time/share": share} for share in (0.3, 0.6)])
    assert line.startswith("training 2/2  ")


def test_a_terminal_shows_the_time_that_is_left(monkeypatch):
    clock = iter(range(1000))
    monkeypatch.setattr("turnwise.app.progress_bar.time.monotonic", lambda: 10.0 * next(clock))
    file = io.StringIO()
    console = Console(file=file, width=90, force_terminal=True, color_system=None)
    with LiveProgress(console) as live:
        live.begin("training", done=0, total=2000)
        for number in range(1, 9):
            live.advance(number, step(0.5, 0.5) | {"time/share": 0.5 + number / 20})
    lines = [re.sub(r"\x1b\[[0-9;?]*[A-Za-z]|\r", "", line) for line in file.getvalue().split("\n")]
    *_, bar, _ = [line for line in lines if line.strip()]
    assert bar.count("━") == 20 and "8, 90% of the time" in bar
    minutes, seconds = map(int, re.search(r"<(\d+):(\d+)", bar).groups())
    assert 60 * minutes + seconds < 120  # of 2,000 iterations it would be hours


@pytest.mark.parametrize("width", [40, 60, 80, 120])
def test_a_terminal_keeps_phase_bar_and_failed_replies(width):
    file = io.StringIO()
    console = Console(file=file, width=width, force_terminal=True, color_system=None)
    with LiveProgress(console) as live:
        live.begin("training", done=0, total=1250)
        for number in range(1, 200):
            live.advance(number, step(number / 200, 0.5) | {"reward/invalid": 0.12})
        live.note("a note")
    lines = [re.sub(r"\x1b\[[0-9;?]*[A-Za-z]|\r", "", line) for line in file.getvalue().split("\n")]
    assert max(map(len, lines)) <= width
    *_, bar, facts = [line for line in lines if line.strip() and "note" not in line]
    assert "training ━" in bar and "199/1250" in bar
    assert "score 0.9" in facts
    if width >= 60:
        assert "failed replies 12%" in facts


def test_a_terminal_wraps_notes_at_words_and_keeps_paths_whole():
    file = io.StringIO()
    console = Console(file=file, width=80, force_terminal=True, color_system=None)
    path = "/tmp/" + "x" * 90
    with LiveProgress(console) as live:
        live.note("warning: " + "something remarkable " * 12)
        live.note(f"report: {path}")
    lines = re.sub(r"\x1b\[[0-9;?]*[A-Za-z]|\r", "", file.getvalue()).split("\n")
    words = {word for line in lines for word in line.split()}
    assert words == {"warning:", "something", "remarkable", "report:", path}
    assert all(len(line) <= 80 for line in lines if path not in line)


def test_a_note_holds_no_marks_of_bold_text():
    file = io.StringIO()
    with LiveProgress(Console(file=file, width=20)) as live:
        live.note("warning: **60% of 2**31 episodes failed.** Run `turnwise check` and more.")
        live.note("2 ** 3 and 4 ** 5")
    assert file.getvalue().splitlines()[-1] == "2 ** 3 and 4 ** 5"
    assert "Run `turnwise check` and more." in file.getvalue()


def test_the_share_of_a_warm_up_is_named_by_what_it_counts():
    assert "perception 0.50" in said("warm-up", {"warmup/perception": 0.5})
    line = said("warm-up", {"warmup/readable": 0.5})
    assert "readable replies 0.50" in line and "perception" not in line


def test_a_notebook_gets_one_line_that_is_rewritten():
    file = io.StringIO()
    with LiveProgress(Console(file=file, width=100), "rewritten") as live:
        live.begin("training", done=0, total=2)
        live.advance(1, step(0.25, 0.5))
        live.advance(2, step(0.75, 0.5))
        live.note("the end")
    line, end = file.getvalue().rstrip("\n").split("\n")
    assert line.split("\r")[-1].startswith("training 2/2")
    assert end == "the end"


def test_lines_are_no_flood():
    file = io.StringIO()
    with LiveProgress(Console(file=file, width=100)) as live:
        live.begin("training", done=0, total=1000)
        for number in range(1, 501):
            live.advance(number, step(0.5, 0.5))
    assert len(file.getvalue().splitlines()) < 20


def test_progress_is_shown_by_default_and_can_be_silenced(capsys):
    for given, shown in ((None, True), (True, True), (False, False), (Silent(), False)):
        with watching(given) as watcher:
            watcher.begin("training", done=0, total=1)
            watcher.advance(1, step(0.5, 0.5))
        assert ("training 1/1" in capsys.readouterr().err) == shown


def test_the_time_that_is_left_is_counted_down_between_two_steps(monkeypatch):
    now = [100.0]
    monkeypatch.setattr(time, "monotonic", lambda: now[0])
    file = io.StringIO()
    console = Console(file=file, width=80, force_terminal=True, color_system=None)
    live = LiveProgress(console)
    live.begin("warm-up", done=0, total=100)
    now[0] = 110.0
    live.advance(25, {})
    shown = []
    for now[0] in (110.0, 120.0, 139.0, 200.0):
        console.print(live._drawing())
        shown.append(file.getvalue().splitlines()[-1].partition("<")[2].strip())
    assert shown == ["0:30", "0:20", "0:01", "0:00"]


def test_a_display_whose_reader_has_ended_goes_on_in_silence():
    heard, said = os.pipe()
    os.close(heard)
    with os.fdopen(said, "w") as file, LiveProgress(LastingConsole(file=file)) as live:
        live.begin("training", done=0, total=2)
        live.advance(2, step(0.5, 0.5))
        live.note("a note")
