"""The names of `import turnwise`, which costs nothing until a name is used."""

from __future__ import annotations

import pydoc
import re
import subprocess
import sys
from pathlib import Path

import pytest

import turnwise as tw
from turnwise import errors
from turnwise.utils.documents import document_names, read_document


def test_all_public_names_are_there_and_listed():
    for name in tw.__all__:
        assert getattr(tw, name) is not None
    assert set(tw.__all__) <= set(dir(tw))
    kinds = [n for n, v in vars(errors).items() if isinstance(v, type) and not n.startswith("_")]
    assert {name for name in kinds if issubclass(vars(errors)[name], BaseException)} <= set(
        tw.__all__
    )
    assert tw.__version__.count(".") == 2


def test_a_star_import_brings_all_of_it():
    space = {}
    exec("from turnwise import *", space)
    assert set(tw.__all__) <= set(space)


SUBPACKAGES = """
import sys
import turnwise as tw
for name in {names!r}:
    assert name in dir(tw), name
    assert getattr(tw, name).__name__ == "turnwise." + name
assert callable(tw.rewards.passes_tests)
assert "torch" not in sys.modules
"""


def test_a_documented_subpackage_needs_no_import_of_its_own():
    """In a fresh process, because importing a subpackage anywhere binds its name."""
    texts = [read_document(name) for name in document_names()]
    texts.append((Path(__file__).parents[1] / "README.md").read_text(encoding="utf-8"))
    home = Path(tw.__file__).parent
    named = {name for text in texts for name in re.findall(r"\b(?:turnwise|tw)\.([a-z_]+)", text)}
    names = {n for n in named if (home / n).is_dir() or (home / f"{n}.py").is_file()}
    names |= {"rewards", "sandbox", "errors", "envs", "tasks"}
    script = SUBPACKAGES.format(names=sorted(names))
    done = subprocess.run([sys.executable, "-c", script], capture_output=True, text=True)
    assert done.returncode == 0, done.stderr


def test_help_cites_nothing_that_its_reader_does_not_have():
    for name in set(tw.__all__) - {"__version__"}:
        text = pydoc.plain(pydoc.render_doc(getattr(tw, name)))
        assert "MATH" not in text, name
    assert '"process"' in (tw.Env.__doc__ or "")


def test_a_misspelt_name_gets_the_nearest():
    with pytest.raises(AttributeError, match="did you mean 'train'"):
        tw.trian  # noqa: B018


QUICK = {
    "a misspelt recipe": ["train", "frozen-lak"],
    "a misspelt section": ["train", "frozen-lake", "--set", "trainr.x=1"],
    "a misspelt model": ["train", "frozen-lake", "--set", "policies.main.model=nanoo"],
    "a run that is not there": ["resume", "nowhere"],
    "a run to score that is not there": ["eval", "nowhere"],
    "a run to watch that is not there": ["play", "frozen-lake", "--run", "nowhere"],
    "a misspelt drawing": ["solve", "12-square"],
    "a drawing without a base": ["solve", "12-squares"],
    "a base that is not there": ["solve", "12-squares", "--base", "nowhere"],
    "a model of no size": ["init", "x", "--size", "huge"],
    "a workload that is not there": ["bench", "step", "--workload", "nanoo"],
    "a rate of nothing": ["bench", "roofline", "--workload", "nanoo"],
    "growth of nothing": ["bench", "growth", "--model", "nanoo"],
    "the workloads": ["bench", "workloads"],
    "help": ["-h"],
    "the version": ["--version"],
    "the recipes": ["recipes"],
    "the envs": ["envs"],
}
SCRIPT = """
import sys
from turnwise.cli.main import app
for arguments in {quick!r}:
    try:
        app(arguments, prog_name="turnwise")
    except SystemExit:
        pass
    for heavy in ("torch", "transformers", "peft"):
        assert heavy not in sys.modules, (heavy, arguments)
import turnwise as tw
for name in ("nanoo", "Nano"):
    try:
        tw.train(name, env="frozen-lake")
    except tw.ConfigError as error:
        assert "did you mean 'nano'" in str(error), error
    assert "torch" not in sys.modules
"""


def test_what_can_be_refused_cheaply_never_loads_torch(tmp_path):
    script = SCRIPT.format(quick=list(QUICK.values()))
    done = subprocess.run(
        [sys.executable, "-c", script], capture_output=True, text=True, cwd=tmp_path
    )
    assert done.returncode == 0, done.stderr
    assert list(tmp_path.iterdir()) == []


def test_every_document_that_a_message_names_can_be_read():
    assert "why-is-it-not-learning" in document_names()
    for name in document_names():
        assert read_document(name) == read_document(f"docs/{name}.md")
