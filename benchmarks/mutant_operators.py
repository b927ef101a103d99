"""The small faults of `mutants.py`: what is changed in a file, one place at a time.

| change | from | to |
|---|---|---|
| comparison | `<`, `<=`, `>`, `>=` | the other side of equality, and the opposite |
| | `==`, `is`, `in` | `!=`, `is not`, `not in`, and back |
| logic | `and`, `not x`, `any` | `or`, `x`, `all`, and back |
| arithmetic | `+`, `*`, `//`, `%`, `**`, `&` | `-`, `/`, `/`, `*`, `*`, the bitwise or, and back |
| constant | `n`, `True`, `x` (a string that is compared) | `n + 1`, `False`, another string |
| call | two positional arguments; a keyword argument | swapped; left out |
| | `min` | `max`, and back |
| condition | `a if c else b`, a filter of a comprehension | `b if c else a`, no filter |
| statement | a call, `+=`, an assignment to an attribute or an item | nothing |
| | `break`, `continue` | `continue`, nothing |
| return | a value | `None` |

Not changed: docstrings, annotations, asserts, the words of errors, decorators, and the defaults and
bounds of settings, which are declarations. Positions are those of the source, which is otherwise
left as it is.
"""

from __future__ import annotations

import ast
from collections.abc import Iterator
from dataclasses import dataclass
from itertools import pairwise
from pathlib import Path

COMPARISONS: dict[type[ast.cmpop], tuple[str, ...]] = {
    ast.Lt: ("<=", ">="),
    ast.LtE: ("<", ">"),
    ast.Gt: (">=", "<="),
    ast.GtE: (">", "<"),
    ast.Eq: ("!=",),
    ast.NotEq: ("==",),
    ast.Is: ("is not",),
    ast.IsNot: ("is",),
    ast.In: ("not in",),
    ast.NotIn: ("in",),
}
ARITHMETIC: dict[type[ast.operator], str] = {
    ast.Add: "-",
    ast.Sub: "+",
    ast.Mult: "/",
    ast.Div: "*",
    ast.FloorDiv: "/",
    ast.Mod: "*",
    ast.Pow: "*",
    ast.BitAnd: "|",
    ast.BitOr: "&",
}
OPPOSITE = {"min": "max", "max": "min", "any": "all", "all": "any"}


@dataclass(frozen=True, slots=True)
class Mutant:
    """One change of one file: the text of `[start, end)`, in bytes, becomes `new`.

    `first` and `last` are the lines that have to run for it to matter; `text` is the source line
    and `change` the words of the change, by which a reviewed list knows it.
    """

    file: str
    first: int
    last: int
    start: int
    end: int
    new: str
    text: str
    change: str
    at_import: bool

    def apply(self, source: str) -> str:
        """Return the source with the change."""
        raw = source.encode()
        return (raw[: self.start] + self.new.encode() + raw[self.end :]).decode()

    def __str__(self) -> str:
        """Return the form in which results are kept and shown."""
        return f"{self.file}:{self.first}: {self.text!r}: {self.change}"


def mutants_of(path: Path, root: Path) -> list[Mutant]:
    """Return all mutants of a file that still are Python, in the order of the source."""
    source = path.read_text()
    return Operators(source, str(path.relative_to(root))).found


class Operators:
    """Collects the mutants of one file."""

    def __init__(self, source: str, file: str) -> None:
        self.source, self.raw, self.file = source, source.encode(), file
        self.lines = source.splitlines()
        sizes = [len(line) for line in self.raw.splitlines(keepends=True)]
        self.begins = [sum(sizes[:number]) for number in range(len(sizes) + 1)]
        self.found: list[Mutant] = []
        self.seen: set[tuple[int, int, str]] = set()
        self.deep = 0
        self.statement: ast.stmt | None = None
        self.visit(ast.parse(source))

    def at(self, line: int, column: int) -> int:
        """Return the byte of a position."""
        return self.begins[line - 1] + column

    def span(self, node: ast.AST) -> tuple[int, int]:
        """Return the bytes of a node."""
        start = self.at(node.lineno, node.col_offset)  # type: ignore[attr-defined]
        return start, self.at(node.end_lineno, node.end_col_offset)  # type: ignore[attr-defined]

    def code(self, node: ast.AST) -> str:
        """Return a node's own text."""
        start, end = self.span(node)
        return self.raw[start:end].decode()

    def add(self, node: ast.AST, new: str, span: tuple[int, int] | None = None) -> None:
        """Keep a mutant in which a node, or some bytes of it, is replaced."""
        start, end = span or self.span(node)
        old = self.raw[start:end].decode()
        mutated = (self.raw[:start] + new.encode() + self.raw[end:]).decode()
        if old == new or (start, end, new) in self.seen:
            return
        try:
            ast.parse(mutated)
        except SyntaxError:
            return
        self.seen.add((start, end, new))
        line: int = node.lineno  # type: ignore[attr-defined]
        last: int = node.end_lineno  # type: ignore[attr-defined]
        change = f"{' '.join(old.split())} -> {' '.join(new.split()) or 'nothing'}"
        text = self.lines[line - 1].strip()
        self.found.append(
            Mutant(self.file, line, last, start, end, new, text, change, at_import=not self.deep)
        )

    def visit(self, node: ast.AST) -> None:
        """Collect the mutants of a node and of all below it."""
        if isinstance(node, ast.Assert | ast.Raise | ast.Import | ast.ImportFrom):
            return
        if isinstance(node, ast.AnnAssign):  # a field's declaration, or a value with its type
            if self.deep and node.value is not None:
                self.visit(node.value)
            return
        if isinstance(node, ast.FunctionDef | ast.AsyncFunctionDef):
            for default in (*node.args.defaults, *node.args.kw_defaults):
                if default is not None:
                    self.visit(default)
            self.deep += 1
            for child in node.body:
                self.visit(child)
            self.deep -= 1
            return
        if isinstance(node, ast.If) and "TYPE_CHECKING" in ast.unparse(node.test):
            return
        if isinstance(node, ast.Assign) and "__all__" in self.code(node):
            return
        method = getattr(self, f"on_{type(node).__name__.lower()}", None)
        if method is not None:
            method(node)
        is_docstring = isinstance(node, ast.Expr) and isinstance(node.value, ast.Constant)
        for child in () if is_docstring else self.below(node):
            self.visit(child)

    def below(self, node: ast.AST) -> Iterator[ast.AST]:
        """Yield the children of a node but for annotations and a class's bases and decorators."""
        if isinstance(node, ast.ClassDef):
            yield from node.body
            return
        if isinstance(node, ast.JoinedStr):
            return
        if isinstance(node, ast.Call) and "Error" in self.code(node.func):
            return
        yield from ast.iter_child_nodes(node)

    def on_compare(self, node: ast.Compare) -> None:
        """Change the comparison, and the strings that are compared."""
        operands = [node.left, *node.comparators]
        for left, operator, right in zip(operands, node.ops, operands[1:], strict=False):
            gap = (self.span(left)[1], self.span(right)[0])
            text = self.raw[gap[0] : gap[1]].decode()
            if "(" in text or ")" in text or "\n" in text:
                continue
            for new in COMPARISONS[type(operator)]:
                self.add(node, f" {new} ", gap)
        for operand in operands:
            if isinstance(operand, ast.Constant) and isinstance(operand.value, str):
                self.add(operand, repr(operand.value + "?"))

    def on_boolop(self, node: ast.BoolOp) -> None:
        """Swap `and` and `or`."""
        word, other = (" and ", " or ") if isinstance(node.op, ast.And) else (" or ", " and ")
        for left, right in zip(node.values, node.values[1:], strict=False):
            gap = (self.span(left)[1], self.span(right)[0])
            text = self.raw[gap[0] : gap[1]].decode()
            if word.strip() in text.split():
                self.add(node, text.replace(word.strip(), other.strip()), gap)

    def on_unaryop(self, node: ast.UnaryOp) -> None:
        """Leave out `not` and signs."""
        self.add(node, f"({self.code(node.operand)})")

    def on_binop(self, node: ast.BinOp) -> None:
        """Change the arithmetic."""
        new = ARITHMETIC.get(type(node.op))
        gap = (self.span(node.left)[1], self.span(node.right)[0])
        text = self.raw[gap[0] : gap[1]].decode()
        if new is not None and not set("()#") & set(text):
            self.add(node, f" {new} ", gap)

    def on_constant(self, node: ast.Constant) -> None:
        """Change truth values and numbers."""
        if isinstance(node.value, bool):
            self.add(node, str(not node.value))
        elif isinstance(node.value, int | float):
            self.add(node, repr(node.value + 1 if node.value < 1e6 else node.value * 2))

    def on_call(self, node: ast.Call) -> None:
        """Swap two arguments, leave out a keyword, take the opposite function."""
        if isinstance(node.func, ast.Name) and node.func.id in OPPOSITE:
            self.add(node.func, OPPOSITE[node.func.id])
        plain = [arg for arg in node.args if not isinstance(arg, ast.Starred)]
        for one, two in [] if self.code(node.func) in OPPOSITE else pairwise(plain[:2]):
            between = self.raw[self.span(one)[1] : self.span(two)[0]].decode()
            new = f"{self.code(two)}{between}{self.code(one)}"
            self.add(node, new, (self.span(one)[0], self.span(two)[1]))
        for keyword in node.keywords:
            if keyword.arg is not None:
                start, end = self.span(keyword)
                comma = self.raw[end : end + 1] == b","
                self.add(keyword, "", (start, end + comma))

    def on_ifexp(self, node: ast.IfExp) -> None:
        """Take the other value."""
        body, test, other = (self.code(n) for n in (node.body, node.test, node.orelse))
        self.add(node, f"{other} if {test} else {body}")

    def on_comprehension(self, node: ast.comprehension) -> None:
        """Leave out a filter."""
        for condition in node.ifs:
            self.add(condition, "True")

    def on_if(self, node: ast.If) -> None:
        """Take the branch always, and never."""
        for new in ("True", "False"):
            self.add(node.test, new)

    def on_expr(self, node: ast.Expr) -> None:
        """Leave out a call."""
        if not isinstance(node.value, ast.Constant | ast.Yield | ast.YieldFrom):
            self.add(node, "pass")

    def on_augassign(self, node: ast.AugAssign) -> None:
        """Leave out a change of a variable."""
        self.add(node, "pass")

    def on_assign(self, node: ast.Assign) -> None:
        """Leave out what is written to an attribute or an item."""
        if self.deep and isinstance(node.targets[0], ast.Attribute | ast.Subscript):
            self.add(node, "pass")

    def on_break(self, node: ast.Break) -> None:
        """Go on instead."""
        self.add(node, "continue")

    def on_continue(self, node: ast.Continue) -> None:
        """Do what follows."""
        self.add(node, "pass")

    def on_return(self, node: ast.Return) -> None:
        """Return nothing."""
        if node.value is not None and self.code(node.value) != "None":
            self.add(node, "return None")
