"""The accuracy of descriptions: the share of unseen states that a policy describes exactly.

Provides `perception_accuracy`. Where an env has no descriptions, the measurement is the share of
replies that are an answer. Replies are sampled at the training temperature.
"""

from __future__ import annotations

import asyncio
from collections.abc import Sequence
from typing import Any, Literal, NamedTuple, TypeAlias

from turnwise.agents import AgentConfig, Exchange, prompt_for
from turnwise.engines import Request, SteppedEngine, run
from turnwise.engines.model_calls import RendererLike
from turnwise.envs import Env, Observation
from turnwise.errors import EnvError, StuckEnvError
from turnwise.parallel import ALONE, ProcessGroup, share_of_episodes
from turnwise.rollout.agent import action_of
from turnwise.rollout.random_play import random_conversation, random_game
from turnwise.seeding import generator
from turnwise.types import EpisodeId, Prompt, Task, TurnId

StatesRule: TypeAlias = Literal["first", "play"]
"""Which states: where tasks begin, or every turn of games of uniformly random actions."""
WALK = 4
"""Most random steps from the start to the state that is described, of those of `first`."""


class Seen(NamedTuple):
    """The share of replies that were right, in [0, 1], and whether any state had a description.

    `broken` is the share of states that were left out because the env broke on the way to them.

    Example:
        >>> Seen(share=0.5, described=True).metrics
        {'warmup/perception': 0.5}
        >>> Seen(share=0.5, described=False).metrics
        {'warmup/readable': 0.5}
    """

    share: float
    described: bool
    broken: float = 0.0

    @property
    def metrics(self) -> dict[str, float]:
        """The measurement as metrics: descriptions that are exact, or replies that are actions."""
        name = "warmup/perception" if self.described else "warmup/readable"
        broken = {"warmup/broken_share": self.broken} if self.broken else {}
        return {name: self.share, **broken}


def perception_accuracy(
    env: Env[Any],
    tasks: Sequence[Task],
    agent: AgentConfig,
    renderer: RendererLike,
    engine: SteppedEngine,
    *,
    number: int,
    states: StatesRule = "first",
    group: ProcessGroup = ALONE,
) -> Seen:
    """Return the share of states, one of each of `tasks`, that are described exactly.

    Where an env describes nothing, the share of replies that are an answer. A state is left out if
    the env breaks on the way to it.

    Args:
        env: the world.
        tasks: unseen tasks; uniform play walks a few steps into each.
        agent: who describes, and at which temperature.
        renderer: of the agent's policy.
        engine: samples.
        number: tells measurements of one run apart: each has its own draws.
        states: `first` walks a few random steps from the start, or, with several seats, takes the
            role's first turn; `play` draws one turn of a random game.
        group: the processes that share the states.

    Raises:
        EnvError: if the env broke on the way to all of them.
    """
    errors: list[EnvError] = []

    async def sees(place: int, task: Task) -> tuple[bool, bool] | None:
        try:
            state, seat, past = _situation(env, task, agent, renderer, place, states)
            observation = env.observe(state, seat)
        except StuckEnvError:
            raise
        except EnvError as error:
            errors.append(error)
            return None
        prompt = prompt_for(agent, past, observation)
        episode = EpisodeId(iteration=number, visit=place, task=task.id, member=0)
        completion = await engine.generate(_request(episode, prompt, agent, renderer))
        text = renderer.decode(completion.token_ids)
        return _is_right(text, observation, agent, renderer), bool(observation.description)

    async def everything() -> list[tuple[bool, bool] | None]:
        own = share_of_episodes(len(tasks), 1, group.rank, group.size)
        return await asyncio.gather(*(sees(i, tasks[i]) for i in own))

    shares = group.together(lambda: run(everything(), engine))
    all_found = [one for share in shares for one in share]
    found = [one for one in all_found if one is not None]
    if not found:
        raise errors[0] if errors else EnvError(f"{env.name}: every random game broke")
    right, described = zip(*found, strict=True)
    broken = 1 - len(found) / len(all_found)
    return Seen(share=sum(right) / len(right), described=any(described), broken=broken)


def _request(
    episode: EpisodeId, prompt: Prompt, agent: AgentConfig, renderer: RendererLike
) -> Request:
    return Request(
        id=TurnId(episode=episode, role=agent.role, turn=0),
        stream="warmup",
        policy=agent.policy,
        prompt_ids=renderer.prompt_ids(prompt),
        media=prompt.media_key,
        sampling=agent.sampling(),
    )


def _situation(
    env: Env[Any],
    task: Task,
    agent: AgentConfig,
    renderer: RendererLike,
    place: int,
    states: StatesRule,
) -> tuple[Any, str, Sequence[Exchange]]:
    """Return the state that is described in place number `place`, the seat and what was said."""
    rng = generator(task.seed, "seeing", place)
    if states == "play":
        game = random_game(env, task, agent, renderer, rng)
        turn = int(rng.integers(len(game.states)))
        return game.states[turn], game.seat, game.past[:turn]
    found = random_conversation(env, task, agent, renderer, rng, WALK)
    return found.state, found.seat, found.past


def _is_right(
    text: str, observation: Observation, agent: AgentConfig, renderer: RendererLike
) -> bool:
    """Whether a reply describes the state, or, where there is no description, is an answer."""
    if not observation.description:  # what counts is to speak the format
        return isinstance(action_of(text, observation, agent, renderer), str)
    return agent.reply_format.thought(text) == observation.description
