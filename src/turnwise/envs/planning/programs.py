"""A tool role's program in the sandbox, with the functions of the library.

Provides `run_tool` and `Printed`. The program may call the functions by name with the words of a
call, as in `apply("UP RIGHT")`, and use `position`. What it prints is its result.
"""

from __future__ import annotations

import inspect
from collections.abc import Sequence
from functools import cache
from types import ModuleType
from typing import Any, NamedTuple

from turnwise.envs.planning import library
from turnwise.sandbox import Limits, run

LIMITS = Limits(cpu=1.0, wall=10.0, output=4096)
BYTE_ORDER_MARK = "\ufeff"
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


class Printed(NamedTuple):
    """What a program printed, and whether it ended without a failure.

    `shown` is cut to `library.MOST_SHOWN` characters, `last` is the last line of the whole output.
    Other characters than those of printable ASCII are blanks.
    """

    shown: str
    last: str
    ok: bool


def run_tool(rules: library.Rules, program: str, position: Sequence[Any], most: int) -> Printed:
    """Run a program with the functions of the library.

    Raises:
        SandboxError: if the sandbox itself fails.
    """
    inputs = {"given": list(position), "most": most}
    # compiled by itself, so that it may begin with `from __future__ import`
    whole = f"exec(compile({program.removeprefix(BYTE_ORDER_MARK)!r}, '<program>', 'exec'))"
    result = run(f"{_before(rules)}\n{whole}", inputs, LIMITS)
    printed = "".join(c if c == "\n" or " " <= c <= "~" else " " for c in result.stdout).strip()
    return Printed(
        shown=printed[: library.MOST_SHOWN].strip(),
        last=printed.rpartition("\n")[2],
        ok=result.ok,
    )
