"""Sampling: token ids in, token ids and log-probabilities out.

`LocalEngine` draws from models on this machine, `ScriptedEngine` says what a test tells it to;
`run` runs the coroutines that wait for them. A new engine is one file and one line here.
"""

from turnwise.engines.base import Completion, Engine, Request
from turnwise.engines.config import EngineConfig
from turnwise.engines.local import LocalEngine, PolicyLike
from turnwise.engines.loop import run
from turnwise.engines.scripted import ScriptedEngine

ENGINES = {"local": (EngineConfig, LocalEngine)}
"""Kind -> (config, class) of the engines that a recipe can name."""

__all__ = [
    "ENGINES",
    "Completion",
    "Engine",
    "EngineConfig",
    "LocalEngine",
    "PolicyLike",
    "Request",
    "ScriptedEngine",
    "run",
]
