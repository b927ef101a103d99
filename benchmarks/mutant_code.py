"""Which test executes which line, and how a module gets other code: the parts of `mutants.py`."""

from __future__ import annotations

import ast
import gc
import importlib.abc
import importlib.util
import time
from collections import defaultdict
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path
from types import CodeType, FunctionType
from typing import Any

import pytest

ROOT = Path(__file__).parents[1]


class Coverage:
    """A pytest plugin: which lines of the packages each test executes, and its CPU time.

    Lines that a fixture executes count for all tests that use the fixture. `hit` is called by
    every statement of a function (`Instrumented`), which costs nothing elsewhere.
    """

    def __init__(self) -> None:
        self.lines: dict[str, set[tuple[str, int]]] = defaultdict(set)
        self.users: dict[str, list[str]] = defaultdict(list)
        self.seconds: dict[str, float] = defaultdict(float)
        self.passed: set[str] = set()
        self.here = "nowhere"

    def hit(self, file: str, first: int, last: int) -> None:
        """Note that a statement runs."""
        self.lines[self.here].update((file, line) for line in range(first, last + 1))

    @contextmanager
    def _at(self, place: str) -> Iterator[None]:
        before, self.here = self.here, place
        try:
            yield
        finally:
            self.here = before

    @pytest.hookimpl(wrapper=True)
    def pytest_runtest_protocol(self, item: pytest.Item) -> Any:
        """Time one test, whose name is the place of what it executes."""
        for name in getattr(item, "fixturenames", ()):
            self.users[item.nodeid].append(f"fixture {name}")
        began = time.process_time()
        try:
            with self._at(item.nodeid):
                return (yield)
        finally:
            self.seconds[item.nodeid] = time.process_time() - began

    @pytest.hookimpl(wrapper=True)
    def pytest_fixture_setup(self, fixturedef: Any) -> Any:
        """Let what a shared fixture executes count for all who use it."""
        if fixturedef.scope == "function":
            return (yield)
        with self._at(f"fixture {fixturedef.argname}"):
            return (yield)

    def pytest_runtest_logreport(self, report: pytest.TestReport) -> None:
        """Keep the tests that pass."""
        if report.when == "call" and report.passed:
            self.passed.add(report.nodeid)

    def table(self) -> dict[str, Any]:
        """Return test -> CPU seconds and file -> lines."""
        out: dict[str, Any] = {}
        for test in sorted(self.passed):
            places = [self.lines[name] for name in (test, *self.users[test])]
            by_file: dict[str, list[int]] = defaultdict(list)
            for file, line in sorted(set().union(*places)):
                by_file[file].append(line)
            out[test] = {"seconds": self.seconds[test], "lines": by_file}
        return out


class Overlay(importlib.abc.MetaPathFinder, importlib.abc.Loader):
    """Imports one module from other code than its file has, with further names in it."""

    def __init__(self, path: Path, code: str | ast.Module, **names: Any) -> None:
        parts = path.relative_to(ROOT / "src").with_suffix("").parts
        self.name = ".".join(parts).removesuffix(".__init__")
        self.path, self.code, self.names = path, code, names

    def find_spec(self, name: str, path: Any = None, target: Any = None) -> Any:
        """Return the spec of the changed module, None for all others."""
        if name != self.name:
            return None
        below = [str(self.path.parent)] if self.path.name == "__init__.py" else None
        return importlib.util.spec_from_file_location(
            name, self.path, loader=self, submodule_search_locations=below
        )

    def create_module(self, spec: Any) -> None:
        """Leave the making of the module to Python."""

    def exec_module(self, module: Any) -> None:
        """Run the changed code in the module."""
        module.__dict__.update(self.names)
        exec(compile(self.code, str(self.path), "exec"), module.__dict__)


def instrumented(path: Path) -> ast.Module:
    """Return a file's code, in which every statement of a function first calls `__hit__`."""
    tree = ast.parse(path.read_text())
    for node in ast.walk(tree):
        if isinstance(node, ast.FunctionDef | ast.AsyncFunctionDef):
            node.body = _with_hits(node.body, str(path.relative_to(ROOT)))
    return ast.fix_missing_locations(tree)


def _with_hits(statements: list[Any], file: str) -> list[Any]:
    """Return statements and those below them, each after a call of `__hit__` with its lines."""
    out: list[Any] = []
    for statement in statements:
        below = [statement, *getattr(statement, "handlers", ()), *getattr(statement, "cases", ())]
        first, last = statement.lineno, statement.end_lineno
        for holder in below:
            for field in ("body", "orelse", "finalbody"):
                inner = getattr(holder, field, None)
                if isinstance(inner, list) and inner and isinstance(inner[0], ast.stmt):
                    last = max(first, min(last, inner[0].lineno - 1))
                    if not isinstance(
                        holder, ast.FunctionDef | ast.AsyncFunctionDef | ast.ClassDef
                    ):
                        setattr(holder, field, _with_hits(inner, file))
        call = ast.parse(f"__hit__({file!r}, {first}, {last})").body[0]
        out += [ast.copy_location(call, statement), statement]
    return out


def nested(code: CodeType) -> Iterator[CodeType]:
    """Yield the code of all functions below some code."""
    for value in code.co_consts:
        if isinstance(value, CodeType):
            yield value
            yield from nested(value)


def by_name(code: CodeType) -> dict[str, list[CodeType]]:
    """Return name -> the functions of that name, in the order of the source."""
    out: dict[str, list[CodeType]] = defaultdict(list)
    for found in nested(code):
        out[found.co_qualname].append(found)
    return out


def give_new_code(path: Path, source: str) -> bool:
    """Give the living functions of a file their code of a changed source; return if that did it.

    It does not where the change adds or removes a function, or concerns none that is alive.
    """
    before = compile(path.read_text(), str(path), "exec", dont_inherit=True)
    after = by_name(compile(source, str(path), "exec", dont_inherit=True))
    old = by_name(before)
    if {name: len(found) for name, found in old.items()} != {
        name: len(found) for name, found in after.items()
    }:
        return False
    new = {
        (name, one.co_firstlineno): other
        for name, found in old.items()
        for one, other in zip(found, after[name], strict=True)
        if one != other
    }
    alive = [
        (found, new[found.__code__.co_qualname, found.__code__.co_firstlineno])
        for found in gc.get_objects()
        if type(found) is FunctionType
        and found.__code__.co_filename == str(path)
        and (found.__code__.co_qualname, found.__code__.co_firstlineno) in new
    ]
    if any(len(found.__code__.co_freevars) != len(code.co_freevars) for found, code in alive):
        return False
    for found, code in alive:
        found.__code__ = code
    return bool(alive)
