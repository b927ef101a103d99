"""The faults that `make mutants` makes: where, which, and that they are applied as they say."""

import ast
import subprocess
import sys
import tomllib
from pathlib import Path

import pytest

ROOT = Path(__file__).parents[2]
sys.path.insert(0, str(ROOT / "benchmarks"))
from mutant_operators import mutants_of  # noqa: E402

SOURCE = '''"""Docstring with 1 < 2."""
LIMIT = 3
__all__ = ["f"]


class Config:
    size: int = 4


def f(a: int, b=2) -> int:
    """Return 1."""
    assert a < 9
    if a <= b and not b:
        raise ValueError(f"{a + 1} is wrong")
    for x in [y for y in range(a) if y]:
        a += g(x, b, key=a)
    g(a)
    a.size = 1 if b == "word" else min(a, b)
    return a - b
'''


@pytest.fixture(scope="module")
def changes(tmp_path_factory):
    path = tmp_path_factory.mktemp("source") / "example.py"
    path.write_text(SOURCE)
    return mutants_of(path, path.parent)


def test_every_kind_of_change_is_made(changes):
    said = {mutant.change for mutant in changes}
    assert said >= {
        "3 -> 4", "2 -> 3",  # a module's constant, a default of an argument
        "<= -> <", "<= -> >", "and -> or", "not b -> (b)", "a <= b and not b -> True",
        "y -> True", "a += g(x, b, key=a) -> pass", "x, b -> b, x", "key=a -> nothing",
        "g(a) -> pass", "== -> !=", "\"word\" -> 'word?'", "min -> max", "- -> +",
        "return a - b -> return None",
    }  # fmt: skip


def test_words_declarations_and_checks_are_left_alone(changes):
    """Docstrings, `__all__`, asserts, errors, annotations and the defaults of fields."""
    lines = SOURCE.splitlines()
    left = {"__all__", "size: int", "assert", "raise", '"""'}
    for mutant in changes:
        assert not any(word in lines[mutant.first - 1] for word in left), mutant


def test_each_mutant_is_one_change_that_is_still_python(changes):
    assert len({mutant.apply(SOURCE) for mutant in changes}) == len(changes) > 20
    for mutant in changes:
        text = mutant.apply(SOURCE)
        ast.parse(text)
        assert text != SOURCE
        same = [a == b for a, b in zip(SOURCE.splitlines(), text.splitlines(), strict=False)]
        assert same.count(False) == 1
        assert mutant.text == SOURCE.splitlines()[mutant.first - 1].strip()


def test_only_what_runs_at_import_says_so(changes):
    at_import = {mutant.change for mutant in changes if mutant.at_import}
    assert at_import == {"3 -> 4", "2 -> 3"}


def drawn(*options):
    command = [sys.executable, ROOT / "benchmarks" / "mutants.py", "--show", *options]
    return subprocess.run(command, capture_output=True, text=True, check=True).stdout.splitlines()


def test_a_larger_sample_of_a_seed_begins_with_the_smaller_one():
    few = drawn("--mutants", "5", "--seed", "7", "--only", "turnwise/credit/")
    more = drawn("--mutants", "12", "--seed", "7", "--only", "turnwise/credit/")
    assert len(few) == 5
    assert more[:5] == few
    assert drawn("--mutants", "5", "--seed", "8", "--only", "turnwise/credit/") != few


def test_mutants_that_nothing_can_kill_are_real_ones_with_a_reason():
    reviewed = tomllib.loads((ROOT / "benchmarks" / "mutants_equivalent.toml").read_text())
    for entry in reviewed["mutant"]:
        assert set(entry) == {"file", "line", "change", "reason"}
        assert len(entry["reason"].split()) > 4, entry
        known = {(m.text, m.change) for m in mutants_of(ROOT / entry["file"], ROOT)}
        assert (entry["line"], entry["change"]) in known, entry
