"""How exactly a policy sees: the share of unseen states whose description it writes to the letter.

Owns that one measurement. Where an env has no descriptions it is the share of replies that are an
answer, all that a warm-up can teach there. Replies are sampled at the training temperature, as play
will sample them; no answer is scored.
"""

from __future__ import annotations

import asyncio
from collections.abc import Sequence
from typing import Any, Literal, NamedTuple, TypeAlias

from turnwise.agents import AgentConfig, prompt_for
from turnwise.engines import Engine, Request, run
from turnwise.envs import Env
from turnwise.noise import generator
from turnwise.rollout.seat import RendererLike, action_of, thought_of
from turnwise.rollout.talk import random_game, wander_and_talk
from turnwise.types import Task, TurnId

StatesRule: TypeAlias = Literal["first", "play"]
"""Which states: where tasks begin, or every turn of games of uniformly random actions."""
WALK = 4
"""Most random steps from the start to the state that is described, of those of `first`."""


class Seen(NamedTuple):
    """The share of replies that were right, in [0, 1], and whether any state had a description.

    Example:
        >>> Seen(share=0.5, described=True).share
        0.5
    """

    share: float
    described: bool


def exactness_of_seeing(
    env: Env[Any],
    tasks: Sequence[Task],
    agent: AgentConfig,
    renderer: RendererLike,
    engine: Engine,
    *,
    number: int,
    states: StatesRule = "first",
) -> Seen:
    """Return the share of states, one of each of `tasks`, that are described exactly.

    Where an env describes nothing, the share of replies that are an answer.

    Args:
        env: the world.
        tasks: unseen tasks; uniform play walks a few steps into each.
        agent: who describes, and at which temperature.
        renderer: of the agent's policy.
        engine: samples.
        number: tells measurements of one run apart: each has its own draws.
        states: `first` walks a few random steps from the start; `play` draws one turn of a random
            game.
    """

    async def sees(place: int, task: Task) -> tuple[bool, bool]:
        rng = generator(task.seed, "seeing", place)
        if states == "play":
            game = random_game(env, task, agent, renderer, rng)
            turn = int(rng.integers(len(game.states)))
            state, past = game.states[turn], list(game.past[:turn])
        else:
            state, past = wander_and_talk(env, task, agent, renderer, rng, WALK)
        observation = env.observe(state, agent.role)
        request = Request(
            id=TurnId(
                iteration=number, visit=place, task=task.id, sample=0, role=agent.role, turn=0
            ),
            stream="warmup",
            policy=agent.policy,
            prompt_ids=renderer.prompt_ids(prompt_for(agent, past, observation)),
            sampling=agent.sampling(),
        )
        completion = await engine.sample(request)
        text = renderer.decode(completion.token_ids)
        if not observation.description:  # nothing to describe: what counts is to speak the format
            return isinstance(action_of(text, observation, agent, renderer), str), False
        return thought_of(text) == observation.description, True

    async def everything() -> list[tuple[bool, bool]]:
        return await asyncio.gather(*(sees(i, task) for i, task in enumerate(tasks)))

    found = run(everything(), engine)
    right, described = zip(*found, strict=True)
    return Seen(share=sum(right) / len(right), described=any(described))
