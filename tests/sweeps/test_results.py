"""The table and the plot of a sweep, against numbers computed by hand."""

from __future__ import annotations

import math

import pytest

from turnwise.sweeps import SweepConfig, compare
from turnwise.sweeps.results import draw_plot


def sweep(**fields):
    grid = {"optimizer.lr": [1e-4, 1e-3], "seed": [0, 1, 2]}
    return SweepConfig(**({"name": "s", "recipe": "frozen-lake", "grid": grid} | fields))


def rows(values, measure="score", **more):
    settings = [cell.settings for cell in sweep().all_cells]
    return [
        {"settings": dict(each), "numbers": {measure: value, **more}}
        for each, value in zip(settings, values, strict=False)
        if value is not None
    ]


def test_seeds_are_repetitions_with_the_standard_error_of_their_mean():
    found = compare(sweep(), rows([0.1, 0.2, 0.3, 0.5, None, 0.9]))
    first, second = found.groups
    assert first.settings == (("optimizer.lr", 1e-4),)
    assert first.mean == pytest.approx(0.2)
    assert first.stderr == pytest.approx(0.1 / math.sqrt(3))
    assert (second.mean, len(second.values)) == (0.7, 2)
    assert second.stderr == pytest.approx(0.2)
    assert found.missing == ("optimizer.lr=0.001 seed=1",)
    assert found.rows[0] == ("0.0001", "3", "0.2", "0.058", "0.1 to 0.3")


def test_one_run_has_the_error_of_its_test():
    found = compare(sweep(), rows([0.1], stderr=0.05))
    assert found.groups[0].stderr == 0.05
    other = compare(sweep(measure="score_sampled"), rows([0.1], "score_sampled", stderr=0.05))
    assert other.groups[0].stderr is None
    given = rows([0.1], "score_sampled", stderr=0.05, score_sampled_stderr=0.02)
    assert compare(sweep(measure="score_sampled"), given).groups[0].stderr == 0.02


def test_a_run_without_the_number_is_named():
    found = compare(sweep(measure="loss"), rows([0.1, 0.2]))
    assert found.unmeasured == ("optimizer.lr=0.0001 seed=0", "optimizer.lr=0.0001 seed=1")
    assert found.groups == ()
    assert "Without the number 'loss': optimizer.lr=0.0001 seed=0" in found.markdown


def test_the_table_is_markdown():
    found = compare(sweep(), rows([0.1, 0.2, 0.3]))
    lines = found.markdown.splitlines()
    assert lines[0] == "| optimizer.lr | runs | score | standard error | range |"
    assert lines[2] == "| 0.0001 | 3 | 0.2 | 0.058 | 0.1 to 0.3 |"


def test_text_of_any_kind_stays_in_its_cell():
    grid = {"agents.player.system": ["a|b\nc", "\x1b[2J"], "seed": [0]}
    config = sweep(grid=grid)
    given = [
        {"settings": dict(cell.settings), "numbers": {"score": 1}} for cell in config.all_cells
    ]
    lines = compare(config, given).markdown.splitlines()
    assert lines[2:] == [r"| a\|b\nc | 1 | 1 |  |  |", r"| \x1b[2J | 1 | 1 |  |  |"]
    said = compare(config, given[:1]).markdown.splitlines()[-1]
    assert said == r"Without a result: agents.player.system=\x1b[2J seed=0."


@pytest.mark.parametrize(
    "grid",
    [
        {"optimizer.lr": [1e-4, 1e-3], "seed": [0, 1]},
        {"optimizer.lr": [1e-4, "auto"], "trainer.group_size": [4, 8]},
        {"seed": [0, 1, 2]},
        {"engine.kind": ["local", "hf"]},
        {"optimizer.betas": [[0.9, 0.9], [0.9, 0.99]], "seed": [0, 1]},
        {"sft_mix": [None, 1], "loss.clip_low": [0.0, 0.2]},
        {"agents.player.system": [r"pay $\foo$ now", "$_$ $^$", "a|b\nc\x00\x1b[2J"], "seed": [0]},
        {"trainer.group_size": [1, 2], "agents.player.system": [r"pay $\foo$ now", "x" * 9_000]},
        {"trainer.iterations": [10**400, 1]},
    ],
)
def test_any_keys_can_be_drawn(tmp_path, grid):
    config = SweepConfig(name="s", recipe="frozen-lake", grid=grid)
    given = [
        {"settings": dict(cell.settings), "numbers": {"score": 0.1 * number}}
        for number, cell in enumerate(config.all_cells)
    ]
    for measured in (given, given[:1], []):
        draw_plot(tmp_path / "plot.png", "s", compare(config, measured))
        assert (tmp_path / "plot.png").read_bytes().startswith(b"\x89PNG")
