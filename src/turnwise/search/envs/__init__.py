"""Small Gymnasium envs of the paper's tasks that no well-kept package has.

Their rules are turnwise's own, as the paper's are not published in full, so that published scores
of these tasks do not compare. Provides `register_envs`, which gives them ids such as
`turnwise/Maze-v0`.
"""

from __future__ import annotations

import gymnasium

ENTRIES = {
    "turnwise/Maze-v0": ("turnwise.search.envs.maze:Maze", 100),
    "turnwise/Nim-v0": ("turnwise.search.envs.nim:Nim", 100),
    "turnwise/Navigation-v0": ("turnwise.search.envs.navigation:Navigation", 1000),
    "turnwise/Pong-v0": ("turnwise.search.envs.pong:Pong", 2000),
}
"""Id -> class, and the most steps of an episode."""


def register_envs() -> None:
    """Register the envs with Gymnasium, unless they are."""
    for name, (entry, steps) in ENTRIES.items():
        if name not in gymnasium.registry:
            gymnasium.register(name, entry_point=entry, max_episode_steps=steps)
