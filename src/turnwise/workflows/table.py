"""The table of workflows, and workflows from a user's file, with their options.

Provides `WorkflowConfig`, the `[workflow]` section of a recipe, and `make_workflow`. To add a
workflow, write a file with its function or class, and add a line here and a test.
"""

from __future__ import annotations

import inspect
from typing import Any

from pydantic import Field

from turnwise.envs import IMPORTING
from turnwise.envs.user_calls import call_env
from turnwise.errors import ConfigError, unknown_name
from turnwise.settings import Settings, parse
from turnwise.utils.user_code import is_import_name, load_object
from turnwise.workflows.base import Workflow
from turnwise.workflows.state_machine import StateMachine
from turnwise.workflows.turns import turns

WORKFLOWS: dict[str, Any] = {"turns": turns, "state-machine": StateMachine}
"""Name -> an async function of the agents and the first state, or a class. A class has
`config_class`, is made with an instance of it, and is called as the function is."""


class WorkflowConfig(Settings):
    """The order in which agents act, and its options.

    Example:
        >>> WorkflowConfig().kind
        'turns'
    """

    kind: str = "turns"
    """The workflow: a name in the table of workflows, or "file.py:name" for one of your own, an
    async function of the agents and the first state, or a class with `config_class`."""
    options: dict[str, Any] = Field(default_factory=dict)
    """The options of a workflow that is a class."""


def make_workflow(config: WorkflowConfig) -> Workflow:
    """Return the workflow that a recipe names.

    Raises:
        UnknownNameError: if no workflow has this name.
        ConfigError: if the object in the file is no workflow, or an option is wrong.
        BrokenEnvError: if importing the file or making the workflow raises or takes too long.

    Example:
        >>> make_workflow(WorkflowConfig(kind="turns")).__name__
        'turns'
    """
    name = config.kind
    if is_import_name(name):
        title = f"importing the workflow {name!r}"
        found = call_env(None, "__init__", IMPORTING, load_object, name, title=title)
    elif name in WORKFLOWS:
        found = WORKFLOWS[name]
    else:
        raise unknown_name("workflow", name, WORKFLOWS)
    if not isinstance(found, type):
        if not inspect.iscoroutinefunction(found):
            raise ConfigError(
                f"workflow {name!r} is not an async function: write `async def name(agents, "
                "state)`, "
                "or a class with `config_class` and such a `__call__`"
            )
        if config.options:
            raise ConfigError(
                f"workflow {name!r} takes no options, got {', '.join(config.options)}: leave them "
                "out, or write it as a class with `config_class`"
            )
        _check_arguments(name, found, "agents", "state")
        return found
    options = inspect.getattr_static(found, "config_class", None)
    called = inspect.getattr_static(found, "__call__", None)
    if not (isinstance(options, type) and issubclass(options, Settings)):
        raise ConfigError(
            f"workflow {name!r} has no `config_class`: set it to a class derived from "
            "turnwise.settings.Settings that declares its options"
        )
    if not inspect.iscoroutinefunction(called):
        raise ConfigError(f"workflow {name!r} needs `async def __call__(self, agents, state)`")
    _check_arguments(name, called, "self", "agents", "state")
    given = parse(options, config.options, f"workflow {name!r}")
    return call_env(
        None, "__init__", IMPORTING, found, given, title=f"making the workflow {name!r}"
    )


def _check_arguments(name: str, function: Any, *arguments: str) -> None:
    """Refuse a workflow that cannot be called with the agents and the first state."""
    signature = inspect.signature(function)
    try:
        signature.bind(*arguments)
    except TypeError as problem:
        raise ConfigError(
            f"workflow {name!r}: {function.__name__}{signature} cannot be called ({problem}): "
            f"write async def {function.__name__}({', '.join(arguments)})"
        ) from None
