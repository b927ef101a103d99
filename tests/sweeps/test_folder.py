"""The folder of a sweep: whose it is, which recipe it keeps, and what is said of damage."""

from __future__ import annotations

import json
import shutil
import tomllib
from importlib import resources

import pytest

from turnwise.errors import RunError
from turnwise.runs.files import locked
from turnwise.sweeps import run_sweep


@pytest.fixture
def own(tmp_path):
    """A recipe file to edit: `own(old, new)` replaces text of it, and returns its name."""
    file = tmp_path / "own.toml"
    file.write_text((resources.files("turnwise") / "recipes" / "frozen-lake.toml").read_text())

    def edit(old="", new=""):
        assert old in file.read_text()
        file.write_text(file.read_text().replace(old, new, 1))
        return str(file)

    return edit


def test_an_edited_recipe_is_refused_with_the_keys_that_differ(tmp_path, starts, sweep_of, own):
    sweep = sweep_of(lr=[1e-3], recipe=own())
    run_sweep(sweep, tmp_path / "s", workers=2)
    own("[env]", "# a comment\n[env]")
    run_sweep(sweep_of(lr=[1e-3], seed=[0, 1, 2], recipe=own()), tmp_path / "s", workers=2)
    assert len(starts()) == 3
    own('name = "frozen-lake"', 'seed = 3\nname = "frozen-lake"')
    before = (tmp_path / "s" / "sweep.json").read_text()
    with pytest.raises(RunError, match=r"own.toml' is not the one .* differs in seed: change it"):
        run_sweep(sweep_of(lr=[1e-3], seed=[0, 1, 2, 3], recipe=own()), tmp_path / "s")
    assert (tmp_path / "s" / "sweep.json").read_text() == before
    with pytest.raises(RunError, match=r"'relay' is not the one .* and \d+ more"):
        run_sweep(sweep_of(lr=[1e-3], recipe="relay"), tmp_path / "s")
    assert len(starts()) == 3


def test_a_recipe_may_be_mended_while_no_run_has_begun(tmp_path, starts, sweep_of, own):
    cell = tmp_path / "modules" / "fast_cell.py"
    code = cell.read_text()
    cell.write_text("import sys; print('error: no reward'); sys.exit(2)")
    assert run_sweep(sweep_of(lr=[1e-3], recipe=own()), tmp_path / "s").failed
    cell.write_text(code)
    own('name = "frozen-lake"', 'seed = 3\nname = "frozen-lake"')
    assert not run_sweep(sweep_of(lr=[1e-3], recipe=own()), tmp_path / "s").failed
    assert "seed = 3" in (tmp_path / "s" / "base.toml").read_text()


def test_a_section_without_values_is_a_change(tmp_path, starts, sweep_of, own):
    run_sweep(sweep_of(lr=[1e-3], seed=[0], recipe=own()), tmp_path / "s")
    own("[env]", "[loss]\n\n[env]")
    with pytest.raises(RunError, match="differs in loss: "):
        run_sweep(sweep_of(lr=[1e-3], seed=[0], recipe=own()), tmp_path / "s")


def test_presets_may_be_added_and_not_changed(tmp_path, starts, sweep_of, own):
    run_sweep(sweep_of(lr=[1e-3], seed=[0], recipe=own()), tmp_path / "s")
    own("[env]", "[presets.large]\ntrainer.iterations = 9\n\n[env]")
    more = [{"preset": "large"}]
    run_sweep(sweep_of(lr=[1e-3], seed=[0], cells=more, recipe=own()), tmp_path / "s")
    own("trainer.iterations = 9", "trainer.iterations = 8")
    with pytest.raises(RunError, match=r"differs in presets.large.trainer.iterations: "):
        run_sweep(sweep_of(lr=[1e-3], seed=[0], cells=more, recipe=own()), tmp_path / "s")


def test_cells_train_the_copy_of_the_recipe(tmp_path, starts, sweep_of, own):
    """An edit while the sweep runs changes nothing."""
    cell = tmp_path / "modules" / "fast_cell.py"
    read = 'open(os.environ["STARTS"] + ".read", "a").write(rest[0] + "\\n")\n'
    cell.write_text(cell.read_text() + read)
    run_sweep(sweep_of(lr=[1e-3], recipe=own()), tmp_path / "s", workers=1)
    base = tmp_path / "s" / "base.toml"
    assert (tmp_path / "starts.read").read_text().splitlines() == 2 * [str(base)]
    assert tomllib.loads(base.read_text()) == tomllib.loads((tmp_path / "own.toml").read_text())


@pytest.mark.parametrize("damage", [None, "name = ", b"\xff"])
def test_a_lost_copy_of_the_recipe_is_told(tmp_path, starts, sweep_of, damage):
    run_sweep(sweep_of(lr=[1e-3], seed=[0]), tmp_path / "s")
    base = tmp_path / "s" / "base.toml"
    base.unlink()
    if damage is not None:
        base.write_bytes(damage if isinstance(damage, bytes) else damage.encode())
    says = "is missing" if damage is None else "is damaged"
    with pytest.raises(RunError, match=rf"base.toml' {says}.*: restore it, or choose another"):
        run_sweep(sweep_of(lr=[1e-3], seed=[0]), tmp_path / "s")


def test_a_sweep_of_a_busy_folder_changes_nothing(tmp_path, starts, sweep_of):
    run_sweep(sweep_of(lr=[1.0], seed=[0]), tmp_path / "s")
    before = (tmp_path / "s" / "sweep.json").read_text()
    with (
        locked(tmp_path / "s" / "sweep.lock", "it", "wait"),
        pytest.raises(RunError, match="in use by process"),
    ):
        run_sweep(sweep_of(lr=[1.0], seed=[0, 1]), tmp_path / "s")
    assert (tmp_path / "s" / "sweep.json").read_text() == before


def test_a_folder_that_was_killed_at_its_start_is_taken(tmp_path, starts, sweep_of):
    (tmp_path / "s").mkdir()
    (tmp_path / "s" / "sweep.lock").touch()
    (tmp_path / "s" / "base.toml").write_text("old = 1")
    assert not run_sweep(sweep_of(lr=[1.0], seed=[0]), tmp_path / "s").failed


def test_inf_is_a_setting_like_others(tmp_path, starts):
    from turnwise.sweeps import SweepConfig

    grid = {"optimizer.max_grad_norm": [1.0, float("inf")]}
    sweep = SweepConfig(
        name="s", recipe="frozen-lake", grid=grid, settings={"env.options.slippery": True}
    )
    for _ in range(2):
        assert not run_sweep(sweep, tmp_path / "s", workers=2).compared.missing
    assert len(starts()) == 2


def _replace_by_folder(path):
    if path.is_dir():
        shutil.rmtree(path)
        path.touch()
    else:
        path.unlink(missing_ok=True)
        path.mkdir()


@pytest.mark.parametrize(
    ("line", "says"),
    [
        ('{"a": 1}', "line 2 is not the result of a cell.*restore it, or remove the line"),
        ('{"settings": [1], "numbers": {}}', "line 2 is not the result"),
        ('{"settings": {"seed": 9}, "numbers": null}', "line 2 is not the result"),
        ('{"settings": {"seed": 9}, "numbers": {"score": "x"}}', "line 2 is not the result"),
        ('{"settings": {"seed": 9}, "numbers": {"score": NaN}}', "line 2 is not the result"),
        ('{"settings": {"seed": 9}, "numbers": {"score": true}}', "line 2 is not the result"),
        (
            '{"settings": {"seed": 0, "optimizer.lr": 1.0}, "numbers": {"score": 99}}',
            "lines 1 and 2 are results of the same cell: remove one",
        ),
    ],
)
def test_a_damaged_result_is_told(tmp_path, starts, sweep_of, line, says):
    sweep = sweep_of(lr=[1.0], seed=[0])
    run_sweep(sweep, tmp_path / "s")
    with (tmp_path / "s" / "results.jsonl").open("a") as file:
        file.write(line + "\n")
    with pytest.raises(RunError, match=says):
        run_sweep(sweep, tmp_path / "s")


@pytest.mark.parametrize("name", ["results.jsonl", "sweep.lock", "cells", "base.toml"])
def test_a_folder_in_place_of_a_file_is_told_before_anything_is_trained(
    tmp_path, starts, sweep_of, name
):
    run_sweep(sweep_of(lr=[1.0], seed=[0]), tmp_path / "s")
    _replace_by_folder(tmp_path / "s" / name)
    with pytest.raises(RunError, match=rf"{name}': .*: choose another folder"):
        run_sweep(sweep_of(lr=[1.0], seed=[0, 1]), tmp_path / "s")
    assert len(starts()) == 1


@pytest.mark.parametrize("text", ["[]", "{}", '{"settings": 1}'])
def test_a_damaged_description_is_told(tmp_path, starts, sweep_of, text):
    run_sweep(sweep_of(lr=[1.0], seed=[0]), tmp_path / "s")
    (tmp_path / "s" / "sweep.json").write_text(text)
    with pytest.raises(RunError, match="sweep.json' is damaged: choose another folder"):
        run_sweep(sweep_of(lr=[1.0], seed=[0]), tmp_path / "s")


def test_a_file_in_place_of_the_folder_is_told(tmp_path, starts, sweep_of):
    (tmp_path / "s").touch()
    with pytest.raises(RunError, match="is a file: choose a folder that is new or empty"):
        run_sweep(sweep_of(lr=[1.0], seed=[0]), tmp_path / "s")


def test_the_description_is_json(tmp_path, starts, sweep_of):
    run_sweep(sweep_of(lr=[1.0], seed=[0]), tmp_path / "s")
    about = json.loads((tmp_path / "s" / "sweep.json").read_text())
    assert about["grid"] == {"optimizer.lr": [1.0], "seed": [0]}
