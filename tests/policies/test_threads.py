"""Threads: one for small models, what the user set otherwise, and nothing is left changed."""

from __future__ import annotations

import os

import pytest
import torch
import transformers as hf

import turnwise as tw
from turnwise.app import build
from turnwise.errors import RewardError
from turnwise.policies import default_threads, kept_threads, measure_threads, use_threads
from turnwise.policies import threads as threads_module
from turnwise.policies.threads import SMALL, VARIABLES, _SlowerError, _time_pass
from turnwise.runs import Run, StopSignal

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


@pytest.fixture(scope="module")
def middle():
    """A model just large enough to be measured."""
    sizes = {"vocab_size": 8000, "num_attention_heads": 4, "num_key_value_heads": 1, "head_dim": 32}
    config = hf.Qwen3Config(
        hidden_size=256, intermediate_size=768, num_hidden_layers=2, **sizes, eos_token_id=1
    )
    model = hf.AutoModelForCausalLM.from_config(config).eval()
    assert sum(each.numel() for each in model.parameters()) > SMALL
    return model


def test_middle_sized_models_are_measured(unset, middle):
    many = torch.get_num_threads()
    with kept_threads():
        found = measure_threads(middle)
        assert found in ((1, many) if many > 1 else (None,))
        assert found is None or torch.get_num_threads() == found
    assert all(each.grad is None for each in middle.parameters())
    assert not any(module._forward_pre_hooks for module in middle.modules())


def test_a_pass_that_is_too_slow_is_not_waited_for(middle):
    with pytest.raises(_SlowerError):
        _time_pass(middle, 16, limit=0.0)
    assert not any(module._forward_pre_hooks for module in middle.modules())


def test_processes_share_the_cores(unset, middle):
    many = torch.get_num_threads()
    with kept_threads():
        assert measure_threads(middle, processes=many) == 1
        assert torch.get_num_threads() == 1


def test_what_the_user_set_is_not_measured(unset, middle, monkeypatch):
    monkeypatch.setenv("OMP_NUM_THREADS", "2")
    assert measure_threads(middle) is None


def test_a_run_keeps_the_number_that_it_measured(unset, tmp_path, small_model, monkeypatch):
    monkeypatch.setattr(threads_module, "SMALL", 1000)
    small = ["warmup=none", "trainer.iterations=1", "evaluation.test_tasks=1", "device=cpu"]
    small += ["evaluation.validation_tasks=1", f"policies.main.model={small_model('qwen3')}"]
    recipe = tw.load_recipe("frozen-lake", ["preset=smoke", *small, "sft_mix=none"])
    assert recipe.threads is None
    watcher = Watcher()
    with kept_threads():
        build.assemble(
            recipe,
            run := Run.create(tmp_path / "run", "x", recipe.to_toml(), tmp_path / "run"),
            StopSignal(),
            watcher,
        )
    kept = tw.load_recipe(str(run.recipe))
    assert kept.threads in (1, len(os.sched_getaffinity(0)))
    assert kept.model_copy(update={"threads": None}) == recipe
    assert f"# threads = {kept.threads}: measured at the start" in run.recipe.read_text()
    assert any(note.startswith(f"threads = {kept.threads}, measured") for note in watcher.notes)


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
