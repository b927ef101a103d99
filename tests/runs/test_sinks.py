"""The one step axis of sinks, what they are sent again, and names that are wrong."""

from __future__ import annotations

import importlib.util

import pytest

from turnwise.errors import ConfigError, MissingDependencyError
from turnwise.recipe.schema import load_recipe
from turnwise.runs import MetricsConfig, MetricsLog, check_installed
from turnwise.settings import parse


class Memory:
    """A sink that keeps what it is given."""

    def __init__(self, takes_back):
        self.takes_back, self.sent, self.summary = takes_back, [], None

    def add(self, phase, step, axis, values):
        self.sent.append((phase, step, axis, dict(values)))

    def summarise(self, axis, values):
        self.summary = (axis, dict(values))

    def close(self):
        pass


def axes(sink):
    return [axis for _, _, axis, _ in sink.sent]


def test_a_phase_begins_on_the_axis_where_the_one_before_ended(tmp_path):
    sink = Memory(True)
    log = MetricsLog(tmp_path / "metrics.jsonl", sinks=[sink])
    for phase, step in (("warmup", 25), ("warmup", 50), ("train", 1), ("train", 2)):
        log.append(phase, step, {"a/b": 1.0, "c/d": float("nan")})
    assert [sent[:3] for sent in sink.sent] == [
        ("warmup", 25, 25), ("warmup", 50, 50), ("train", 1, 51), ("train", 2, 52),
    ]  # fmt: skip
    assert all(values == {"a/b": 1.0} for *_, values in sink.sent)
    log.summarise({"test/score": 0.5, "test/stderr": float("nan")})
    assert sink.summary == (52, {"test/score": 0.5})


def test_repeated_steps_go_only_to_sinks_that_take_back(tmp_path):
    first = MetricsLog(tmp_path / "metrics.jsonl")
    first.append("warmup", 50, {"a/b": 0.0})
    first.append("train", 1, {"a/b": 1.0})
    offset = first.sync()
    for step in (2, 3):
        first.append("train", step, {"a/b": 1.0})
    first.close()
    back, forth = Memory(True), Memory(False)
    log = MetricsLog(tmp_path / "metrics.jsonl", sinks=[back, forth])
    log.truncate_to(offset)
    for step in (2, 3, 4):
        log.append("train", step, {"a/b": 2.0})
    assert axes(back) == [52, 53, 54]
    assert axes(forth) == [54]


@pytest.mark.parametrize(
    ("data", "words"),
    [
        ({"sinks": ["wandbb"]}, "unknown sink 'wandbb': did you mean 'wandb'"),
        ({"sinks": ["wandb", "wandb"]}, "lists a sink twice"),
        ({"sinks": "wandb"}, "metrics.sinks|sinks = 'wandb'"),
        ({"project": ""}, "project = ''"),
    ],
)
def test_wrong_sinks_are_a_sentence(data, words):
    with pytest.raises(ConfigError, match=words):
        parse(MetricsConfig, data, "metrics")


def test_a_recipe_without_sinks_reads_back():
    recipe = load_recipe("frozen-lake", ["metrics.sinks=[]"])
    assert recipe.metrics.sinks == ()
    assert "sinks = []" in recipe.to_toml()


def test_a_missing_package_is_named_with_what_installs_it(monkeypatch):
    real = importlib.util.find_spec
    absent = lambda name: None if name == "wandb" else real(name)  # noqa: E731
    monkeypatch.setattr(importlib.util, "find_spec", absent)
    with pytest.raises(MissingDependencyError, match=r"pip install 'turnwise\[wandb\]'"):
        check_installed(["tensorboard", "wandb"])
