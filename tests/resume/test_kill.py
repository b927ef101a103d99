"""A run that was killed, at any instant, ends with the same numbers as one that was not."""

import fcntl
import json
import shutil

import pytest
from tensorboard.backend.event_processing.event_accumulator import EventAccumulator

KILLS = {
    "making the model": {"place": "renaming"},
    "in warm-up": {"place": "step", "call": 37},
    "saving weights in warm-up": {"place": "saving weights", "call": 2, "after": True},
    "at the end of warm-up": {"place": "saving weights", "call": 5},
    "between warm-up and training": {"place": "training"},
    "before the first update": {"place": "step", "call": 101},
    "between two mini-batches": {"place": "step", "call": 104},
    "in the middle of an episode": {"place": "token", "call": 133},
    "recording episodes": {"place": "episodes", "call": 3, "after": True},
    "in validation": {"place": "validation", "call": 2},
    "writing a line of metrics": {"place": "line", "call": 8, "tear": True},
    "saving the optimizer": {"place": "saving optimizer", "call": 7},
    "before a checkpoint is whole": {"place": "sealing", "call": 8},
    "before the best is marked": {"place": "renewing best", "call": 8},
    "deleting a checkpoint": {"place": "pruning", "call": 4},
    "in the test": {"place": "test"},
}


def checkpoints(run):
    return sorted(path for path in (run / "checkpoints").iterdir() if path.is_dir())


def flip(file):
    """Damage one byte in the middle of a file."""
    content = bytearray(file.read_bytes())
    content[len(content) // 2] ^= 255
    file.write_bytes(content)


def test_the_unbroken_run_has_something_to_lose(unbroken):
    trained = [record for record in unbroken["metrics"] if record["phase"] == "train"]
    assert len(trained) == 6
    assert all(record["train/skipped"] == 0 for record in trained)
    assert unbroken["start/main"] != unbroken["checkpoints/train-6"]["weights"]["main"]


def test_a_killed_run_ends_with_the_same_numbers(turnwise, unbroken, traces, differences, tmp_path):
    run = tmp_path / "run"
    assert turnwise.train(run, {"place": "step", "call": 104}).code == -9
    ended = turnwise.resume(run)
    assert ended.code == 0, ended.said
    assert differences(traces(run), unbroken) == []


@pytest.mark.slow
@pytest.mark.parametrize("where", KILLS)
def test_a_run_killed_anywhere_ends_so(turnwise, unbroken, traces, differences, tmp_path, where):
    run = tmp_path / "run"
    assert turnwise.train(run, KILLS[where]).code == -9
    ended = turnwise.resume(run)
    assert ended.code == 0, ended.said
    assert differences(traces(run), unbroken) == []


@pytest.mark.slow
def test_a_run_killed_again_and_again_ends_so(turnwise, unbroken, traces, differences, tmp_path):
    run = tmp_path / "run"
    assert turnwise.train(run, {"place": "step", "call": 60}).code == -9
    again = [
        {"place": "training"},  # what the warm-up learnt is saved ...
        {"place": "renaming", "call": 2},  # ... and now being replaced: neither is in its place
        {"place": "step", "call": 5},
        {"place": "saving weights"},
        {"place": "validation"},
    ]
    for event in again:
        assert turnwise.resume(run, event).code == -9
    ended = turnwise.resume(run)
    assert ended.code == 0, ended.said
    assert differences(traces(run), unbroken) == []


@pytest.mark.slow
def test_a_finished_run_is_not_trained_again(turnwise, unbroken, traces, differences, tmp_path):
    run = tmp_path / "run"
    assert turnwise.train(run, {"place": "test"}).code == -9
    lines = (run / "metrics.jsonl").read_bytes()
    for _ in range(2):
        assert turnwise.resume(run).code == 0
    assert (run / "metrics.jsonl").read_bytes() == lines
    assert differences(traces(run), unbroken) == []


def test_a_run_that_met_its_target_is_not_trained_on(turnwise, unbroken, tmp_path):
    run = tmp_path / "run"
    target = ["evaluation.target=0.1"]
    assert turnwise.train(run, {"place": "test"}, sets=target).code == -9
    lines = (run / "metrics.jsonl").read_bytes()
    assert lines.count(b'"phase":"train"') in (2, 4), "of 6 iterations"
    assert turnwise.resume(run).code == 0
    assert (run / "metrics.jsonl").read_bytes() == lines


@pytest.mark.slow
@pytest.mark.parametrize(
    "file",
    [
        "optimizers/main.pt",
        "policies/main/model.safetensors",
        "engine.safetensors",
        "manifest.json",
    ],
)
def test_a_damaged_checkpoint_falls_back_and_says_so(
    turnwise, unbroken, traces, differences, tmp_path, file
):
    run = tmp_path / "run"
    assert turnwise.train(run, {"place": "episodes", "call": 5}).code == -9
    *_, before, newest = checkpoints(run)
    flip(newest / file)
    ended = turnwise.resume(run)
    assert ended.code == 0, ended.said
    assert f"checkpoint {newest.name} is damaged" in ended.said
    assert f"going on from {before.name}" in ended.said
    assert differences(traces(run), unbroken) == []


@pytest.mark.slow
def test_a_checkpoint_without_drafts_goes_on(turnwise, tmp_path):
    run = tmp_path / "run"
    assert turnwise.train(run, {"place": "episodes", "call": 5}).code == -9
    newest = checkpoints(run)[-1]
    manifest = json.loads((newest / "manifest.json").read_text())
    del manifest["files"]["engine.safetensors"]
    (newest / "manifest.json").write_text(json.dumps(manifest))
    (newest / "engine.safetensors").unlink()
    ended = turnwise.resume(run)
    assert ended.code == 0, ended.said
    assert "damaged" not in ended.said


@pytest.mark.slow
def test_a_damaged_best_checkpoint_is_not_scored(turnwise, tmp_path):
    run = tmp_path / "run"
    assert turnwise.train(run, {"place": "test"}).code == -9
    best = (
        run / "checkpoints" / json.loads((run / "checkpoints/best.json").read_text())["checkpoint"]
    )
    flip(best / "policies/main/model.safetensors")
    ended = turnwise("eval", run, "--tasks", 4)
    assert ended.code == 2
    assert "another checksum" in ended.said and "delete it" in ended.said
    shutil.rmtree(best)
    assert turnwise("eval", run, "--tasks", 4).code == 0


def test_without_a_whole_checkpoint_the_cure_is_said(turnwise, tmp_path):
    run = tmp_path / "run"
    assert turnwise.train(run, {"place": "step", "call": 60}).code == -9
    for checkpoint in checkpoints(run):
        shutil.rmtree(checkpoint / "policies")
    ended = turnwise.resume(run)
    assert ended.code == 2
    assert "no checkpoint" in ended.said and "Delete them" in ended.said


@pytest.mark.slow
def test_tensorboard_shows_every_step_once(turnwise, unbroken, tmp_path):
    run = tmp_path / "run"
    assert turnwise.train(run, {"place": "episodes", "call": 5}).code == -9
    shutil.rmtree(checkpoints(run)[-1])  # goes on one step before what was written
    assert turnwise.resume(run, {"place": "step", "call": 5}).code == -9
    assert turnwise.resume(run).code == 0
    records = [record for record in unbroken["metrics"] if record["phase"] == "train"]
    shown = EventAccumulator(str(run / "tensorboard" / "train")).Reload()
    for name in ("rollout/score", "loss/total", "validation/score", "total/sampled_tokens"):
        expected = [(r["step"], r[name]) for r in records if name in r]
        found = [(event.step, event.value) for event in shown.Scalars(name)]
        assert [step for step, _ in found] == [step for step, _ in expected]
        assert [value for _, value in found] == pytest.approx([value for _, value in expected])


def test_a_run_in_use_is_not_resumed(turnwise, tmp_path):
    run = tmp_path / "run"
    assert turnwise.train(run, {"place": "step"}).code == -9
    with (run / "run.lock").open("a") as lock:
        fcntl.flock(lock, fcntl.LOCK_EX)
        ended = turnwise.resume(run)
    assert ended.code == 2
    assert "in use by process" in ended.said
