"""Threads: one for small models, what the user set otherwise, and nothing is left changed."""

from __future__ import annotations

import os

import pytest
import torch

import turnwise as tw
from turnwise.errors import RewardError
from turnwise.policies import default_threads, kept_threads, use_threads
from turnwise.policies.threads import VARIABLES

from ..conftest import TINY


@pytest.fixture
def unset(monkeypatch):
    """A process in which nobody has chosen a number of threads; torch has all CPUs."""
    for name in VARIABLES:
        monkeypatch.delenv(name, raising=False)
    before = torch.get_num_threads()
    torch.set_num_threads(len(os.sched_getaffinity(0)))
    yield
    torch.set_num_threads(before)


def test_small_models_get_one_thread_and_large_ones_torchs_own(unset):
    many = torch.get_num_threads()
    with kept_threads():
        assert "torch's default" in use_threads(5_000_000, None)
        assert torch.get_num_threads() == many
        said = use_threads(4_999_999, None)
        assert torch.get_num_threads() == 1
        assert said.startswith("1 thread, as the model is small")
    assert torch.get_num_threads() == many
    assert (default_threads(800_000), default_threads(13_000_000)) == (1, None)


def test_what_the_user_set_is_kept(unset, monkeypatch):
    with kept_threads():
        torch.set_num_threads(37)  # no CPU count of any machine that runs this
        assert use_threads(800_000, None) == "37 threads, as set outside the recipe"
        assert torch.get_num_threads() == 37
        assert use_threads(800_000, 3) == "3 threads, as `threads` says"
        assert torch.get_num_threads() == 3
    monkeypatch.setenv("OMP_NUM_THREADS", "2")
    with kept_threads():
        torch.set_num_threads(2)
        assert use_threads(800_000, None) == "2 threads, as set outside the recipe"


class Watcher:
    """Keeps the notes, and the threads of every step."""

    def __init__(self):
        self.notes, self.threads = [], set()

    def begin(self, phase, *, done, total):
        pass

    def advance(self, done, metrics):
        self.threads.add(torch.get_num_threads())

    def note(self, text):
        self.notes.append(text)


@pytest.mark.parametrize(("setting", "threads"), [((), 1), (("threads=2",), 2)])
def test_a_run_says_how_many_threads_it_takes_and_gives_them_back(
    unset, tmp_path, setting, threads
):
    before = torch.get_num_threads()
    watcher = Watcher()
    small = ["warmup.steps=1", "trainer.iterations=1", "trainer.tasks_per_iteration=1"]
    small += ["evaluation.test_tasks=1", "evaluation.validation_tasks=1"]
    recipe = tw.load_recipe("frozen-lake", [*TINY, *small, *setting])
    tw.train(recipe, root=tmp_path, progress=watcher)
    assert watcher.threads == {threads}
    assert any(note.startswith(f"{threads} thread") for note in watcher.notes)
    assert torch.get_num_threads() == before


def test_threads_are_given_back_after_an_error(unset, tmp_path):
    before = torch.get_num_threads()

    def wrong(completions, **kwargs):
        raise KeyError("no")

    with pytest.raises(RewardError):
        tw.train("nano", [{"prompt": "a"}], reward=wrong, root=tmp_path)
    assert torch.get_num_threads() == before
