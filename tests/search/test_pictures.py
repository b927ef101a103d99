"""The report of a search and its pictures, for every task that can be played here."""

from __future__ import annotations

import os
import sys
from types import ModuleType, SimpleNamespace

import numpy as np
import pytest
from gymnasium.envs.classic_control import CartPoleEnv
from PIL import Image

from turnwise.app.search import search_policy
from turnwise.errors import MissingDependencyError
from turnwise.report.search import FILM, POLICIES, REPORT, SCORES, TRIES, write_search_report
from turnwise.report.search_pictures import PANELS, chosen_leaders
from turnwise.search.config import SearchConfig
from turnwise.search.history import HISTORY, History, Try
from turnwise.search.tasks import TASKS
from turnwise.settings import parse

FILMED = ("frozen-lake", "cart-pole", "mountain-car")


def searched(task, folder, method="hill-climbing"):
    budget = {"iterations": 4, "episodes": 1, "warmup": 0, "recheck": 3, "best": 1, "fresh": 2}
    data = {"task": task, "method": method, "budget": budget}
    return search_policy(parse(SearchConfig, data, "the search"), folder)


@pytest.mark.parametrize("task", list(TASKS))
def test_every_task_has_its_pictures(task, tmp_path, monkeypatch):
    if TASKS[task].extra:
        pytest.importorskip("mujoco")
        monkeypatch.setattr("turnwise.report.search.film_episode", lambda *a: "no screen here")
    found = searched(task, tmp_path / "a")
    for name in (SCORES, POLICIES, TRIES):
        with Image.open(found.folder / name) as picture:
            assert min(picture.size) > 200
    text = (found.folder / REPORT).read_text()
    assert "published: ProPS, GPT-4o" in text
    assert ("own rules, does not compare" in text) == TASKS[task].own_rules


@pytest.mark.parametrize("task", FILMED)
def test_an_episode_is_filmed_without_a_screen(task, tmp_path, capfd, monkeypatch):
    pytest.importorskip("pygame")
    for name in ("SDL_VIDEODRIVER", "XDG_RUNTIME_DIR", "DISPLAY", "WAYLAND_DISPLAY"):
        monkeypatch.delenv(name, raising=False)
    found = searched(task, tmp_path / "a")
    assert "XDG_RUNTIME_DIR" not in capfd.readouterr().err
    assert "SDL_VIDEODRIVER" not in os.environ
    with Image.open(found.folder / FILM) as film:
        assert film.n_frames > 1
        assert film.size[0] == 320


@pytest.mark.parametrize("screen", ["", "MUJOCO_GL", "DISPLAY"])
def test_mujoco_is_not_asked_to_draw_where_there_is_no_screen(screen, tmp_path, monkeypatch):
    """A second failure to draw ends the process; the env stands in for one of MuJoCo."""
    module = ModuleType("gymnasium.envs.mujoco.mujoco_env")
    module.MujocoEnv = CartPoleEnv
    monkeypatch.setitem(sys.modules, module.__name__, module)
    for name in ("MUJOCO_GL", "DISPLAY", "WAYLAND_DISPLAY"):
        monkeypatch.delenv(name, raising=False)
    if screen:
        monkeypatch.setenv(screen, "egl")
    drawn = []
    monkeypatch.setattr(CartPoleEnv, "render", lambda env: drawn.append(env) or np.zeros((4, 4, 3)))
    found = searched("cart-pole", tmp_path / "a")
    assert bool(drawn) == (found.folder / FILM).exists() == bool(screen)
    assert ("set MUJOCO_GL=egl" in (found.folder / REPORT).read_text()) != bool(screen)


def test_a_missing_opengl_costs_only_the_film(tmp_path, monkeypatch):
    class FatalError(Exception):
        """MuJoCo's error has this base."""

    def render(env):
        raise FatalError("no context")

    monkeypatch.setitem(sys.modules, "mujoco", SimpleNamespace(FatalError=FatalError))
    monkeypatch.setattr(CartPoleEnv, "render", render)
    found = searched("cart-pole", tmp_path / "a")
    assert not (found.folder / FILM).exists()
    assert (
        "cannot be drawn (render raised FatalError('no context'); with no screen, set MUJOCO_GL=egl"
        in (found.folder / REPORT).read_text()
    )


def test_a_search_that_is_not_finished_has_a_report(tmp_path):
    found = searched("maze", tmp_path / "a")
    for path in found.folder.iterdir():
        if path.suffix in (".png", ".md", ".gif") or path.name == "result.json":
            path.unlink()
    assert "not finished" in write_search_report(found.folder)
    assert (found.folder / SCORES).is_file()
    (found.folder / HISTORY).write_text("")
    assert "Nothing was tried yet" in write_search_report(found.folder)


def test_the_report_can_be_made_again(tmp_path):
    found = searched("nim", tmp_path / "a", "q-learning")
    before = (found.folder / REPORT).read_text()
    (found.folder / SCORES).unlink()
    assert write_search_report(found.folder) == before
    assert (found.folder / SCORES).is_file()


def test_a_report_that_a_kill_prevented_is_written(tmp_path):
    found = searched("nim", tmp_path / "a")
    (found.folder / REPORT).unlink()
    assert searched("nim", tmp_path / "a") == found
    assert (found.folder / REPORT).is_file()


def test_leaders_are_drawn_from_the_first_to_the_last():
    history = History()
    for slot in range(3 * PANELS):
        score = [float(slot)] * 2
        history.add(Try(slot=slot, source="search", params=(slot,), returns=score))
    chosen = chosen_leaders(history)
    assert len(chosen) == PANELS
    assert (chosen[0][0], chosen[-1][0]) == (1, 3 * PANELS)
    assert [tried.slot + 1 for _, tried in chosen] == [slot for slot, _ in chosen]


def test_a_task_whose_package_is_missing_names_the_extra(tmp_path, monkeypatch):
    monkeypatch.setitem(sys.modules, "mujoco", None)
    for name in [n for n in sys.modules if n.startswith("gymnasium.envs.mujoco")]:
        monkeypatch.delitem(sys.modules, name)
    with pytest.raises(MissingDependencyError, match=r"pip install 'turnwise\[mujoco\]'"):
        searched("hopper", tmp_path / "a")
