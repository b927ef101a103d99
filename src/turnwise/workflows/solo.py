"""One role acts until the world, or a limit, ends the episode."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any

from turnwise.envs.base import Step
from turnwise.workflows.base import Seat


async def solo(agents: Mapping[str, Seat], state: Any) -> Step[Any]:
    """Play `state` to its end with the only agent at the table."""
    (player,) = agents.values()
    while True:
        step = await player.act(state)
        if step.terminated or step.truncated:
            return step
        state = step.state
