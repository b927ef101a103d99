"""The strict base model of every config: unknown keys are errors, values never change silently."""

from pydantic import BaseModel, ConfigDict


class Settings(BaseModel):
    """Base of every config class: unknown keys are refused, instances are frozen.

    Example:
        >>> class Lake(Settings):
        ...     size: int = 4
        >>> Lake(size=8).size
        8
    """

    model_config = ConfigDict(
        extra="forbid", frozen=True, use_attribute_docstrings=True, protected_namespaces=()
    )
