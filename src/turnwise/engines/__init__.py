"""Sampling: token ids in, token ids and log-probabilities out.

`LocalEngine` draws from models on this machine, `ScriptedEngine` says what a test tells it to;
`run` runs the coroutines that wait for them. A new engine is one file and one line here.
"""

from typing import TYPE_CHECKING

from turnwise.lazy import lazy_names

if TYPE_CHECKING:
    from turnwise.engines.base import Completion, Engine, Request
    from turnwise.engines.config import EngineConfig
    from turnwise.engines.local import LocalEngine, PolicyLike
    from turnwise.engines.loop import run
    from turnwise.engines.scripted import ScriptedEngine

__all__ = [
    "Completion",
    "Engine",
    "EngineConfig",
    "LocalEngine",
    "PolicyLike",
    "Request",
    "ScriptedEngine",
    "run",
]

__getattr__, __dir__ = lazy_names(
    __name__,
    {
        "Completion": "turnwise.engines.base",
        "Engine": "turnwise.engines.base",
        "EngineConfig": "turnwise.engines.config",
        "LocalEngine": "turnwise.engines.local",
        "PolicyLike": "turnwise.engines.local",
        "Request": "turnwise.engines.base",
        "ScriptedEngine": "turnwise.engines.scripted",
        "run": "turnwise.engines.loop",
    },
)
