"""Objects of the user that a recipe names: "file.py:Name" or "package.module:Name".

Provides `load_object`, from a name to an object, and `import_name`, from an object to its name. A
run that gets objects in Python writes their names into its recipe, so that a resumed run finds them
again. Loading a name runs code. Names come only from the user, never from a model.

A file may import modules of its folder, as with `python file.py`: the folder is first on `sys.path`
during the import. Python keeps one module per name, so a second folder with a module of the same
name is refused.
"""

from __future__ import annotations

import ast
import importlib
import importlib.util
import sys
import sysconfig
import traceback
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from functools import lru_cache
from pathlib import Path
from types import ModuleType
from typing import Any

from turnwise.errors import ConfigError, unknown_name
from turnwise.utils.python_source import syntax_tree

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
"""Exceptions that a mistake in the user's module may raise."""
SESSION = "session"
"""The module in names of objects that were passed in Python and have no other name."""
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


def is_function(thing: Any) -> bool:
    """Whether `thing` can be called and is no class.

    Example:
        >>> is_function(len), is_function(int)
        (True, False)
    """
    return callable(thing) and not isinstance(thing, type)


def load_object(name: str, wanted: Callable[[Any], bool] = callable) -> Any:
    """Return the object called `name`.

    Args:
        name: "file.py:Name", a path from the working directory or an absolute one (a recipe's are
            looked for beside it first, `recipe.schema`); or "package.module:Name", as Python
            imports it. A file may import its neighbours at the top; inside functions only those
            that were imported at the top too.
        wanted: whether an object is of the kind that is looked for. The error for a name that is
            not there offers such objects. The object itself may be of any kind.

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
                f"{attribute!r} was handed over in Python and is in no file: give it again, as "
                "turnwise.resume(run, reward=...) or (run, env=...), or put it into a file and "
                "name it 'file.py:Name'"
            )
        return _HANDED[attribute]
    module = _module_of(source, name)
    if attribute not in vars(module):
        offered = [
            title for title, value in vars(module).items() if title[0] != "_" and wanted(value)
        ]
        mine = [title for title in offered if _is_defined_in(module, vars(module)[title])]
        raise ConfigError(f"{name!r}: {unknown_name('name', attribute, mine or offered)}")
    return vars(module)[attribute]


def names_in(source: str, base: type) -> list[str]:
    """Return "file.py:Class" for each class defined in a file or module that derives from `base`.

    Classes that the file imports are not included.
    """
    module = _module_of(source, source)
    found = [v for v in vars(module).values() if isinstance(v, type) and issubclass(v, base)]
    return [f"{source}:{kind.__name__}" for kind in found if kind.__module__ == module.__name__]


def _is_defined_in(module: ModuleType, thing: Any) -> bool:
    """Whether a class or function, or the class of another object, is defined in `module`."""
    kind = thing if hasattr(thing, "__module__") else type(thing)
    return kind.__module__ == module.__name__


def import_name(thing: Callable[..., Any]) -> str | None:
    """Return the name under which `load_object` finds a class or function, or None.

    The result is None for lambdas, for objects defined inside a function and for those typed into a
    session. A module of the user's is named by its file, because its module name is valid only if
    its folder is on `sys.path`, which is not so for `turnwise resume`.

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
    if title == "__main__" or title.startswith(_FILE) or _is_user_file(module):
        file = vars(module).get("__file__")
        return None if file is None else f"{Path(file).resolve()}:{attribute}"
    return f"{title}:{attribute}"


def hand_over(thing: Any, title: str) -> str:
    """Register `thing` for this process; return the name under which `load_object` finds it.

    An object with the same title is replaced.

    Example:
        >>> name = hand_over(lambda: 7, "seven")
        >>> name, load_object(name)()
        ('session:seven', 7)
    """
    assert title.isidentifier(), title
    _HANDED[title] = thing
    return f"{SESSION}:{title}"


def file_being_imported() -> str | None:
    """Return the user's file that `load_object` is importing now, or None.

    A training call at the top level of that file would run at every import.
    """
    return _RUNNING[-1] if _RUNNING else None


def _line_of(cause: BaseException) -> str:
    """Return the file and line where an exception was raised."""
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
        cure = ""
        if isinstance(cause, ModuleNotFoundError) and source.endswith(".py"):
            cure = f": install it, or put it into '{Path(source).resolve().parent}'"
        elif isinstance(cause, ModuleNotFoundError) and source.startswith(str(cause.name)):
            cure = ": install it, or name the folder that holds it in PYTHONPATH"
        raise ConfigError(
            f"{name!r}: importing it raised {type(cause).__name__}: {cause} "
            f"({_line_of(cause)}){cure}"
        ) from cause


@lru_cache
def _module_of_file(path: Path) -> ModuleType:
    if not path.is_file():
        raise ConfigError(
            f"no file at '{path}': give a .py file that exists; a relative path begins in the "
            "working directory, in a recipe also in the recipe's folder"
        )
    for loaded in map(sys.modules.get, ("__main__", path.stem)):
        own = vars(loaded).get("__file__") if loaded else None
        if loaded is not None and own is not None and Path(own).resolve() == path:
            return loaded  # the running script or an imported module: do not run it again
    title = f"{_FILE}{abs(hash(path)):x}"
    spec = importlib.util.spec_from_file_location(title, path)
    assert spec is not None and spec.loader is not None, "a .py file has a loader"
    module = importlib.util.module_from_spec(spec)
    sys.modules[title] = module  # before it runs, because dataclasses look up their module by name
    whole = False
    _RUNNING.append(str(path))
    try:
        with _neighbours(path):
            spec.loader.exec_module(module)
        whole = True
    finally:
        _RUNNING.pop()
        if not whole:
            del sys.modules[title]
    return module


@contextmanager
def _neighbours(path: Path) -> Iterator[None]:
    """Allow imports from the folder of `path` in the block; on failure, unload those modules.

    Raises:
        ConfigError: if a required module has the name of one that is loaded from another folder.
    """
    _refuse_clashes(path)
    folder, before = str(path.parent), set(sys.modules)
    sys.path.insert(0, folder)
    importlib.invalidate_caches()  # a module may have been written a moment ago
    whole = False
    try:
        yield
        whole = True
    finally:
        if folder in sys.path:  # the file may have changed the path itself
            sys.path.remove(folder)
        for name in () if whole else set(sys.modules) - before:
            if _is_neighbour(sys.modules[name], path.parent):
                del sys.modules[name]


def _refuse_clashes(path: Path) -> None:
    """Refuse an import that would silently use another folder's module of the same name."""
    folder, waiting, seen = path.parent, [path], set[Path]()
    while waiting:
        file = waiting.pop()
        if file in seen:
            continue
        seen.add(file)
        for name in _imported_by(file):
            places = (folder / f"{name}.py", folder / name / "__init__.py")
            mine = next((place for place in places if place.is_file()), None)
            if mine is None or name in sys.stdlib_module_names or name == "turnwise":
                continue
            loaded = sys.modules.get(name)
            if loaded is not None and not _is_neighbour(loaded, folder):
                other = vars(loaded).get("__file__")
                raise ConfigError(
                    f"'{file}' imports '{mine}', but a module {name!r} is already loaded from "
                    f"'{other}': rename one of the two"
                )
            waiting.append(mine)


def _imported_by(file: Path) -> set[str]:
    """Return the top-level names of the modules that a file imports; none for a syntax error."""
    try:
        tree = syntax_tree(file.read_bytes())
    except (SyntaxError, ValueError):
        return set()  # importing the file reports the error with its line
    found = set()
    for node in ast.walk(tree):
        if isinstance(node, ast.Import):
            found |= {alias.name.partition(".")[0] for alias in node.names}
        elif isinstance(node, ast.ImportFrom) and node.module and not node.level:
            found.add(node.module.partition(".")[0])
    return found


def _is_user_file(module: ModuleType) -> bool:
    """Whether a module is a single file outside of packages and installed distributions."""
    file = vars(module).get("__file__")
    if file is None or Path(file).name != f"{module.__name__}.py":
        return False
    installed = (sysconfig.get_path(kind) for kind in ("stdlib", "purelib", "platlib"))
    return not any(Path(file).resolve().is_relative_to(Path(path).resolve()) for path in installed)


def _is_neighbour(module: ModuleType, folder: Path) -> bool:
    """Whether a module lies directly in `folder`, not in a `.venv` or `src` below it."""
    file = vars(module).get("__file__")
    if file is None or not Path(file).resolve().is_relative_to(folder):
        return False
    root = module.__name__.partition(".")[0]
    return Path(file).resolve().relative_to(folder).parts[0] in (root, f"{root}.py")
