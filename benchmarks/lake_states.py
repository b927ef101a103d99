"""Where does a policy fail? Every state of unseen lakes, answered once, sorted by what it asks for.

    python benchmarks/lake_states.py RUN [--maps 120]

Walks over all cells of `--maps` maps of the validation split from which the goal can be reached,
lets the best checkpoint of RUN answer greedily, and counts for each sort of state how often the
answer is the first step of a shortest way, and how often it is safe.
"""

from __future__ import annotations

import argparse
import asyncio
from collections import defaultdict
from collections.abc import Sequence
from dataclasses import replace
from math import isfinite
from pathlib import Path

from turnwise.agents import messages_for
from turnwise.app.loading import LoadedRun, load_run
from turnwise.engines import Request, run
from turnwise.envs.frozen_lake.env import FrozenLake
from turnwise.envs.frozen_lake.maps import ACTIONS
from turnwise.envs.frozen_lake.state import LakeState
from turnwise.tasks import GeneratedTasks
from turnwise.types import EpisodeId, Prompt, TurnId

SEED = 7


def main() -> None:
    """Print the table."""
    parser = argparse.ArgumentParser(description=(__doc__ or "").splitlines()[0])
    parser.add_argument("run", type=Path)
    parser.add_argument("--maps", type=int, default=120)
    arguments = parser.parse_args()
    loaded = load_run(arguments.run)
    loaded.use_checkpoint()
    env = loaded.recipe.env.make("evaluation").unwrapped
    if not isinstance(env, FrozenLake):
        parser.error(f"{arguments.run} plays {env.name!r}: this table is of lakes")
    states = states_of(env, arguments.maps)
    counts: dict[str, list[int]] = defaultdict(lambda: [0, 0, 0])
    for state, answer in zip(states, answers(loaded, env, states), strict=True):
        count = counts[sort_of(state)]
        count[0] += 1
        count[1] += answer in best_moves(state)
        count[2] += answer in safe_moves(state)
    print(f"{len(states)} states, checkpoint {loaded.checkpoint.path.name}")
    for sort, (many, best, safe) in sorted(counts.items()):
        print(f"{sort:32s} {many:5d} states  best {best / many:.3f}  safe {safe / many:.3f}")


def states_of(env: FrozenLake, maps: int) -> list[LakeState]:
    """Return every cell of `maps` different lakes from which the goal can be reached."""
    tasks = GeneratedTasks(env, "validation", SEED)
    found: dict[tuple[str, ...], LakeState] = {}
    index = 0
    while len(found) < maps:
        state = env.reset(tasks.task(index))
        found.setdefault(state.map, state)
        index += 1
    return [
        replace(state, position=cell)
        for state in found.values()
        for cell, (letter, way) in enumerate(
            zip(state.lake.letters, state.lake.distances, strict=True)
        )
        if letter in "SF" and isfinite(way)
    ]


def answers(loaded: LoadedRun, env: FrozenLake, states: Sequence[LakeState]) -> list[str]:
    """Return the policy's greedy answers, "" where there is no legal one."""
    agent = loaded.recipe.agents["player"]
    renderer = loaded.policies["main"].renderer

    async def answer(number: int, state: LakeState) -> str:
        text = env.observe(state, "player").text
        identity = TurnId(
            episode=EpisodeId(iteration=0, visit=number, task="state", member=0),
            role="player",
            turn=0,
        )
        request = Request(
            id=identity,
            stream="evaluation",
            policy=agent.policy,
            prompt_ids=renderer.prompt_ids(Prompt(messages=messages_for(agent, (), text))),
            sampling=agent.sampling(greedy=True),
        )
        completion = await loaded.engine.generate(request)
        action = agent.reply_format.parse(renderer.decode(completion.token_ids), ACTIONS)
        return action if isinstance(action, str) else ""

    async def everything() -> list[str]:
        return await asyncio.gather(*(answer(i, state) for i, state in enumerate(states)))

    return run(everything(), loaded.engine)


def safe_moves(state: LakeState) -> list[str]:
    """Return the actions that lead to another cell without a hole."""
    lake = state.lake
    pairs = zip(ACTIONS, lake.moves[state.position], strict=True)
    return [a for a, to in pairs if to != state.position and lake.letters[to] != "H"]


def best_moves(state: LakeState) -> list[str]:
    """Return the first steps of all shortest ways."""
    lake, way = state.lake, state.lake.distances[state.position]
    pairs = zip(ACTIONS, lake.moves[state.position], strict=True)
    return [action for action, to in pairs if lake.distances[to] == way - 1]


def sort_of(state: LakeState) -> str:
    """Return what the reflex, DOWN or RIGHT if safe, would make of a state."""
    ahead = {"DOWN", "RIGHT"} & set(safe_moves(state))
    right = len(ahead & set(best_moves(state)))
    if not ahead:
        return "dead end: neither DOWN nor RIGHT"
    if len(ahead) == 1:
        return "one way ahead, right" if right else "one way ahead, wrong"
    return ("fork, both wrong", "fork, one a dead end", "fork, both right")[right]


if __name__ == "__main__":
    main()
