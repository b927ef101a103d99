"""The `turns` workflow: the seats act as the env says, one after the other."""

from __future__ import annotations

from typing import Any

from turnwise.envs.base import Step
from turnwise.workflows.base import Agents


async def turns(agents: Agents, state: Any) -> Step[Any]:
    """Play `state` to its end; at each step the first seat of `acting(state)` acts."""
    while True:
        step = await agents[agents.acting(state)[0]].act(state)
        if step.terminated or step.truncated:
            return step
        state = step.state
