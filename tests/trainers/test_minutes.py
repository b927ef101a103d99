"""Runs that a limit of time ends: where they end, what follows the time, and how they go on."""

from __future__ import annotations

import inspect
import json
from functools import wraps
from types import SimpleNamespace

import pytest

from turnwise.app import build, lifecycle
from turnwise.errors import ConfigError
from turnwise.evaluation.perception import Seen
from turnwise.parallel import ALONE
from turnwise.recipe import schema
from turnwise.recipe.schema import load_recipe
from turnwise.runs import Checkpoints, Run, comparable, read_metrics
from turnwise.trainers import Silent, grpo, loop, resume, sft, train_grpo, warm_up
from turnwise.trainers import session as session_module

ITERATION, ROUND = 30.0, 60.0
"""Seconds of an iteration and of a round of the warm-up, by the clock of these tests."""


class Clock:
    """Seconds that pass only where a test lets them."""

    def __init__(self):
        self.now = 1000.0

    def perf_counter(self):
        return self.now


@pytest.fixture(autouse=True)
def clock(monkeypatch):
    """A clock on which playing takes `ITERATION` and a warm-up's round `ROUND` seconds."""
    clock = Clock()
    for module in (grpo, loop, sft, session_module):
        monkeypatch.setattr(module, "time", clock)

    def slow(module, name, seconds):
        real = getattr(module, name)

        @wraps(real)
        def call(*args, **kwargs):
            clock.now += seconds
            return real(*args, **kwargs)

        monkeypatch.setattr(module, name, call)

    slow(grpo, "play_groups", ITERATION)
    slow(sft, "imitate_round", ROUND)
    return clock


LONG = ("trainer.iterations=8", "evaluation.every=100", "checkpoint.every=100")


def steps_of(records):
    return [record["step"] for record in records]


@pytest.mark.parametrize(
    ("minutes", "steps"), [(0.25, 1), (0.5, 1), (0.51, 2), (1.5, 3), (3.99, 8), (99.0, 8)]
)
def test_a_run_ends_after_the_iteration_that_passes_the_limit(speaking, train, minutes, steps):
    session, records = train(speaking(*LONG, f"trainer.minutes={minutes}"))
    assert steps_of(records) == list(range(1, steps + 1))
    validated = [any(name.startswith("validation/") for name in record) for record in records]
    assert validated == [*[False] * (steps - 1), True]
    latest = Checkpoints(session.run.checkpoints, keep=9).latest().checkpoint
    assert (latest.phase, latest.step) == ("train", steps)
    assert latest.score is not None


def test_validation_takes_time_too(speaking, train, clock, monkeypatch):
    real = loop.validate_policy

    def slow(*args, **kwargs):
        clock.now += 10 * ITERATION
        return real(*args, **kwargs)

    monkeypatch.setattr(loop, "validate_policy", slow)
    settings = ("trainer.minutes=4.0", "evaluation.every=2")
    _, records = train(speaking(*LONG, *settings))
    assert steps_of(records) == [1, 2]


def test_a_run_without_a_limit_is_that_with_a_large_one(speaking, train):
    _, plain = train(speaking("trainer.iterations=3", "optimizer.schedule=linear"))
    more = ("trainer.minutes=1e9",)
    _, limited = train(speaking("trainer.iterations=3", "optimizer.schedule=linear", *more))
    assert comparable(limited) == comparable(plain)


def test_the_schedule_and_the_sft_mix_follow_the_time_where_that_is_further(speaking, train):
    """Of four iterations' time the first update sees one over, of eight iterations none."""
    session, records = train(
        speaking(
            *LONG,
            "trainer.minutes=2.0",
            "optimizer.schedule=linear",
            "sft_mix={rows=2,spans={answer=1.0},final={answer=0.0}}",
        )
    )
    assert steps_of(records) == [1, 2, 3, 4]
    rates = [record["optim/lr"] / 1e-3 for record in records]
    assert rates == pytest.approx([1.0, 0.75, 0.5, 0.25])
    mix = session.trained["main"].sft_mix
    assert mix is not None
    assert mix.spans_at(1, least_done=0.5) == {"answer": 0.5}
    assert mix.spans_at(7, least_done=0.5) == {"answer": 0.0}
    _, plain = train(speaking(*LONG, "optimizer.schedule=linear"))
    assert [r["optim/lr"] / 1e-3 for r in plain[:3]] == pytest.approx([1.0, 0.875, 0.75])


def test_the_warm_up_is_part_of_the_time(make_recipe, make_session):
    recipe = make_recipe(*LONG, "trainer.minutes=2.4", "optimizer.schedule=linear")
    session = make_session(recipe)
    assert warm_up(session, recipe.warmup, None)  # two rounds
    session.save_start()
    assert train_grpo(session, build.plan_of(recipe), None)
    session.metrics.sync()
    records = [r for r in read_metrics(session.run.metrics) if r["phase"] == "train"]
    assert steps_of(records) == [1]


class Shares(Silent):
    """Keeps the shares of the time that are told."""

    def __init__(self):
        self.told = []

    def advance(self, done, metrics):
        if "time/share" in metrics:
            self.told.append(metrics["time/share"])


def test_the_share_of_the_time_is_told_after_each_iteration(make_recipe, make_session):
    recipe = make_recipe(*LONG, "trainer.minutes=4.0", "optimizer.schedule=linear")
    session = make_session(recipe)
    session.progress = watcher = Shares()
    assert warm_up(session, recipe.warmup, None)  # two rounds
    session.save_start()
    assert train_grpo(session, build.plan_of(recipe), None)
    assert watcher.told == pytest.approx([0.625, 0.75, 0.875, 1.0])


def test_a_warm_up_that_takes_all_the_time_is_validated_and_saved(make_recipe, make_session):
    recipe = make_recipe(*LONG, "trainer.minutes=2.0", "optimizer.lr='auto'")
    session = make_session(recipe)
    assert warm_up(session, recipe.warmup, None)
    session.save_start()
    before = session.policies["main"].digest()
    assert train_grpo(session, build.plan_of(recipe), None)
    session.metrics.sync()
    records = [r for r in read_metrics(session.run.metrics) if r["phase"] == "train"]
    assert steps_of(records) == [0]
    assert session.policies["main"].digest() == before
    latest = Checkpoints(session.run.checkpoints, keep=9).latest().checkpoint
    assert (latest.phase, latest.step) == ("train", 0)


@pytest.fixture
def ended(speaking, tmp_path):
    """The folder of a run that its limit has ended after two of eight iterations."""
    recipe = speaking(*LONG, "trainer.minutes=1.0")
    outcome = lifecycle.train(recipe, run=tmp_path / "run")
    assert outcome.finished and outcome.scores is not None
    return outcome.run


def trained(folder):
    return [r for r in read_metrics(Run(folder).metrics) if r["phase"] == "train"]


def test_an_ended_run_does_not_train_on_and_is_evaluated_again(ended):
    scores = json.loads(Run(ended).evaluation.read_text())
    before = trained(ended)
    assert steps_of(before) == [1, 2]
    outcome = lifecycle.resume(ended)
    assert outcome.finished and outcome.scores is not None
    assert trained(ended) == before
    again = json.loads(Run(ended).evaluation.read_text())
    assert {k: v for k, v in again.items() if k != "seconds"} == {
        k: v for k, v in scores.items() if k != "seconds"
    }


@pytest.mark.parametrize(("minutes", "steps"), [(2.0, 4), (None, 8)])
def test_more_time_lets_an_ended_run_go_on(ended, minutes, steps):
    assert lifecycle.resume(ended, {"trainer.minutes": minutes}).finished
    assert steps_of(trained(ended)) == list(range(1, steps + 1))
    assert load_recipe(str(ended / "recipe.toml")).trainer.minutes == minutes


@pytest.mark.parametrize(
    "setting", [{"trainer.iterations": 9}, {"optimizer.lr": 0.5}, {"trainer.minutes": 0.5}]
)
def test_what_would_change_nothing_in_an_ended_run_is_refused(ended, setting):
    (key,) = setting
    with pytest.raises(ConfigError, match=rf"{key} would change nothing.*give more by --set tr"):
        lifecycle.resume(ended, setting)
    assert Run(ended).evaluation.exists()


def test_a_run_that_was_stopped_goes_on_with_the_time_that_is_left(
    speaking, make_session, tmp_path
):
    recipe = speaking(*LONG, "trainer.minutes=2.0", "checkpoint.every=1")
    folder = tmp_path / "run"
    session = make_session(recipe, folder)
    session.save_start()
    stops = iter([False, False, False, True, True])  # asked before and after each iteration
    session.asked_to_stop = lambda: next(stops)
    train_grpo(session, build.plan_of(recipe), None)
    session.metrics.close()
    assert steps_of(trained(folder)) == [1, 2]
    again = make_session(recipe, folder)
    assert train_grpo(again, build.plan_of(recipe), resume(again))
    again.metrics.close()
    assert steps_of(trained(folder)) == [1, 2, 3, 4]


@pytest.mark.parametrize("minutes", ["0", "-1", "inf", "nan"])
def test_a_limit_is_a_positive_number(make_recipe, minutes):
    with pytest.raises(ConfigError, match=r"trainer\.minutes"):
        make_recipe(f"trainer.minutes={minutes}")


@pytest.mark.parametrize(
    ("seconds", "steps", "expected"),
    [(10.0, 5, 10), (29.0, 5, 0), (30.0, 1, 0), (45.0, 9, 0), (1.0, 2, 58)],
)
def test_the_time_left_for_a_warm_up_counts_its_cooldown(seconds, steps, expected, monkeypatch):
    """A quarter of two minutes is for 30 seconds of steps, at the pace so far."""
    session = SimpleNamespace(totals={"seconds": seconds}, group=ALONE)
    monkeypatch.setattr(sft.time, "perf_counter", lambda: 7.0)
    assert sft.steps_left(session, steps, 7.0, 2.0, 0.25) == expected
    assert sft.steps_left(session, steps, 7.0, None, 0.25) > 1e9


@pytest.mark.parametrize(
    ("shares", "required", "rounds"),
    [
        ([0.95] * 9, None, 2),
        ([0.5, 0.95, 0.5], None, 2),
        ([0.5, 0.5, 0.95], None, 3),
        ([0.5] * 9, None, 4),
        ([0.5] * 9, 0.5, 2),
        ([0.95] * 9, 0.99, 4),
        ([0.95, 0.95, 0.99], 0.99, 3),
    ],
)
def test_a_warm_up_takes_half_of_the_time_while_replies_cannot_be_read(
    make_recipe, make_session, monkeypatch, shares, required, rounds
):
    """A quarter of eight minutes is two rounds, and half is four."""
    settings = ["warmup.steps=20", "warmup.eval_every=2", "warmup.cooldown=0"]
    settings += [] if required is None else [f"warmup.required_accuracy={required}"]
    settings += ["trainer.minutes=8", "warmup.stop_at_accuracy='never'"]
    recipe = make_recipe(*LONG, *settings)
    session, found = make_session(recipe), iter(shares)
    monkeypatch.setattr(sft, "perception", lambda *args: Seen(share=next(found), described=False))
    assert warm_up(session, recipe.warmup, None, minutes=8.0)
    session.metrics.sync()
    records = [r for r in read_metrics(session.run.metrics) if r["phase"] == "warmup"]
    assert len(records) == rounds


def test_a_round_ends_early_where_half_of_the_time_is_over(
    make_recipe, make_session, monkeypatch, clock
):
    """Half of eight minutes are 4 steps of a minute each, of a round of 20; one cools down."""
    settings = ("warmup.steps=20", "warmup.eval_every=20", "warmup.batch_size=2")
    recipe = make_recipe(*LONG, *settings, "warmup.cooldown=5")
    session, real = make_session(recipe), sft.imitate

    def imitate(*args):
        clock.now += 60
        return real(*args)

    monkeypatch.setattr(sft, "imitate", imitate)
    monkeypatch.setattr(sft, "imitate_round", inspect.unwrap(sft.imitate_round))
    monkeypatch.setattr(sft, "perception", lambda *args: Seen(share=0.5, described=False))
    assert warm_up(session, recipe.warmup, None, minutes=8.0)
    session.metrics.sync()
    records = [r for r in read_metrics(session.run.metrics) if r["phase"] == "warmup"]
    assert [r["step"] for r in records] == [4, 5]


def test_a_cooldown_that_takes_longer_than_planned_is_cut(
    make_recipe, make_session, monkeypatch, clock
):
    """Steps of ten minutes: 15 are half of the time, and the cooldown ends at 0.6 of it."""
    settings = ("warmup.steps=40", "warmup.eval_every=20", "warmup.batch_size=2")
    recipe = make_recipe(*LONG, *settings, "warmup.cooldown=8")
    session, real = make_session(recipe), sft.imitate
    left = {0.25: 0, 0.5: 8}

    def imitate(*args):
        clock.now += 600
        return real(*args)

    monkeypatch.setattr(sft, "steps_left", lambda s, step, began, minutes, part: left[part])
    monkeypatch.setattr(sft, "perception", lambda *args: Seen(share=1.0, described=False))
    monkeypatch.setattr(sft, "imitate", imitate)
    assert warm_up(session, recipe.warmup, None, minutes=300.0)
    session.metrics.sync()
    records = [r for r in read_metrics(session.run.metrics) if r["phase"] == "warmup"]
    assert [r["step"] for r in records] == [15, 18]


@pytest.mark.parametrize(
    ("recipe", "phase", "minutes"),
    [("frozen-lake", "warmup", None), ("frozen-lake-lora", "pretrain", 5)],
)
def test_a_share_of_time_is_refused_where_none_is_shared(recipe, phase, minutes):
    settings = {f"{phase}.required_accuracy": 0.8, "trainer.minutes": minutes}
    with pytest.raises(ConfigError, match=f"{phase}.required_accuracy divides `trainer.minutes`"):
        load_recipe(recipe, settings)


def test_a_run_that_loses_its_limit_of_time_loses_the_share_too():
    timed = {"trainer.minutes": 5, "warmup.required_accuracy": 0.8}
    data = load_recipe("frozen-lake", timed).model_dump(exclude_unset=True)
    notes = []
    recipe = schema.make_recipe(data, {"trainer.minutes": None}, notes.append)
    assert recipe.warmup.required_accuracy is None
    assert any("warmup.required_accuracy" in note for note in notes)


@pytest.mark.parametrize(("quarter", "most", "steps"), [(3, 30, 10), (1, 30, 10), (0, 4, 4)])
def test_the_cooldown_is_cut_by_half_of_the_time_alone(
    make_recipe, make_session, monkeypatch, quarter, most, steps
):
    settings = ("warmup.steps=60", "warmup.eval_every=20", "warmup.batch_size=2")
    recipe = make_recipe(*LONG, *settings, "warmup.cooldown=10")
    session = make_session(recipe)
    left = {0.25: quarter, 0.5: most}
    monkeypatch.setattr(sft, "steps_left", lambda s, step, began, minutes, part: left[part])
    monkeypatch.setattr(sft, "perception", lambda *args: Seen(share=1.0, described=False))
    assert warm_up(session, recipe.warmup, None, minutes=800.0)
    session.metrics.sync()
    records = [r for r in read_metrics(session.run.metrics) if r["phase"] == "warmup"]
    assert [r["step"] for r in records] == [20, 20 + steps]


def test_a_run_that_was_stopped_after_the_first_validation_wants_the_same_movement(
    speaking, make_session, tmp_path, clock, monkeypatch
):
    """The first validation takes a third of the time, which is not the time of updates."""
    real = loop.validate_policy

    def slow(*args, **kwargs):
        clock.now += 20 * 60.0
        return real(*args, **kwargs)

    monkeypatch.setattr(loop, "validate_policy", slow)
    recipe = speaking(
        *("trainer.minutes=60", "trainer.iterations=5000", "evaluation.every=5000"),
        *("evaluation.validate_start=true", "checkpoint.every=1", "optimizer.lr='auto'"),
        "trainer.mismatch=ignore",
    )

    def train(name, *stops):
        session = make_session(recipe, tmp_path / name)
        back = resume(session)
        if back is None:
            session.save_start()
        left = iter(stops)
        session.asked_to_stop = lambda: next(left)
        assert not train_grpo(session, build.plan_of(recipe), back)
        session.metrics.close()
        wanted = [r.get("policy/movement_wanted") for r in trained(tmp_path / name)]
        return wanted[1:]

    whole = train("whole", *[False] * 6, True)
    assert train("stopped", True) == []
    assert train("stopped", *[False] * 6, True) == whole
    assert len(whole) == 3 and whole[0] < whole[1]
