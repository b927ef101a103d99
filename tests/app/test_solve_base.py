"""The base of `turnwise solve`: which places are refused, and with which cure."""

from __future__ import annotations

import pytest

from turnwise.app.solve_base import base_of
from turnwise.errors import RunError


def test_a_base_that_is_no_directory_is_told_to_be_a_model_or_a_run(tmp_path):
    (tmp_path / "drawing_base").mkdir()
    (tmp_path / "file").touch()
    says = "is no directory: give the directory of a model, also of one .*, or a run of arc-draw-b"
    for place in ("Qwen/Qwen3-0.6B", tmp_path / "file"):
        with pytest.raises(RunError, match=says):
            base_of(place)
    with pytest.raises(RunError, match="did you mean '.*/drawing_base'. Otherwise give"):
        base_of(tmp_path / "drawing_bas")
