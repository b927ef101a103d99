"""An engine for teams with policies on this machine and at servers.

Provides `RoutingEngine`, which sends each request to the engine of its policy.
"""

from __future__ import annotations

import asyncio
from collections.abc import Mapping, Sequence
from typing import Any, Protocol

from numpy.typing import NDArray

from turnwise.engines.base import Completion, Engine, Request
from turnwise.engines.loop import EngineLoop, RunLoop, SteppedEngine


class MeasuredEngine(Engine, Protocol):
    """An engine at a server, which says what it did."""

    def metrics(self) -> dict[str, float]:
        """Return what was done since the last call."""
        ...


class RoutingEngine:
    """Asks remote engines for the policies that they serve, and the local engine for the others.

    Where the local engine is deterministic, its steps wait for the replies that are under way: what
    they lead to belongs to the step. Equal replies then give equal batches, however long they took.

    Example:
        >>> from turnwise.engines.scripted import ScriptedEngine
        >>> local = ScriptedEngine(lambda request: (1,))
        >>> RoutingEngine(local, {}).deterministic
        True
    """

    def __init__(self, local: SteppedEngine, remote: Mapping[str, MeasuredEngine]) -> None:
        self.loop: RunLoop = local.loop
        self._local, self._remote = local, dict(remote)

    @property
    def deterministic(self) -> bool:
        """Whether steps wait for what is under way outside (see `SteppedEngine`)."""
        return self._local.deterministic

    async def generate(self, request: Request) -> Completion:
        """Return the completion of the engine that serves the request's policy."""
        remote = self._remote.get(request.policy)
        if remote is None:
            return await self._local.generate(request)
        loop = asyncio.get_running_loop()
        assert isinstance(loop, EngineLoop), "await it inside turnwise.engines.run"
        loop.outside += 1
        try:
            return await remote.generate(request)
        finally:
            loop.outside -= 1

    def advance(self) -> bool:
        """Do one step of the local engine."""
        return self._local.advance()

    def update_weights(self, policy: str) -> None:
        """Tell the engine that serves `policy`."""
        self._remote.get(policy, self._local).update_weights(policy)

    def end_iteration(self) -> None:
        """Drop the local engine's caches."""
        self._local.end_iteration()

    def state(self) -> dict[str, NDArray[Any]]:
        """Return what the local engine's later passes depend on."""
        return self._local.state()

    def restore(self, state: Mapping[str, NDArray[Any]]) -> None:
        """Go on from what `state` returned."""
        self._local.restore(state)

    def metrics(self) -> dict[str, float]:
        """Return the local engine's metrics and the sums of the remote ones'."""
        return self._local.metrics() | _summed([one.metrics() for one in self._remote.values()])

    def reason(self, policy: str) -> str:
        """Return how a policy is sampled, and why so."""
        remote = policy in self._remote
        return "remote, as the recipe says" if remote else self._local.reason(policy)

    async def close(self) -> None:
        """Close all engines, the remaining ones, too, where one cannot be closed."""
        engines: list[Engine] = [self._local, *self._remote.values()]
        failed = await asyncio.gather(*(one.close() for one in engines), return_exceptions=True)
        for error in failed:
            if error is not None:
                raise error


def _summed(found: Sequence[Mapping[str, float]]) -> dict[str, float]:
    """Return the sums of equally named numbers."""
    names = dict.fromkeys(name for one in found for name in one)
    return {name: sum(one.get(name, 0.0) for one in found) for name in names}
