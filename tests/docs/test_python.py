"""Python in the documents runs, page by page from top to bottom, on a small model and few steps."""

from __future__ import annotations

import re
from itertools import groupby

import pytest

import turnwise as tw
from turnwise.envs import find_env

from .conftest import ROOT, in_language

FEW = {
    "trainer.iterations": 1,
    "trainer.group_size": 2,
    "trainer.tasks_per_iteration": 2,
    "trainer.minibatches": 1,
    "trainer.stop_if_failed": "never",
    "agents.player.max_tokens": 4,
    "evaluation.validation_tasks": 2,
    "evaluation.test_tasks": 2,
    "forest.probe_tokens": 64,
    "engine.probe_tokens": 64,
}
NEW = {
    "warmup.steps": 2,
    "warmup.cooldown": 0,
    "warmup.perception_tasks": 2,
    "optimizer.warmup_steps": 0,
    "policies.main.nano": {"hidden": 32, "layers": 2, "heads": 2, "kv_heads": 1, "head_dim": 16},
}
"""Settings of a model that is made on the spot, besides."""
FILE = re.compile(r"[Tt]he file `([\w.]+\.py)`:\n\n```python\n(.*?)^```$", re.DOTALL | re.MULTILINE)
"""A block that a page calls a file, which other code names."""
PYTHON = {page: list(each) for page, each in groupby(in_language("python"), lambda b: b.page)}


def given(page):
    """Return what a page's text, and not its code, says that there is."""
    if page == "README.md":
        return {"MyEnv": find_env(f"{ROOT}/examples/03_an_env_of_your_own.py:Crossing")}
    return {"rows": [{"prompt": f"Say {word}."} for word in ("yes", "no")]}


@pytest.mark.parametrize("page", PYTHON, ids=lambda page: page.name)
def test_python_runs(page, tmp_path, monkeypatch, small_model, request):
    blocks = PYTHON[page]
    if any("sandbox" in block.text or "rewards" in block.text for block in blocks):
        request.getfixturevalue("isolated")  # skips where no program can be isolated
    train = tw.train

    def few(model, *rows, settings=None, **named):
        new = model == "nano"
        model = "nano" if new else str(small_model("qwen3"))
        less = FEW | (NEW if new else {}) | (settings or {})
        return train(model, *rows, settings=less, **named)

    monkeypatch.chdir(tmp_path)
    for name, text in FILE.findall(page.read_text(encoding="utf-8")):
        (tmp_path / name).write_text(text, encoding="utf-8")
    monkeypatch.setattr(tw, "train", few)
    space = {"__name__": "__main__"} | given(page.name)
    for block in blocks:
        code = compile(block.text, str(block), "exec", dont_inherit=True)
        if block.reason is None:
            exec(code, space)
    if "outcome" in space:
        assert space["outcome"].scores.tasks
