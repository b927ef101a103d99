"""Folders that appear when they are complete: what a second writer and a failure leave."""

from __future__ import annotations

import pytest

from turnwise.errors import RunError
from turnwise.policies.folders import replaced_folder


def test_a_second_writer_is_refused_and_spoils_nothing(tmp_path):
    target = tmp_path / "card"
    with replaced_folder(target) as folder:
        (folder / "a").write_text("first")
        with (
            pytest.raises(RunError, match="card' is being written by another process: wait for it"),
            replaced_folder(target) as other,
        ):
            (other / "a").write_text("second")
        assert not target.exists()
    assert (target / "a").read_text() == "first"
    assert [each.name for each in tmp_path.iterdir()] == ["card"]


def test_what_a_killed_writer_left_is_deleted(tmp_path):
    (tmp_path / ".card.partial").mkdir()
    (tmp_path / ".card.partial" / "half").write_text("x")
    with replaced_folder(tmp_path / "card") as folder:
        (folder / "whole").write_text("x")
    assert [each.name for each in (tmp_path / "card").iterdir()] == ["whole"]


def test_a_failure_leaves_nothing(tmp_path):
    with pytest.raises(KeyboardInterrupt), replaced_folder(tmp_path / "card") as folder:
        (folder / "half").write_text("x")
        raise KeyboardInterrupt
    assert list(tmp_path.iterdir()) == []
