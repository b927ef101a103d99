"""A tool role's program in the sandbox, with the functions of the library.

Provides `run_tool`. The program may call the functions by name with the words of a call, as in
`apply("UP RIGHT")`, and use `position`. What it prints is its result.
"""

from __future__ import annotations

import inspect
from collections.abc import Sequence
from functools import cache
from types import ModuleType
from typing import Any

from turnwise.envs.planning import library
from turnwise.sandbox import Limits, run

LIMITS = Limits(cpu=1.0, wall=10.0, output=4096)
_FUNCTIONS = """
import sys, types
def loaded(name, source):
    sys.modules[name] = module = types.ModuleType(name)
    exec(compile(source, f"<{name}>", "exec"), module.__dict__)
    return module
library, rules = loaded("library", LIBRARY), loaded("rules", RULES)
def function(name, position, most):
    def call(*words):
        asked = [name, *" ".join(map(str, words)).split()]
        return library.answer(rules, position, asked, most)
    return call
def functions(values, most):
    position = rules.Position(*values)
    names = (library.LEGAL, library.APPLY, *rules.QUERIES)
    return {"position": position, **{name: function(name, position, most) for name in names}}
"""


@cache
def _before(rules: library.Rules) -> str:
    """Return one line that defines the functions for the variables `given` and `most`."""
    assert isinstance(rules, ModuleType), "rules are a module"
    sources = {"LIBRARY": inspect.getsource(library), "RULES": inspect.getsource(rules)}
    space = "{**" + repr(sources) + "}"
    return (
        f"_space = {space}; exec(compile({_FUNCTIONS!r}, '<functions>', 'exec'), _space); "
        "globals().update(_space['functions'](given, most)); del _space, given, most"
    )


def run_tool(
    rules: library.Rules, program: str, position: Sequence[Any], most: int
) -> tuple[str, bool]:
    """Run a program; return what it printed, and whether it ended without a failure.

    Printed text is cut to `library.MOST_SHOWN` printable characters of ASCII and newlines.

    Raises:
        SandboxError: if the sandbox itself fails.
    """
    inputs = {"given": list(position), "most": most}
    result = run(f"{_before(rules)}\n{program}", inputs, LIMITS)
    printed = "".join(c for c in result.stdout if c == "\n" or " " <= c <= "~")
    return printed[: library.MOST_SHOWN].strip(), result.ok
