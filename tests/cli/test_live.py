"""What a person sees of a run where there is no terminal: lines of curve and facts."""

from __future__ import annotations

import io

from rich.console import Console

from turnwise.cli.live import LiveProgress


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


def test_a_curve_that_never_moved_is_flat():
    assert "  ▁▁  score 0.00" in said("training", step(0.0, 0.2), step(0.0, 0.2))


def test_a_phase_without_a_curve_says_its_facts():
    assert said("evaluation", {"test/score": 0.5}) == "evaluation 1/1    test score 0.50"
