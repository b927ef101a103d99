"""Python source as a syntax tree."""

from __future__ import annotations

import ast
import gc


def syntax_tree(source: str | bytes) -> ast.Module:
    """Return `ast.parse(source)`, with the garbage collector off while the tree is made.

    Python 3.11 has one counter for the depth of all trees that are being made. A finalizer that the
    collector runs meanwhile may make another tree (to print a warning, for example), and the first
    one is then refused: "SystemError: AST constructor recursion depth mismatch".
    """
    collects = gc.isenabled()
    gc.disable()
    try:
        return ast.parse(source)
    finally:
        if collects:
            gc.enable()
