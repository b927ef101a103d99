"""Syntax trees are made whatever the garbage collector would run meanwhile."""

import ast
import gc
from pathlib import Path

import pytest

from turnwise.utils.python_source import syntax_tree

LONG = Path(ast.__file__).read_text(encoding="utf-8")


class Parses:
    """Garbage whose finalizer makes a tree."""

    def __init__(self):
        self.itself = self

    def __del__(self):
        ast.parse("x = 1")


def deep(make, calls=5):
    return make(LONG) if not calls else deep(make, calls - 1)


def test_a_finalizer_may_make_a_tree_meanwhile():
    for _ in range(30):
        for _ in range(200):
            Parses()
        assert len(deep(syntax_tree).body) > 10


@pytest.mark.parametrize("source", ["x = 1", "x ="])
@pytest.mark.parametrize("on", [True, False])
def test_the_collector_is_left_as_it_was(source, on):
    before = gc.isenabled()
    (gc.enable if on else gc.disable)()
    try:
        syntax_tree(source)
    except SyntaxError:
        assert source == "x ="
    finally:
        after = gc.isenabled()
        (gc.enable if before else gc.disable)()
    assert after == on
