import fcntl
import os
import tempfile
import time

import pytest

from turnwise.sandbox import Limits, leftovers
from turnwise.sandbox.inside import files, worker
from turnwise.sandbox.inside.isolation import PREFIX, Isolation
from turnwise.sandbox.inside.worker import Worker

FOLDER = os.O_RDONLY | os.O_DIRECTORY


def deepen(path, depth):
    """Make folders in each other, deeper than any path may be."""
    place = os.open(path, FOLDER)
    for i in range(depth):
        os.mkdir("d", dir_fd=place)
        os.close(os.open(f"file-{i}", os.O_CREAT | os.O_WRONLY, dir_fd=place))
        below = os.open("d", FOLDER, dir_fd=place)
        os.close(place)
        place = below
    os.close(place)


def test_trees_of_any_depth_and_mode_are_removed(tmp_path):
    (tmp_path / "kept").mkdir()
    (tmp_path / "kept" / "file").write_text("kept")
    top = tmp_path / "top"
    top.mkdir()
    deepen(top, 3000)
    for mode in (0o700, 0o500, 0o300, 0o100, 0o200, 0o400, 0):
        (top / f"{mode}" / "below" / "more").mkdir(parents=True)
        (top / f"{mode}" / "below" / "file").write_text("x")
        (top / f"{mode}" / "link").symlink_to(tmp_path / "kept")
        (top / f"{mode}" / "below").chmod(mode)
        (top / f"{mode}").chmod(mode)
    (top / "link").symlink_to(tmp_path / "kept")
    opened = len(os.listdir("/proc/self/fd"))

    assert files.remove_path(str(top))

    assert not top.exists() and (tmp_path / "kept" / "file").read_text() == "kept"
    assert len(os.listdir("/proc/self/fd")) == opened


def test_what_cannot_be_removed_is_said(tmp_path, monkeypatch):
    (tmp_path / "a" / "b").mkdir(parents=True)
    with monkeypatch.context() as patch:
        patch.setattr(os, "rmdir", lambda *_, **__: (_ for _ in ()).throw(PermissionError))
        assert not files.remove_path(str(tmp_path / "a"))
        place = os.open(tmp_path, FOLDER)
        assert not files.clear(place)
    assert files.clear(place) and not os.listdir(tmp_path)
    os.close(place)


def test_a_worker_whose_folder_resists_ends(tmp_path, monkeypatch):
    """The next program finds another worker, and nothing of this one's."""

    class Ended(Exception):
        pass

    def end(status):
        raise Ended(status)

    place = os.open(tmp_path, FOLDER)
    served = Worker(Isolation(kind="none", scratch=str(tmp_path), place=place), network=False)
    names = []
    monkeypatch.setattr(served, "carry_out", lambda order, folder, own: names.append(folder))
    order = Limits().order(1)
    served.serve(order)
    served.serve(order)
    assert len(set(names)) == 2 and not os.listdir(tmp_path)
    monkeypatch.setattr(worker.files, "clear", lambda folder: False)
    monkeypatch.setattr(worker.os, "_exit", end)
    with pytest.raises(Ended):
        served.serve(order)
    os.close(place)


def test_only_old_folders_of_dead_workers_are_cleared(tmp_path, monkeypatch):
    monkeypatch.setattr(tempfile, "tempdir", str(tmp_path))
    for name in ("dead", "held", "young"):
        (tmp_path / f"{PREFIX}{name}" / "folder").mkdir(parents=True)
    (tmp_path / "turnwise-other").mkdir()
    (tmp_path / f"{PREFIX}link").symlink_to(tmp_path / "turnwise-other")
    held = os.open(tmp_path / f"{PREFIX}held", FOLDER)
    fcntl.flock(held, fcntl.LOCK_EX)
    old = time.time() - 2 * leftovers.OLD
    for name in (f"{PREFIX}dead", f"{PREFIX}held", "turnwise-other"):
        os.utime(tmp_path / name, (old, old))

    leftovers.clear_stale()

    left = {path.name for path in tmp_path.iterdir()}
    kept = {f"{PREFIX}{name}" for name in ("held", "young", "link")}
    assert left == {*kept, "turnwise-other"}
    os.close(held)
