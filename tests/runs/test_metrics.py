import os
import subprocess
import sys

import pytest
from tensorboard.backend.event_processing.event_accumulator import EventAccumulator

from turnwise.errors import RunError
from turnwise.runs.metrics import MetricsLog, comparable, read_metrics
from turnwise.runs.sinks.tensorboard import TensorBoardSink

NAN, INF = float("nan"), float("inf")


def scalars(folder, tag):
    events = EventAccumulator(str(folder), purge_orphaned_data=True)
    events.Reload()
    return [(event.step, event.value) for event in events.Scalars(tag)]


def test_records_come_back_in_order_with_null_for_what_is_not_finite(tmp_path):
    log = MetricsLog(tmp_path / "metrics.jsonl")
    log.append("warmup", 0, {"loss/ce": 1.25})
    log.append("train", 0, {"loss/rl": NAN, "ratio/most": INF, "rollout/score": 0.1})
    log.close()
    assert read_metrics(log.path) == [
        {"phase": "warmup", "step": 0, "loss/ce": 1.25},
        {"phase": "train", "step": 0, "loss/rl": None, "ratio/most": None, "rollout/score": 0.1},
    ]


def test_a_name_without_an_area_is_a_bug(tmp_path):
    with pytest.raises(AssertionError, match="not area/name"):
        MetricsLog(tmp_path / "metrics.jsonl").append("train", 0, {"score": 1.0})


def test_a_missing_log_is_empty(tmp_path):
    assert read_metrics(tmp_path / "metrics.jsonl") == []


def test_a_torn_last_line_is_not_read_and_is_cut_before_the_next_record(tmp_path):
    path = tmp_path / "metrics.jsonl"
    log = MetricsLog(path)
    log.append("train", 0, {"a/b": 1.0})
    log.close()
    with path.open("ab") as file:
        file.write(b'{"phase": "train", "st')
    assert [record["step"] for record in read_metrics(path)] == [0]
    log = MetricsLog(path)
    log.append("train", 1, {"a/b": 2.0})
    assert [record["step"] for record in read_metrics(path)] == [0, 1]


def test_damage_before_the_end_is_an_error_that_names_the_line(tmp_path):
    path = tmp_path / "metrics.jsonl"
    path.write_text('{"phase": "train", "step": 0}\n{"phase": "tr\n{"phase": "train", "step": 2}\n')
    with pytest.raises(RunError, match="line 2 is not a JSON object"):
        read_metrics(path)


@pytest.mark.parametrize("line", ["3", "[]", "null", '"x"', "[" * 100_000, "{}", '{"phase": 3}'])
def test_a_line_that_is_no_record_is_damage(tmp_path, line):
    path = tmp_path / "metrics.jsonl"
    path.write_text(f'{{"phase": "train", "step": 0}}\n{line}\n')
    with pytest.raises(RunError, match="line 2 (is not a JSON object|has no phase and step)"):
        read_metrics(path)


def test_a_resumed_log_is_cut_to_the_checkpoint_and_equals_an_uninterrupted_one(tmp_path):
    def play(log, steps):
        for step in steps:
            log.append("train", step, {"a/b": step / 3, "time/seconds": os.urandom(1)[0] / 7})

    whole, cut = MetricsLog(tmp_path / "whole.jsonl"), MetricsLog(tmp_path / "cut.jsonl")
    play(whole, range(6))
    play(cut, range(3))
    offset = cut.sync()
    play(cut, range(3, 5))
    cut.close()
    resumed = MetricsLog(cut.path)
    resumed.truncate_to(offset)
    play(resumed, range(3, 6))
    assert comparable(read_metrics(cut.path)) == comparable(read_metrics(whole.path))
    assert len(read_metrics(cut.path)) == 6


def test_a_log_shorter_than_its_checkpoint_is_refused(tmp_path):
    with pytest.raises(RunError, match="expects at least 99"):
        MetricsLog(tmp_path / "metrics.jsonl").truncate_to(99)


def test_a_log_with_no_line_that_ends_at_its_checkpoint_is_refused(tmp_path):
    log = MetricsLog(tmp_path / "metrics.jsonl")
    log.append("train", 0, {"a/b": 1.0})
    offset = log.sync()
    log.append("train", 1, {"a/b": 2.0})
    log.close()
    log.path.write_bytes(b"\xef\xbb\xbf" + log.path.read_bytes())  # as some editors do
    with pytest.raises(RunError, match="the log was edited; restore it or start a new run"):
        MetricsLog(log.path).truncate_to(offset)


def test_tensorboard_mirrors_finite_values_and_forgets_what_a_resumed_phase_repeats(tmp_path):
    def log():
        sink = TensorBoardSink(tmp_path / "tensorboard")
        return MetricsLog(tmp_path / "metrics.jsonl", sinks=[sink])

    first = log()
    for step in range(4):
        first.append("warmup", step, {"loss/ce": 1.0 + step})
    first.append("train", 0, {"rollout/score": 0.0, "loss/rl": NAN})
    offset = first.sync()
    for step in (1, 2):
        first.append("train", step, {"rollout/score": 0.9})
    first.close()
    resumed = log()
    resumed.truncate_to(offset)
    resumed.append("train", 1, {"rollout/score": 0.5})
    resumed.close()
    assert scalars(tmp_path / "tensorboard" / "train", "rollout/score") == [(0, 0.0), (1, 0.5)]
    assert [s for s, _ in scalars(tmp_path / "tensorboard" / "warmup", "loss/ce")] == [0, 1, 2, 3]


def test_metrics_and_checkpoints_do_not_import_torch():
    names = "metrics, episodes, checkpoints, folder, signals"
    code = f"import sys, turnwise.report; from turnwise.runs import {names}"
    check = f"{code}; assert 'torch' not in sys.modules"
    subprocess.run([sys.executable, "-c", check], check=True)
