"""The rules of AGENTS.md that a program can check; ruff and pyright check others."""

import ast
from pathlib import Path

import pytest

SOURCE = Path(__file__).parents[1] / "src" / "turnwise"
FILES = sorted(SOURCE.rglob("*.py"))
MOST_FILE_LINES, MOST_FUNCTION_LINES = 400, 60
EVERYTHING = {"Exception", "BaseException"}
BOUNDARIES = (
    "parallel/group.py",
    *("rollout", "envs/user_calls.py", "sandbox/inside/child.py", "sandbox/inside/wire.py"),
    *("sandbox/link.py", "sandbox/pool.py"),
)
"""Where others' code runs, and everything that it raises becomes data."""


def departures(path: Path) -> list[str]:
    text = path.read_text(encoding="utf-8")
    tree = ast.parse(text)
    found = []
    if not ast.get_docstring(tree):
        found.append("no module docstring: say what it provides")
    if text.count("\n") > MOST_FILE_LINES:
        found.append(f"{text.count(chr(10))} lines: two nouns in one file?")
    for node in ast.walk(tree):
        where = str(path.relative_to(SOURCE))
        found += [f"line {node.lineno}: {words}" for words in look(node, where)]
    return found


def look(node: ast.AST, where: str) -> list[str]:
    if isinstance(node, ast.FunctionDef | ast.AsyncFunctionDef):
        lines = (node.end_lineno or node.lineno) - node.lineno + 1
        return [f"{node.name} has {lines} lines"] if lines > MOST_FUNCTION_LINES else []
    if isinstance(node, ast.ExceptHandler) and not where.startswith(BOUNDARIES):
        return ["catches everything outside the rollout boundary"] if broad(node.type) else []
    if isinstance(node, ast.Call) and isinstance(node.func, ast.Name):
        if node.func.id == "print" and not where.startswith("cli/"):
            return ["prints from the library"]
        if node.func.id == "getattr" and len(node.args) == 3:
            return ["reads an attribute with a silent default"]
    return []


def broad(caught: ast.expr | None) -> bool:
    names = caught.elts if isinstance(caught, ast.Tuple) else [caught]
    return any(n is None or (isinstance(n, ast.Name) and n.id in EVERYTHING) for n in names)


@pytest.mark.parametrize("path", FILES, ids=lambda path: str(path.relative_to(SOURCE)))
def test_source_keeps_to_the_style(path):
    assert departures(path) == []


@pytest.mark.parametrize(
    ("code", "words"),
    [
        ("print(1)", "prints"),
        ("getattr(x, 'a', None)", "silent default"),
        ("try:\n    f()\nexcept:\n    pass", "catches everything"),
        ("try:\n    f()\nexcept (ValueError, Exception):\n    pass", "catches everything"),
        ("def f():\n" + "    x = 1\n" * 60, "f has 61 lines"),
    ],
)
def test_each_departure_is_seen(code, words):
    seen = [found for node in ast.walk(ast.parse(code)) for found in look(node, "credit")]
    assert len(seen) == 1
    assert words in seen[0]
