"""The length of what one reads to follow an iteration from its rollout to its loss."""

from __future__ import annotations

import ast
import inspect
import os
import subprocess
import sys
import threading
from pathlib import Path

import pytest

import turnwise
from turnwise.trainers import grpo

SOURCE = Path(turnwise.__file__).parent
BEHIND_INTERFACES = (
    "engines", "envs", "forest", "formats", "kernels", "policies", "render", "runs", "tasks",
)  # fmt: skip
"""Packages that an iteration calls through one documented interface each."""
STEPS = ("play_groups", "credit_of", "batches_of", "update")
MOST = 1500
ALONE = "TURNWISE_TEST_ALONE"
"""The variable of the process in which the lines are counted."""


def code_lines(path: Path, called: set[tuple[int, str]]) -> int:
    """Return the lines of the called functions, without docstrings, comments and blank lines."""
    text = path.read_text(encoding="utf-8")
    lines, kept = text.splitlines(), set()
    for node in ast.walk(ast.parse(text)):
        if isinstance(node, ast.FunctionDef | ast.AsyncFunctionDef):
            first = min(node.lineno, *(each.lineno for each in node.decorator_list), node.lineno)
            if (first, node.name) in called:
                kept |= set(range(first, (node.end_lineno or first) + 1))
                if ast.get_docstring(node) is not None:
                    opening = node.body[0]
                    kept -= set(range(opening.lineno, (opening.end_lineno or 0) + 1))
    return sum(bool((code := lines[n - 1].strip()) and not code.startswith("#")) for n in kept)


@pytest.mark.slow
@pytest.mark.skipif(ALONE in os.environ, reason="it is the process that this test starts")
def test_one_iteration_is_read_in_1500_lines():
    """Run in a process of its own: after others, CPython 3.11 may loop at a profile function."""
    alone = {k: v for k, v in os.environ.items() if not k.startswith("PYTEST_")} | {ALONE: "1"}
    ended = subprocess.run(
        [sys.executable, "-m", "pytest", "-v", "-p", "no:cacheprovider", __file__],
        env=alone,
        cwd=SOURCE.parents[1],
        capture_output=True,
        text=True,
        timeout=200,
    )
    assert ended.returncode == 0, ended.stdout
    assert "1 passed, 1 skipped" in ended.stdout, ended.stdout


@pytest.mark.slow
@pytest.mark.skipif(ALONE not in os.environ, reason="the test above runs it in its own process")
def test_the_lines_of_one_iteration(speaking, monkeypatch, train):
    called: dict[Path, set[tuple[int, str]]] = {}

    def note(frame, event, argument):
        code = frame.f_code
        if event == "call" and code.co_filename.startswith(str(SOURCE)):
            called.setdefault(Path(code.co_filename), set()).add(
                (code.co_firstlineno, code.co_name)
            )

    def traced(step):
        def call(*args, **kwargs):
            before = sys.getprofile()
            threading.setprofile(note)
            sys.setprofile(note)
            try:
                return step(*args, **kwargs)
            finally:
                sys.setprofile(before)
                threading.setprofile(None)

        return call

    for name in STEPS:
        monkeypatch.setattr(grpo, name, traced(getattr(grpo, name)))
    train(speaking("credit.scheme=grpo", "sft_mix=none"))
    files = {path.relative_to(SOURCE): path for path in called}
    lines = {
        name: code_lines(path, called[path])
        for name, path in files.items()
        if name.parts[0] not in BEHIND_INTERFACES
    }
    loop, _ = inspect.getsourcelines(grpo.train_grpo)
    lines[Path("train_grpo")] = len(loop)
    assert lines[Path("losses/clipped.py")] > 10, "the update was not reached"
    assert sum(lines.values()) <= MOST, lines
    assert sum(lines.values()) > MOST // 2, "not all of it was seen"
