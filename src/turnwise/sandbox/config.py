"""The settings of a sandbox: the isolation of programs, and their number at once.

Provides `SandboxConfig`.
"""

from __future__ import annotations

import os
from typing import Literal

from pydantic import Field, field_validator, model_validator

from turnwise.settings import Settings


class SandboxConfig(Settings):
    """The execution of programs that a model wrote."""

    backend: Literal[
        "isolated", "bubblewrap", "namespaces", "landlock", "container", "subprocess"
    ] = "isolated"
    """"isolated" is "bubblewrap" where `bwrap` is installed and works, and otherwise "namespaces";
    where the kernel grants neither, programs are not run. Both promise the same. "container" puts
    workers into a container of `image`. "landlock" promises less and must be asked for.
    "subprocess" has limits and no isolation: for programs you trust."""
    workers: int | None = Field(default=None, ge=1)
    """The number of programs that run at once; None is one per core."""
    preload: tuple[str, ...] = ()
    """Modules that workers import before the first program, such as "numpy". A container imports
    them from its image."""
    network: bool = False
    """Whether programs may open sockets."""
    image: str | None = None
    """The container's image: anything with Python 3.11 or later as `python3`; "python:3.11-slim"
    if not given."""
    runtime: str | None = None
    """The program that runs containers, "docker" if not given; or "podman", or a path; options of
    its `run` may follow, as in "docker --runtime=runsc". "runsc" alone means that."""

    @model_validator(mode="after")
    def _check_container(self) -> SandboxConfig:
        for name, value in (("image", self.image), ("runtime", self.runtime)):
            if value is not None and self.backend != "container":
                raise ValueError(
                    f"{name} = {value!r} does not apply to backend = {self.backend!r}: leave "
                    f"{name} out, or use backend = 'container'"
                )
        return self

    @field_validator("preload")
    @classmethod
    def _check_modules(cls, names: tuple[str, ...]) -> tuple[str, ...]:
        for name in names:
            if not all(part.isidentifier() for part in name.split(".")):
                raise ValueError(
                    f"{name!r} is not a module name: give names as `import` takes them"
                )
        return names

    @property
    def at_once(self) -> int:
        """The number of programs that run at once."""
        own = os.sched_getaffinity(0) if hasattr(os, "sched_getaffinity") else ()
        return self.workers or len(own) or os.cpu_count() or 1
