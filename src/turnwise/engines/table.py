"""The table of engines: name -> options and engine.

Provides `ENGINES`, `AnyEngineConfig`, the `[engine]` section of a recipe, and `make_engine`. To add
an engine, write a file with its config class and its class, and add a line here and a test.
"""

from __future__ import annotations

from collections.abc import Callable, Mapping
from dataclasses import dataclass
from typing import TYPE_CHECKING, Any

from turnwise.engines.config import EngineConfig
from turnwise.engines.loop import SteppedEngine
from turnwise.engines.remote_config import RemoteConfig
from turnwise.settings import one_of

if TYPE_CHECKING:
    from turnwise.engines.local.engine import PolicyLike


@dataclass(frozen=True, slots=True)
class EngineKind:
    """An engine: the class of its options, and how it is made.

    `make` gets the policies, the options, a seed, and policy name -> tokens of its longest expected
    sequence.
    """

    config: type[EngineConfig]
    make: Callable[[Mapping[str, Any], Any, int, Mapping[str, int]], SteppedEngine]


def _local(
    policies: Mapping[str, Any], config: EngineConfig, seed: int, tokens: Mapping[str, int]
) -> SteppedEngine:
    from turnwise.engines.local.engine import LocalEngine  # imports torch

    return LocalEngine(policies, config, seed, tokens)


ENGINES: dict[str, EngineKind] = {"local": EngineKind(EngineConfig, _local)}
if TYPE_CHECKING:
    AnyEngineConfig = EngineConfig
else:
    AnyEngineConfig = one_of({n: each.config for n, each in ENGINES.items()}, default="local")
    """The `[engine]` section of a recipe."""


def make_engine(
    policies: Mapping[str, PolicyLike],
    remote: Mapping[str, RemoteConfig],
    config: EngineConfig,
    seed: int,
    tokens: Mapping[str, int],
) -> SteppedEngine:
    """Return the engine of a team.

    Args:
        policies: policy name -> weights on this machine.
        remote: policy name -> endpoint, for policies at a server.
        config: the options of the engine of this machine; `kind` chooses it.
        seed: decides every draw.
        tokens: policy name -> tokens of its longest expected sequence; decides how long the rows
            are that are measured at load.

    Raises:
        ConfigError: if an endpoint cannot be used as asked.
        MissingDependencyError: if there are endpoints and httpx is not installed.
    """
    local = ENGINES[config.kind].make(policies, config, seed, tokens)
    if not remote:
        return local
    from turnwise.engines.remote import RemoteEngine
    from turnwise.engines.routing import RoutingEngine

    return RoutingEngine(local, {n: RemoteEngine(n, each, seed) for n, each in remote.items()})
