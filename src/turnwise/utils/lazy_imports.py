"""Package names that are imported when they are first used.

Provides `lazy_names`, with which a package offers names whose modules import torch without
importing torch itself. A mistyped recipe is then reported in a fraction of a second.
"""

from __future__ import annotations

import difflib
import importlib
import sys
from collections.abc import Callable, Mapping
from typing import Any


def lazy_names(
    package: str, homes: Mapping[str, str]
) -> tuple[Callable[[str], Any], Callable[[], list[str]]]:
    """Return the `__getattr__` and the `__dir__` of a package that imports its names lazily.

    Args:
        package: the package's `__name__`.
        homes: public name -> the module that defines it, as "package.module". The home of a
            submodule is the submodule itself, "package.name". No other name may equal the name of
            a submodule of `package`, because Python binds that to the same attribute.

    Example:
        >>> get, names = lazy_names("turnwise", {"unknown_name": "turnwise.errors"})
        >>> get("unknown_name").__name__, "unknown_name" in names()
        ('unknown_name', True)
    """

    def get(name: str) -> Any:
        if name not in homes:
            near = difflib.get_close_matches(name, homes, n=1, cutoff=0.6)
            hint = f", did you mean {near[0]!r}?" if near else f"; it has {', '.join(homes)}"
            raise AttributeError(f"module {package!r} has no attribute {name!r}{hint}")
        module = importlib.import_module(homes[name])
        value = module if homes[name] == f"{package}.{name}" else getattr(module, name)
        setattr(sys.modules[package], name, value)
        return value

    def names() -> list[str]:
        return sorted(
            {*homes, *vars(sys.modules[package]).get("__all__", ()), "__all__", "__doc__"}
        )

    return get, names
