import errno
import json
import multiprocessing
import time
from pathlib import Path

import pytest

from turnwise.errors import RunError
from turnwise.runs.checkpoints import Checkpoints


def writer(step: int):
    def write(folder: Path) -> None:
        (folder / "adapter").mkdir()
        (folder / "weights.bin").write_bytes(bytes([step % 256]) * 4096)
        (folder / "adapter" / "config.json").write_text(json.dumps({"step": step}))

    return write


def save(store: Checkpoints, step: int, score: float | None = None):
    return store.save("train", step, writer(step), {"offset": step * 10}, score=score)


def steps(store: Checkpoints) -> list[int]:
    return sorted(int(path.name.rsplit("-", 1)[1]) for path in store.directory.glob("0*"))


def test_there_is_no_latest_before_the_first(tmp_path):
    found = Checkpoints(tmp_path / "checkpoints").latest()
    assert found.checkpoint is None
    assert found.note == ""


def test_latest_is_the_newest_across_phases(tmp_path):
    store = Checkpoints(tmp_path)
    store.save("warmup", 300, writer(300), {"phase_done": True})
    save(store, 1)
    found = store.latest().checkpoint
    assert found is not None
    assert (found.phase, found.step, found.meta) == ("train", 1, {"offset": 10})
    assert (found.path / "weights.bin").read_bytes() == b"\x01" * 4096


def test_pruning_keeps_the_newest_and_the_best(tmp_path):
    store = Checkpoints(tmp_path, keep=2)
    for step, score in enumerate([0.2, 0.9, None, 0.9, 0.5, None]):
        save(store, step, score)
    assert steps(store) == [3, 4, 5]
    best = store.best()
    assert best is not None and (best.step, best.score) == (3, 0.9)
    assert json.loads((tmp_path / "best.json").read_text())["checkpoint"] == best.path.name


def test_without_scores_there_is_no_best(tmp_path):
    store = Checkpoints(tmp_path, keep=1)
    save(store, 1)
    save(store, 2)
    assert steps(store) == [2]
    assert store.best() is None
    assert not (tmp_path / "best.json").exists()


@pytest.mark.parametrize(
    ("harm", "words"),
    [
        (lambda path: (path / "weights.bin").write_bytes(b"\x07" * 4096), "another checksum"),
        (lambda path: (path / "weights.bin").write_bytes(b"\x02" * 9), "9 bytes instead of 4096"),
        (lambda path: (path / "adapter" / "config.json").unlink(), "config.json is missing"),
        *(
            (lambda path, text=text: (path / "manifest.json").write_text(text), "cannot be read")
            for text in ("{", "[]", "{}", "null", "[" * 100_000, '{"files": {}}')
        ),
    ],
)
def test_a_damaged_newest_checkpoint_falls_back_and_says_so(tmp_path, harm, words):
    store = Checkpoints(tmp_path)
    save(store, 1, 0.1)
    harm(save(store, 2, 0.9).path)
    found = store.latest()
    assert found.checkpoint is not None and found.checkpoint.step == 1
    assert words in found.note and "going on from 000001-train-1" in found.note


def test_a_checkpoint_that_may_not_be_read_is_not_damaged(tmp_path, monkeypatch):
    store = Checkpoints(tmp_path)
    save(store, 1, 0.1)
    newest = save(store, 2, 0.9).path / "manifest.json"
    read = Path.read_bytes

    def refuse(path):
        if path == newest:
            raise PermissionError(errno.EACCES, "Permission denied", str(path))
        return read(path)

    monkeypatch.setattr(Path, "read_bytes", refuse)
    with pytest.raises(PermissionError):
        store.latest()


def test_what_follows_the_resumed_checkpoint_is_discarded_with_its_score(tmp_path):
    store = Checkpoints(tmp_path)
    first = save(store, 1, 0.1)
    (save(store, 2, 0.9).path / "weights.bin").unlink()
    store.discard_after(first)
    best = store.best()
    assert steps(store) == [1]
    assert best is not None and best.step == 1
    assert json.loads((tmp_path / "best.json").read_text())["step"] == 1
    store.discard_after(None)
    assert store.latest().checkpoint is None
    assert not (tmp_path / "best.json").exists()


def test_only_damaged_checkpoints_are_an_error(tmp_path):
    store = Checkpoints(tmp_path)
    (save(store, 1).path / "weights.bin").unlink()
    with pytest.raises(RunError, match=r"weights\.bin is missing"):
        store.latest()


def test_a_write_that_raises_leaves_the_one_before(tmp_path):
    store = Checkpoints(tmp_path)
    save(store, 1)

    def fails(folder: Path) -> None:
        (folder / "weights.bin").write_bytes(b"half")
        raise OSError("no space left on device")

    with pytest.raises(OSError, match="no space"):
        store.save("train", 2, fails, {})
    found = store.latest().checkpoint
    assert found is not None and found.step == 1
    save(store, 2)
    assert not list(tmp_path.glob(".saving-*"))


def save_until_killed(directory: Path) -> None:
    store = Checkpoints(directory)
    found = store.latest().checkpoint
    store.discard_after(found)
    step = found.step if found else 0
    while True:
        step += 1
        save(store, step, score=(step * 7 % 11) / 11)


def test_a_kill_at_any_instant_leaves_a_loadable_latest(tmp_path):
    context = multiprocessing.get_context("fork")
    reached = 0
    for attempt in range(10):
        child = context.Process(target=save_until_killed, args=(tmp_path,))
        child.start()
        time.sleep(0.05 + attempt * 0.0137)
        child.kill()
        child.join()
        found = Checkpoints(tmp_path).latest()
        assert found.note == ""
        if found.checkpoint is None:
            continue
        step = found.checkpoint.step
        assert step >= reached
        assert found.checkpoint.meta == {"offset": step * 10}
        assert (found.checkpoint.path / "weights.bin").read_bytes() == bytes([step % 256]) * 4096
        text = (found.checkpoint.path / "adapter" / "config.json").read_text()
        assert json.loads(text) == {"step": step}
        reached = step
    assert reached > 0
    best = Checkpoints(tmp_path).best()
    assert best is not None
    if reached > 11:
        assert best.score == 10 / 11
