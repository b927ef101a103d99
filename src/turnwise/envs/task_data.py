"""The data of tasks, checked: whoever makes a task, an env reads plain values of the right types.

Provides `read_data`.
"""

from __future__ import annotations

from typing import TypeVar

from turnwise.errors import ConfigError, DataError
from turnwise.settings import Settings, parse
from turnwise.types import Task

D = TypeVar("D", bound=Settings)


def read_data(model: type[D], task: Task) -> D:
    """Return the data of a task as a `model`; keys that it does not have are ignored.

    Raises:
        DataError: if a key is missing, or a value has another type or is out of its limits. The
            message names the task, the key and what is expected.

    Example:
        >>> class Sizes(Settings):
        ...     size: int
        >>> read_data(Sizes, Task(id="t", env="e", seed=0, data={"size": 3, "more": 1})).size
        3
        >>> read_data(Sizes, Task(id="t", env="e", seed=0, data={"size": True}))
        Traceback (most recent call last):
            ...
        turnwise.errors.DataError: task 't': size = True: input should be a valid integer
    """
    known = {name: task.data[name] for name in model.model_fields if name in task.data}
    try:
        return parse(model, known, f"task {task.id!r}")
    except ConfigError as error:
        raise DataError(str(error)) from None
