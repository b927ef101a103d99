"""How many processes a run gets whose recipe does not say it, and that the run keeps the number."""

import os

import pytest
import torch

from turnwise.app import lifecycle, processes
from turnwise.app.processes import Processes, gains_from_two
from turnwise.errors import ProcessError
from turnwise.recipe.schema import load_recipe
from turnwise.runs import Run


@pytest.fixture(autouse=True)
def quiet(monkeypatch):
    """A machine with memory and without a card, on which nobody has set a number of threads."""
    monkeypatch.setattr(processes, "cores_are_chosen", lambda: False)
    monkeypatch.setattr(processes, "MEMORY", 0)
    monkeypatch.setattr(torch.cuda, "is_available", lambda: False)


@pytest.mark.parametrize("name", ["frozen-lake", "relay"])
def test_long_runs_of_small_models_gain(name):
    assert gains_from_two(load_recipe(name, ["device=cpu"]))


@pytest.mark.parametrize(
    "settings",
    [
        ("preset=smoke",),
        ("threads=1",),
        ("device=cuda",),
        ("policies.main.model=small",),
        ("policies.main.model=some/model",),
        ("policies.main.nano={hidden=512,layers=8}",),
        ("trainer.iterations=1", "warmup.steps=10"),
    ],
)
def test_others_do_not(settings):
    assert not gains_from_two(load_recipe("frozen-lake", settings))


@pytest.mark.parametrize(
    "values",
    [
        {"name": "gymnasium"},
        {"name": "mine.py:Env"},
        {"options": {"reward": ["mine.py:right"]}},
    ],
)
def test_nor_do_worlds_and_code_of_others(values):
    recipe = load_recipe("frozen-lake")
    env = recipe.env.model_copy(update=values)
    assert not gains_from_two(recipe.model_copy(update={"env": env}))


def test_nor_where_threads_were_set(monkeypatch):
    monkeypatch.setattr(processes, "cores_are_chosen", lambda: True)
    assert not gains_from_two(load_recipe("frozen-lake"))


def test_nor_where_memory_is_short(monkeypatch):
    monkeypatch.setattr(processes, "MEMORY", 1 << 60)
    assert not gains_from_two(load_recipe("frozen-lake"))


def test_nor_beside_a_card(monkeypatch):
    monkeypatch.setattr(torch.cuda, "is_available", lambda: True)
    assert not gains_from_two(load_recipe("frozen-lake"))


class Started:
    """Stands in for a `Launcher`."""

    def __init__(self, module, size, cure):
        self.size = size

    def close(self, *, finished):
        """End nothing."""


def chosen(tmp_path, monkeypatch, *settings, launcher=Started, free=True, resumed=False):
    """Return the number of a run's processes, the number in its recipe, and what was said."""
    monkeypatch.setattr(processes, "Launcher", launcher)
    monkeypatch.setattr(processes, "second_core_is_free", lambda: free)
    recipe, said = load_recipe("frozen-lake", settings), []
    folder = Run.create(tmp_path, "lake", recipe.to_toml(), tmp_path / "run")
    with Processes(recipe, folder, resumed=resumed, cure=str, note=said.append) as started:
        now = started.recipe.processes
    return now, load_recipe(str(folder.recipe)).processes, said


def test_a_free_core_gets_a_process_and_the_run_keeps_it(tmp_path, monkeypatch):
    now, kept, said = chosen(tmp_path, monkeypatch)
    assert (now, kept) == (2, 2)
    assert said == ["processes = 2, as a second core is free; `--set processes=1` leaves it free"]


def refused(module, size, cure):
    """Fail as a `Launcher` does where there is no loopback."""
    raise ProcessError("no loopback")


@pytest.mark.parametrize(
    ("settings", "options"),
    [
        ((), {"free": False}),
        ((), {"resumed": True}),
        ((), {"launcher": refused}),
        (("preset=smoke",), {}),
    ],
)
def test_otherwise_there_is_one_and_nothing_is_kept(tmp_path, monkeypatch, settings, options):
    assert chosen(tmp_path, monkeypatch, *settings, **options) == (None, None, [])


def test_a_number_in_the_recipe_is_not_changed(tmp_path, monkeypatch):
    assert chosen(tmp_path, monkeypatch, "processes=1") == (1, 1, [])
    with pytest.raises(ProcessError, match="no loopback"):
        chosen(tmp_path / "two", monkeypatch, "processes=2", launcher=refused)


@pytest.mark.slow
def test_a_run_gets_its_second_process_and_goes_on_with_it(tmp_path, monkeypatch):
    monkeypatch.setattr(processes, "LONG", 0)
    monkeypatch.setattr(processes, "second_core_is_free", lambda: True)
    recipe = load_recipe("frozen-lake", ["preset=smoke", "device=cpu"])
    run = tmp_path / "run"
    lifecycle.train(recipe, run=run)
    assert load_recipe(str(run / "recipe.toml")).processes == 2
    assert "mem/peak_mb_process_2" in (run / "metrics.jsonl").read_text()
    assert lifecycle.resume(run, ["trainer.iterations=3"]).finished
    assert os.path.getsize(run / "report.md")


def test_a_process_is_not_left_behind_if_its_number_cannot_be_kept(tmp_path, monkeypatch):
    closed = []

    class Closing(Started):
        def close(self, *, finished):
            closed.append(finished)

    def full(*_):
        raise OSError(28, "No space left on device")

    monkeypatch.setattr(Run, "keep_setting", full)
    with pytest.raises(OSError, match="No space"):
        chosen(tmp_path, monkeypatch, launcher=Closing)
    assert closed == [False]
