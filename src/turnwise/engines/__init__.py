"""Sampling: token ids in, token ids and log-probabilities out.

`LocalEngine` draws from models on this machine, `RemoteEngine` asks a server, `RoutingEngine` sends
each request to the engine of its policy, `ScriptedEngine` says what a test tells it to;
`run` runs the coroutines that wait for them, `close_engine` ends that. A new
engine is one file and one line here.
"""

from typing import TYPE_CHECKING

from turnwise.utils.lazy_imports import lazy_names

if TYPE_CHECKING:
    from turnwise.engines.base import Completion, Engine, Request
    from turnwise.engines.config import EngineConfig
    from turnwise.engines.local.engine import LocalEngine, PolicyLike
    from turnwise.engines.loop import SteppedEngine, close_engine, run
    from turnwise.engines.remote import RemoteEngine
    from turnwise.engines.remote_config import RemoteConfig
    from turnwise.engines.routing import RoutingEngine
    from turnwise.engines.scripted import ScriptedEngine

__all__ = [
    "Completion",
    "Engine",
    "EngineConfig",
    "LocalEngine",
    "PolicyLike",
    "RemoteConfig",
    "RemoteEngine",
    "Request",
    "RoutingEngine",
    "ScriptedEngine",
    "SteppedEngine",
    "close_engine",
    "run",
]

__getattr__, __dir__ = lazy_names(
    __name__,
    {
        "Completion": "turnwise.engines.base",
        "Engine": "turnwise.engines.base",
        "EngineConfig": "turnwise.engines.config",
        "LocalEngine": "turnwise.engines.local.engine",
        "PolicyLike": "turnwise.engines.local.engine",
        "RemoteConfig": "turnwise.engines.remote_config",
        "RemoteEngine": "turnwise.engines.remote",
        "Request": "turnwise.engines.base",
        "RoutingEngine": "turnwise.engines.routing",
        "ScriptedEngine": "turnwise.engines.scripted",
        "SteppedEngine": "turnwise.engines.loop",
        "close_engine": "turnwise.engines.loop",
        "run": "turnwise.engines.loop",
    },
)
