"""Things of the user's that a recipe names: "file.py:Name" or "package.module:Name".

Owns the way from such a name to the object and back, so that what is handed over in Python can be
written into a recipe and found again by a run that goes on. Naming code in a recipe runs it: only
the user's own words come here, never a model's.
"""

from __future__ import annotations

import importlib
import importlib.util
import sys
import traceback
from collections.abc import Callable
from functools import lru_cache
from pathlib import Path
from types import ModuleType
from typing import Any

from turnwise.errors import ConfigError, unknown_name

MISTAKES = (
    ArithmeticError,
    AssertionError,
    AttributeError,
    ImportError,
    LookupError,
    NameError,
    OSError,
    RuntimeError,
    SyntaxError,
    TypeError,
    ValueError,
)
"""What the user's own module may raise by an oversight."""
SESSION = "session"
"""The module, in names, of what was handed over in Python and is found under no other name."""
_FILE = "turnwise_user_file_"
_HANDED: dict[str, Any] = {}
_RUNNING: list[str] = []


def is_import_name(name: str) -> bool:
    """Whether `name` has the form "file.py:Name" or "package.module:Name".

    Example:
        >>> is_import_name("my_env.py:MyEnv"), is_import_name("frozen-lake")
        (True, False)
    """
    module, colon, attribute = name.rpartition(":")
    return bool(colon and module) and attribute.isidentifier()


def load_object(name: str) -> Any:
    """Return the object called `name`.

    Args:
        name: "file.py:Name", a path from the working directory or an absolute one; or
            "package.module:Name", as Python imports it.

    Raises:
        ConfigError: if the name has another form, or the file, the module or the object is not
            there, or importing it fails; the message gives the cause.

    Example:
        >>> load_object("math:tau") > 6
        True
    """
    if not is_import_name(name):
        raise ConfigError(f"{name!r} must look like 'file.py:Name' or 'package.module:Name'")
    source, _, attribute = name.rpartition(":")
    if source == SESSION:
        if attribute not in _HANDED:
            raise ConfigError(
                f"{attribute!r} was handed over in Python and is not in a file: go on from Python "
                "and hand it over again, or put it into a file and name it 'file.py:Name'"
            )
        return _HANDED[attribute]
    module = _module_of(source, name)
    if attribute not in vars(module):
        mine = (n for n, v in vars(module).items() if not n.startswith("_") and callable(v))
        raise ConfigError(f"{name!r}: {unknown_name('name', attribute, mine)}")
    return vars(module)[attribute]


def import_name(thing: Callable[..., Any]) -> str | None:
    """Return the name under which `load_object` finds a class or function; None if under none.

    None for what is made inside a function, is a lambda, or was typed into a session.

    Example:
        >>> import_name(unknown_name)
        'turnwise.errors:unknown_name'
        >>> import_name(lambda: 0) is None
        True
    """
    attribute, title = thing.__qualname__, thing.__module__
    module = sys.modules.get(title)
    if not attribute.isidentifier() or module is None or vars(module).get(attribute) is not thing:
        return None
    if title == "__main__" or title.startswith(_FILE):
        file = vars(module).get("__file__")
        return None if file is None else f"{Path(file).resolve()}:{attribute}"
    return f"{title}:{attribute}"


def hand_over(thing: Any, title: str) -> str:
    """Keep `thing` for this process; return the name under which `load_object` finds it.

    What has the same title is replaced.

    Example:
        >>> name = hand_over(lambda: 7, "seven")
        >>> name, load_object(name)()
        ('session:seven', 7)
    """
    assert title.isidentifier(), title
    _HANDED[title] = thing
    return f"{SESSION}:{title}"


def file_being_imported() -> str | None:
    """Return the user's file that `load_object` is importing at this moment, if any.

    Training from inside it would begin whenever anything is looked up in that file.
    """
    return _RUNNING[-1] if _RUNNING else None


def _line_of(cause: BaseException) -> str:
    """Return file:line of where something was raised, innermost."""
    place = traceback.extract_tb(cause.__traceback__)[-1]
    return f"{Path(place.filename).name}:{place.lineno}"


def _module_of(source: str, name: str) -> ModuleType:
    try:
        if source.endswith(".py"):
            return _module_of_file(Path(source).resolve())
        return importlib.import_module(source)
    except ConfigError:
        raise
    except MISTAKES as cause:
        raise ConfigError(
            f"{name!r}: importing it raised {type(cause).__name__}: {cause} ({_line_of(cause)})"
        ) from cause


@lru_cache
def _module_of_file(path: Path) -> ModuleType:
    if not path.is_file():
        raise ConfigError(f"no file at '{path}': give a .py file that exists")
    main = sys.modules.get("__main__")
    own = vars(main).get("__file__") if main else None
    if main is not None and own is not None and Path(own).resolve() == path:
        return main  # the running script: a second import would run it again
    title = f"{_FILE}{abs(hash(path)):x}"
    spec = importlib.util.spec_from_file_location(title, path)
    assert spec is not None and spec.loader is not None, "a .py file has a loader"
    module = importlib.util.module_from_spec(spec)
    sys.modules[title] = module  # before it runs: dataclasses look their module up by name
    whole = False
    _RUNNING.append(str(path))
    try:
        spec.loader.exec_module(module)
        whole = True
    finally:
        _RUNNING.pop()
        if not whole:
            del sys.modules[title]
    return module
